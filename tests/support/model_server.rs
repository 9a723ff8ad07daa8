//! A server on this machine that plays every model of a campaign, in the wire formats that hosted models speak.
//!
//! The path of a request begins with the name of the model's endpoint: each has replies of its own, given in order. An
//! endpoint without replies refuses its key, one whose replies are used up calls the request bad, so that a test sees it.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// Tokens that each request is said to have taken.
pub(crate) const INPUT_TOKENS: u64 = 1_000;
/// Tokens that each reply is said to have taken.
pub(crate) const OUTPUT_TOKENS: u64 = 100;

/// Size of an endless reply in bytes: a client that reads all of it has no limit.
const ENDLESS_BYTES: usize = 256 * 1024 * 1024;
/// Characters of a piece of an ordinary reply.
const PIECE_CHARS: usize = 400;

/// What is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    /// Chat completions.
    Openai,
    /// Messages.
    Anthropic,
}

impl Wire {
    /// Its name in a configuration.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Openai => "openai",
            Self::Anthropic => "anthropic",
        }
    }
}

/// What a model does when it is asked.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// Answers.
    Text(String),
    /// Answers until its limit of tokens cuts it off.
    CutOff(String),
    /// Says that it would rather not, as the wire format has it.
    Refusal,
    /// Never comes to an end.
    Endless,
    /// Fails with this status.
    Status(u16),
}

impl From<&str> for Reply {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Reply {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// A request, by the endpoint that it was for.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedCall {
    /// Name of the endpoint.
    pub(crate) endpoint: String,
    /// The body, with all that the model saw.
    pub(crate) body: String,
}

/// The models of a test. Its threads end with the process.
pub(crate) struct ModelServer {
    address: String,
    asked: Arc<Mutex<Vec<ReceivedCall>>>,
    left: Arc<Mutex<BTreeMap<String, VecDeque<Reply>>>>,
}

impl ModelServer {
    /// Starts it with the replies of each endpoint.
    pub(crate) fn start(wire: Wire, replies: impl IntoIterator<Item = (&'static str, Vec<Reply>)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let left: BTreeMap<String, VecDeque<Reply>> =
            replies.into_iter().map(|(name, replies)| (name.to_owned(), replies.into())).collect();
        let left = Arc::new(Mutex::new(left));
        let (log, queues) = (Arc::clone(&asked), Arc::clone(&left));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (log, queues) = (Arc::clone(&log), Arc::clone(&queues));
                std::thread::spawn(move || answer(stream, wire, &log, &queues));
            }
        });
        Self { address, asked, left }
    }

    /// The address that is configured for an endpoint of this name.
    pub(crate) fn base_url(&self, endpoint: &str) -> String {
        format!("http://{}/{endpoint}/v1", self.address)
    }

    /// What an endpoint was asked, in order.
    pub(crate) fn asked(&self, endpoint: &str) -> Vec<String> {
        let asked = self.asked.lock().expect("the log");
        asked.iter().filter(|asked| asked.endpoint == endpoint).map(|asked| asked.body.clone()).collect()
    }

    /// Returns the replies that were not requested.
    pub(crate) fn left(&self) -> BTreeMap<String, usize> {
        let left = self.left.lock().expect("the replies");
        left.iter().map(|(name, replies)| (name.clone(), replies.len())).filter(|(_, count)| *count > 0).collect()
    }
}

fn answer(
    mut stream: TcpStream,
    wire: Wire,
    log: &Mutex<Vec<ReceivedCall>>,
    queues: &Mutex<BTreeMap<String, VecDeque<Reply>>>,
) {
    let Some((asked, is_question)) = read(&stream) else { return };
    if !is_question {
        // A check whether the endpoint is available.
        let _ = whole(&mut stream, 200, &json!({"data": [{"id": "m", "type": "model"}]}));
        return;
    }
    let reply = match queues.lock().expect("the replies").get_mut(&asked.endpoint) {
        None => Reply::Status(401),
        Some(queue) => queue.pop_front().unwrap_or(Reply::Status(400)),
    };
    log.lock().expect("the log").push(asked);
    // The client may leave at any time, and leaves an endless reply for certain.
    let _ = match reply {
        Reply::Text(text) => send(&mut stream, wire, &text, &end_of(wire, "stop", "end_turn")),
        Reply::CutOff(text) => send(&mut stream, wire, &text, &end_of(wire, "length", "max_tokens")),
        Reply::Refusal => send(&mut stream, wire, "", &end_of(wire, "content_filter", "refusal")),
        Reply::Endless => endless(&mut stream, wire),
        Reply::Status(status) => fail(&mut stream, status),
    };
}

/// A request, and whether it is one for a reply.
fn read(stream: &TcpStream) -> Option<(ReceivedCall, bool)> {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first).ok()?;
    let endpoint = first.split('/').nth(1)?.to_owned();
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((ReceivedCall { endpoint, body: String::from_utf8(body).ok()? }, first.starts_with("POST ")))
}

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";

fn send(stream: &mut TcpStream, wire: Wire, text: &str, end: &str) -> std::io::Result<()> {
    let mut whole = HEAD.to_owned();
    whole += &start_of(wire);
    let characters: Vec<char> = text.chars().collect();
    for piece in characters.chunks(PIECE_CHARS) {
        whole += &piece_of(wire, &piece.iter().collect::<String>());
    }
    whole += end;
    stream.write_all(whole.as_bytes())
}

fn endless(stream: &mut TcpStream, wire: Wire) -> std::io::Result<()> {
    stream.write_all(HEAD.as_bytes())?;
    stream.write_all(start_of(wire).as_bytes())?;
    let piece = piece_of(wire, &"and so on, ".repeat(10_000));
    for _ in 0..ENDLESS_BYTES / piece.len() {
        stream.write_all(piece.as_bytes())?;
    }
    Ok(())
}

fn fail(stream: &mut TcpStream, status: u16) -> std::io::Result<()> {
    whole(stream, status, &json!({"error": {"type": "told_to_fail", "message": "this endpoint was told to fail"}}))
}

fn whole(stream: &mut TcpStream, status: u16, body: &Value) -> std::io::Result<()> {
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status} Told\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

fn event(name: &str, data: &Value) -> String {
    if name.is_empty() { format!("data: {data}\n\n") } else { format!("event: {name}\ndata: {data}\n\n") }
}

fn start_of(wire: Wire) -> String {
    match wire {
        Wire::Openai => String::new(),
        Wire::Anthropic => event(
            "message_start",
            &json!({"type": "message_start", "message": {"usage": {"input_tokens": INPUT_TOKENS, "output_tokens": 1}}}),
        ),
    }
}

fn piece_of(wire: Wire, text: &str) -> String {
    match wire {
        Wire::Openai => {
            event("", &json!({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": null}]}))
        }
        Wire::Anthropic => event(
            "content_block_delta",
            &json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}),
        ),
    }
}

fn end_of(wire: Wire, openai: &str, anthropic: &str) -> String {
    match wire {
        Wire::Openai => [
            event("", &json!({"choices": [{"index": 0, "delta": {}, "finish_reason": openai}]})),
            event(
                "",
                &json!({"choices": [],
                        "usage": {"prompt_tokens": INPUT_TOKENS, "completion_tokens": OUTPUT_TOKENS}}),
            ),
            "data: [DONE]\n\n".to_owned(),
        ]
        .concat(),
        Wire::Anthropic => [
            event(
                "message_delta",
                &json!({"type": "message_delta", "delta": {"stop_reason": anthropic},
                        "usage": {"output_tokens": OUTPUT_TOKENS}}),
            ),
            event("message_stop", &json!({"type": "message_stop"})),
        ]
        .concat(),
    }
}
