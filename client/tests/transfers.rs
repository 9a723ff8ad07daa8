//! Tests of artifacts over connections that break at random places. A failure prints its seed.
#![expect(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use nightshift_client::{Client, MAX_WHOLE_UPLOAD_BYTES};
use nightshift_protocol::api::{MAX_UPLOAD_PART_BYTES, UPLOAD_OFFSET_HEADER, UPLOAD_SIZE_HEADER};
use nightshift_protocol::artifact::ArtifactHash;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

const SEEDS: std::ops::Range<u64> = 1..9;
/// Maximum number of calls of a transfer. Each call resumes several broken connections by itself.
const MAX_CALLS: u32 = 100;

/// A generator of pseudorandom numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % bound as u64).unwrap()
    }
}

fn some_bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut random = Random(seed);
    (0..length).map(|_| u8::try_from(random.below(256)).unwrap()).collect()
}

#[derive(Default)]
struct State {
    /// The stored bytes and the total size of each artifact.
    stored: HashMap<String, (Vec<u8>, usize)>,
    methods: Vec<String>,
    received_bytes: usize,
    sent_bytes: usize,
    breaks: u32,
}

/// A store of artifacts with breaking connections.
#[derive(Clone)]
struct Breaking {
    state: Arc<Mutex<State>>,
    random: Arc<Mutex<Random>>,
    /// One connection in this many breaks.
    one_of: usize,
}

impl Breaking {
    async fn start(seed: u64, one_of: usize) -> (Self, Client) {
        let server = Self { state: Arc::default(), random: Arc::new(Mutex::new(Random(seed))), one_of };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = Client::new(&format!("http://{}", listener.local_addr().unwrap()), None).unwrap();
        let accepting = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let serving = accepting.clone();
                // Errors of broken connections are expected.
                tokio::spawn(async move { serving.serve(stream).await.ok() });
            }
        });
        (server, client)
    }

    /// Returns after how many bytes of `length` this connection breaks, if it does.
    fn breaks_after(&self, length: usize) -> Option<usize> {
        let mut random = self.random.lock().unwrap();
        let breaks = self.one_of > 0 && random.below(self.one_of) == 0;
        let after = breaks.then(|| random.below(length.max(1)));
        self.state.lock().unwrap().breaks += u32::from(breaks);
        after
    }

    async fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut stream = BufReader::new(stream);
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).await?;
            if line.trim().is_empty() {
                break;
            }
            head.push(line.trim().to_owned());
        }
        let mut words = head[0].split(' ');
        let (method, path) = (words.next().unwrap().to_owned(), words.next().unwrap());
        let hash = path.rsplit('/').next().unwrap().to_owned();
        let header = |name: &str| {
            let values = head.iter().filter_map(|line| line.split_once(": "));
            values.into_iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
        };
        let number = |name: &str| header(name).and_then(|value| value.parse::<usize>().ok());
        self.state.lock().unwrap().methods.push(method.clone());
        let length = number("content-length").unwrap_or(0);
        let breaks_after = self.breaks_after(length);
        let mut body = vec![0; breaks_after.filter(|_| length > 0).unwrap_or(length)];
        stream.read_exact(&mut body).await?;
        let is_cut = body.len() < length;

        let answer = {
            let mut state = self.state.lock().unwrap();
            state.received_bytes += body.len();
            match method.as_str() {
                // A truncated whole is discarded; a truncated part is kept.
                "PUT" if is_cut => None,
                "PUT" => {
                    let size = body.len();
                    state.stored.insert(hash, (body, size));
                    Some(answer("204 No Content", "", &[]))
                }
                "PATCH" => {
                    let size = number(UPLOAD_SIZE_HEADER).unwrap();
                    let stored = &mut state.stored.entry(hash).or_insert((Vec::new(), size)).0;
                    if stored.len() == number(UPLOAD_OFFSET_HEADER).unwrap() {
                        stored.extend(body);
                        let (now, complete) = (stored.len(), stored.len() == size);
                        let progress = format!(r#"{{"size_bytes":{size},"stored_bytes":{now},"complete":{complete}}}"#);
                        (!is_cut).then(|| answer("200 OK", "", progress.as_bytes()))
                    } else {
                        let conflict = r#"{"error":{"code":"artifact.offset","message":"not there","details":null}}"#;
                        Some(answer("409 Conflict", "", conflict.as_bytes()))
                    }
                }
                "HEAD" => Some(match state.stored.get(&hash) {
                    None => b"HTTP/1.1 404 Not Found\r\nconnection: close\r\n\r\n".to_vec(),
                    Some((stored, size)) => {
                        let stored = stored.len();
                        format!(
                            "HTTP/1.1 200 OK\r\n{UPLOAD_SIZE_HEADER}: {size}\r\n{UPLOAD_OFFSET_HEADER}: {stored}\r\n\
                             connection: close\r\n\r\n"
                        )
                        .into_bytes()
                    }
                }),
                _ => {
                    let bytes = &state.stored.get(&hash).unwrap().0;
                    let begin = header("range")
                        .map_or(0, |range| range["bytes=".len()..].trim_end_matches('-').parse().unwrap());
                    let range = format!("content-range: bytes {begin}-{}/{}\r\n", bytes.len() - 1, bytes.len());
                    let answer = answer("206 Partial Content", &range, &bytes[begin..]);
                    state.sent_bytes += bytes.len() - begin;
                    Some(answer)
                }
            }
        };
        let Some(answer) = answer else { return Ok(()) };
        let until = if breaks_after.is_some() && length == 0 { self.below(answer.len()) } else { answer.len() };
        stream.write_all(&answer[..until]).await?;
        stream.shutdown().await
    }

    fn below(&self, bound: usize) -> usize {
        self.random.lock().unwrap().below(bound)
    }
}

fn answer(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n");
    [head.as_bytes(), body].concat()
}

#[tokio::test]
async fn a_large_artifact_goes_up_in_parts_whatever_breaks() {
    let bytes = some_bytes(7, 2 * MAX_UPLOAD_PART_BYTES + 12_345);
    let mut breaks = 0;
    for seed in SEEDS {
        let (server, client) = Breaking::start(seed, 3).await;
        let mut calls = 0;
        let hash = loop {
            calls += 1;
            match client.put_artifact(&bytes).await {
                Ok(hash) => break hash,
                Err(error) => assert!(error.is_transient() && calls < MAX_CALLS, "seed {seed}, call {calls}: {error}"),
            }
        };
        let state = server.state.lock().unwrap();
        assert!(state.stored[hash.as_str()].0 == bytes, "seed {seed}: other bytes arrived");
        assert!(!state.methods.contains(&"PUT".to_owned()));
        breaks += state.breaks;
    }
    assert!(breaks > 0, "nothing broke: the test covers nothing");
}

#[tokio::test]
async fn a_download_goes_on_where_it_broke_and_is_verified() {
    let bytes = some_bytes(8, 3_000_001);
    let hash = ArtifactHash::of(&bytes);
    let mut breaks = 0;
    for seed in SEEDS {
        let (server, client) = Breaking::start(seed, 2).await;
        server.state.lock().unwrap().stored.insert(hash.to_string(), (bytes.clone(), bytes.len()));
        let (mut sink, mut calls) = (Vec::new(), 0);
        while let Err(error) = client.download_artifact(&hash, &mut sink).await {
            calls += 1;
            assert!(error.is_transient() && calls < MAX_CALLS, "seed {seed}, call {calls}: {error}");
        }
        assert!(sink == bytes, "seed {seed}: other bytes arrived");
        breaks += server.state.lock().unwrap().breaks;
    }
    assert!(breaks > 0, "nothing broke: the test covers nothing");
}

#[tokio::test]
async fn artifacts_on_the_server_are_not_sent_again() {
    let bytes = some_bytes(9, MAX_UPLOAD_PART_BYTES + 1_000);
    let hash = ArtifactHash::of(&bytes);
    let (server, client) = Breaking::start(1, 0).await;
    let there = bytes[..MAX_UPLOAD_PART_BYTES].to_vec();
    server.state.lock().unwrap().stored.insert(hash.to_string(), (there, bytes.len()));
    client.put_artifact(&bytes).await.unwrap();
    client.put_artifact(&bytes).await.unwrap();
    let state = server.state.lock().unwrap();
    assert_eq!(state.received_bytes, 1_000);
    assert_eq!(state.methods, ["HEAD", "PATCH", "HEAD"]);
}

#[tokio::test]
async fn a_small_artifact_goes_up_at_once() {
    let (server, client) = Breaking::start(1, 0).await;
    client.put_artifact(&some_bytes(3, MAX_WHOLE_UPLOAD_BYTES)).await.unwrap();
    assert_eq!(server.state.lock().unwrap().methods, ["PUT"]);
}

#[tokio::test]
async fn a_download_with_bytes_at_hand_asks_for_the_rest_only() {
    let bytes = some_bytes(4, 10_000);
    let hash = ArtifactHash::of(&bytes);
    let (server, client) = Breaking::start(1, 0).await;
    server.state.lock().unwrap().stored.insert(hash.to_string(), (bytes.clone(), bytes.len()));
    let mut sink = bytes[..9_000].to_vec();
    client.download_artifact(&hash, &mut sink).await.unwrap();
    assert!(sink == bytes);
    assert_eq!(server.state.lock().unwrap().sent_bytes, 1_000);
}

#[tokio::test]
async fn an_upload_that_never_gets_further_is_given_up() {
    let (server, client) = Breaking::start(1, 1).await;
    let error = client.put_artifact(&some_bytes(5, MAX_WHOLE_UPLOAD_BYTES + 1)).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    assert!(server.state.lock().unwrap().methods.len() < 20);
}
