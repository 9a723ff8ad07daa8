//! A server that answers each request with the next entry of its list, byte by byte when asked to.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use nightshift_optimizer::model::{Catalog, EndpointConfig, Model, WireFormat};
use nightshift_protocol::campaign::ModelChoice;
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The key that the client sends, and that may show nowhere else.
pub(crate) const KEY: &str = "sk-hush-hush";

/// The model that is asked for.
pub(crate) const MODEL: &str = "org/model-1";

/// What the server does with a request.
#[derive(Clone)]
pub(crate) enum Answer {
    /// Sends this and closes.
    Send(Vec<u8>),
    /// Sends this in pieces of one byte each, every one a chunk of its own, and closes.
    BytesApart { head: String, body: String },
    /// Sends this and then nothing more, until the client leaves.
    Stall(Vec<u8>),
}

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) head: String,
    pub(crate) body: Value,
}

pub(crate) struct Server {
    pub(crate) base_url: String,
    received: Arc<Mutex<Vec<Received>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    /// Starts a server. When its answers are used up, it repeats the last one.
    pub(crate) async fn start(answers: Vec<Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
        let received = Arc::new(Mutex::new(Vec::new()));
        let answers = Arc::new(Mutex::new(VecDeque::from(answers)));
        let log = Arc::clone(&received);
        let task = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(serve(socket, Arc::clone(&answers), Arc::clone(&log)));
            }
        });
        Self { base_url, received, task }
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    pub(crate) fn requests(&self) -> usize {
        self.received().len()
    }

    /// Its configuration as an endpoint: impatient, so that tests are quick.
    pub(crate) fn endpoint(&self, kind: WireFormat) -> EndpointConfig {
        let mut config = EndpointConfig::new(kind, &self.base_url);
        config.key_env = Some("FAKE_API_KEY".to_owned());
        config.retry_delay_ms = 1;
        config
    }

    pub(crate) fn catalog(&self, kind: WireFormat) -> Catalog {
        catalog(self.endpoint(kind))
    }

    pub(crate) fn model(&self, kind: WireFormat) -> Arc<dyn Model> {
        open(self.endpoint(kind))
    }
}

pub(crate) fn catalog(config: EndpointConfig) -> Catalog {
    Catalog::new(BTreeMap::from([("fake".to_owned(), config)]))
}

pub(crate) fn open(config: EndpointConfig) -> Arc<dyn Model> {
    let choice = ModelChoice::Live { endpoint: "fake".to_owned(), model: MODEL.to_owned() };
    catalog(config).open(&choice, &key).unwrap()
}

pub(crate) fn key(variable: &str) -> Option<SecretString> {
    (variable == "FAKE_API_KEY").then(|| SecretString::from(KEY))
}

async fn serve(mut socket: TcpStream, answers: Arc<Mutex<VecDeque<Answer>>>, log: Arc<Mutex<Vec<Received>>>) {
    socket.set_nodelay(true).unwrap();
    let Some(request) = read_request(&mut socket).await else { return };
    log.lock().unwrap().push(request);
    let answer = {
        let mut answers = answers.lock().unwrap();
        if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() }
    };
    // The client may leave at any time: that is part of what is tested.
    match answer {
        None => {}
        Some(Answer::Send(bytes)) => {
            let _ = socket.write_all(&bytes).await;
            let _ = socket.shutdown().await;
        }
        Some(Answer::BytesApart { head, body }) => {
            let _ = socket.write_all(head.as_bytes()).await;
            for byte in body.as_bytes() {
                let _ = socket.write_all(&[b"1\r\n", [*byte].as_slice(), b"\r\n"].concat()).await;
                let _ = socket.flush().await;
            }
            let _ = socket.write_all(b"0\r\n\r\n").await;
            let _ = socket.shutdown().await;
        }
        Some(Answer::Stall(bytes)) => {
            let _ = socket.write_all(&bytes).await;
            let _ = socket.read(&mut [0_u8; 1]).await;
        }
    }
}

async fn read_request(socket: &mut TcpStream) -> Option<Received> {
    let mut bytes = Vec::new();
    let mut piece = [0_u8; 4096];
    loop {
        let read = socket.read(&mut piece).await.ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&piece[..read]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length: usize = head
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
            .map_or(0, |(_, value)| value.trim().parse().unwrap());
        if body.len() >= length {
            let body = serde_json::from_str(body).unwrap_or(Value::Null);
            return Some(Received { head: head.to_lowercase(), body });
        }
    }
}

/// A whole reply with this status, further header lines and body.
pub(crate) fn status(line: &str, headers: &str, body: &str) -> Answer {
    Answer::Send(
        format!("HTTP/1.1 {line}\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len())
            .into_bytes(),
    )
}

/// An error as most services report it.
pub(crate) fn error(line: &str, headers: &str, kind: &str, message: &str) -> Answer {
    let body = json!({"error": {"type": kind, "message": message}}).to_string();
    status(line, &format!("content-type: application/json\r\n{headers}"), &body)
}

/// The head of an event stream that ends with the connection.
pub(crate) fn stream_head() -> String {
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\nconnection: close\r\n\r\n".to_owned()
}

/// An event stream with this body.
pub(crate) fn stream(body: &str) -> Answer {
    Answer::Send([stream_head().as_bytes(), body.as_bytes()].concat())
}

/// The events of a reply up to its last piece of text.
pub(crate) fn events_of_text(kind: WireFormat, text: &str) -> String {
    let mut body = String::new();
    if kind == WireFormat::OpenaiResponses {
        let response = json!({"status": "in_progress", "error": null, "usage": null, "output": []});
        body += &event("response.created", &json!({"type": "response.created", "response": response}));
    }
    if kind == WireFormat::Anthropic {
        let start = json!({"type": "message_start", "message": {"usage": {"input_tokens": 11, "output_tokens": 1}}});
        body += &event("message_start", &start);
    }
    let characters: Vec<char> = text.chars().collect();
    for piece in characters.chunks(7) {
        let piece: String = piece.iter().collect();
        body += &match kind {
            WireFormat::Openai => {
                event("", &json!({"choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": null}]}))
            }
            WireFormat::OpenaiResponses => event(
                "response.output_text.delta",
                &json!({"type": "response.output_text.delta", "output_index": 0, "delta": piece}),
            ),
            WireFormat::Anthropic => event(
                "content_block_delta",
                &json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}),
            ),
        };
    }
    body
}

/// The events behind the text: why it stopped, what it took, the end.
pub(crate) fn events_of_end(kind: WireFormat, stop: &str) -> String {
    match kind {
        WireFormat::Openai => [
            event("", &json!({"choices": [{"index": 0, "delta": {}, "finish_reason": stop}]})),
            event("", &json!({"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 22}})),
            "data: [DONE]\n\n".to_owned(),
        ]
        .concat(),
        WireFormat::OpenaiResponses => {
            let (status, details) = match stop {
                "completed" => (stop, Value::Null),
                reason => ("incomplete", json!({"reason": reason})),
            };
            let kind = format!("response.{status}");
            let usage = json!({"input_tokens": 11, "output_tokens": 22});
            let response = json!({"status": status, "error": null, "incomplete_details": details, "usage": usage});
            event(&kind, &json!({"type": kind, "response": response}))
        }
        WireFormat::Anthropic => [
            event(
                "message_delta",
                &json!({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 22}}),
            ),
            event("message_stop", &json!({"type": "message_stop"})),
        ]
        .concat(),
    }
}

/// A good reply.
pub(crate) fn good(kind: WireFormat, text: &str) -> Answer {
    stream(&(events_of_text(kind, text) + &events_of_end(kind, done(kind))))
}

/// Why a model stops that is done.
pub(crate) fn done(kind: WireFormat) -> &'static str {
    match kind {
        WireFormat::Openai => "stop",
        WireFormat::OpenaiResponses => "completed",
        WireFormat::Anthropic => "end_turn",
    }
}

pub(crate) fn event(name: &str, data: &Value) -> String {
    if name.is_empty() { format!("data: {data}\n\n") } else { format!("event: {name}\ndata: {data}\n\n") }
}
