//! A proxy in front of one server, which injects network faults into single messages.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Method, Request, Response, StatusCode, Uri, header};
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::{Notify, oneshot};

use super::fault::{Effect, Message};

/// Longest message.
const MAX_BYTES: usize = 8 * 1024 * 1024;
/// How long a message waits for one that passes it.
const MAX_HOLD: Duration = Duration::from_millis(700);
/// How long an answer may take: longer than any long poll.
const MAX_ANSWER: Duration = Duration::from_mins(1);

/// A connection that breaks without an answer.
#[derive(Debug, thiserror::Error)]
#[error("the connection breaks, as it was to")]
pub(super) struct Broken;

/// A proxy. Ends with its last handle.
#[derive(Clone)]
pub(super) struct Proxy {
    pub(super) addr: SocketAddr,
    state: Arc<State>,
}

struct State {
    upstream: SocketAddr,
    http: reqwest::Client,
    armed: Mutex<VecDeque<Armed>>,
    /// True while every request is refused.
    is_down: AtomicBool,
    /// Notified when a message has passed.
    passed: Notify,
}

struct Armed {
    of: Message,
    effect: Effect,
    told: oneshot::Sender<()>,
}

struct Sent {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Proxy {
    /// Listens on a port of its own for what is meant for `upstream`.
    pub(super) async fn start(upstream: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let addr = listener.local_addr()?;
        // Without idle connections: a kept one that the server closed would be tried again behind our back.
        let http = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).timeout(MAX_ANSWER).build()?;
        let state = Arc::new(State {
            upstream,
            http,
            armed: Mutex::new(VecDeque::new()),
            is_down: AtomicBool::new(false),
            passed: Notify::new(),
        });
        let accepting = state.clone();
        tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { return };
                let state = accepting.clone();
                tokio::spawn(async move {
                    let service = service_fn(move |request| pass(state.clone(), request));
                    // A connection that breaks is what a proxy is for.
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Ok(Self { addr, state })
    }

    /// Does this to the next message of that kind; resolves once it is done.
    pub(super) fn arm(&self, of: Message, effect: Effect) -> oneshot::Receiver<()> {
        let (told, hears) = oneshot::channel();
        self.state.armed().push_back(Armed { of, effect, told });
        hears
    }

    /// Refuses every request from now on, or none.
    pub(super) fn set_down(&self, is_down: bool) {
        self.state.is_down.store(is_down, Ordering::SeqCst);
    }

    /// Nothing happens to messages any more.
    pub(super) fn heal(&self) {
        self.state.armed().clear();
        self.set_down(false);
    }
}

impl State {
    fn armed(&self) -> std::sync::MutexGuard<'_, VecDeque<Armed>> {
        self.armed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn effect_on(&self, path: &str) -> Option<Effect> {
        let fits = |of: Message| match of {
            Message::Claim => path.ends_with("/claim"),
            Message::Report => path.ends_with("/report"),
            Message::Heartbeat => path.ends_with("/heartbeat"),
            Message::Any => true,
        };
        let mut armed = self.armed();
        let at = armed.iter().position(|armed| fits(armed.of))?;
        let armed = armed.remove(at)?;
        // The receiver is gone when the storm is over.
        let _ = armed.told.send(());
        Some(armed.effect)
    }

    async fn forward(&self, sent: &Sent) -> Result<Answer, Broken> {
        let request = self.request(sent).body(sent.body.clone());
        let response = request.send().await.map_err(|_| Broken)?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.bytes().await.map_err(|_| Broken)?;
        self.passed.notify_waiters();
        Ok(Answer { status, headers, body })
    }

    fn request(&self, sent: &Sent) -> reqwest::RequestBuilder {
        let path = sent.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut headers = sent.headers.clone();
        // The host stays: a signature of S3 covers it.
        for name in [header::CONTENT_LENGTH, header::CONNECTION, header::TRANSFER_ENCODING] {
            headers.remove(name);
        }
        self.http.request(sent.method.clone(), format!("http://{}{path}", self.upstream)).headers(headers)
    }

    /// Half of the message arrives.
    async fn cut(&self, sent: &Sent) {
        let half = sent.body.slice(..sent.body.len() / 2);
        let parts = futures::stream::iter([Ok(half), Err(Broken)]);
        let request =
            self.request(sent).header(header::CONTENT_LENGTH, sent.body.len()).body(reqwest::Body::wrap_stream(parts));
        // It fails: that is its purpose.
        let _ = request.send().await;
    }
}

async fn pass(state: Arc<State>, request: Request<Incoming>) -> Result<Response<Body>, Broken> {
    let (parts, body) = request.into_parts();
    let body = to_bytes(Body::new(body), MAX_BYTES).await.map_err(|_| Broken)?;
    let effect = if state.is_down.load(Ordering::SeqCst) {
        Some(Effect::Refuse { status: 503 })
    } else {
        state.effect_on(parts.uri.path())
    };
    let sent = Sent { method: parts.method, uri: parts.uri, headers: parts.headers, body };
    match effect {
        None => Ok(whole(state.forward(&sent).await?)),
        Some(Effect::DropRequest) => Err(Broken),
        Some(Effect::DropAnswer) => {
            // It goes on even if the sender gives up.
            let forwarding = tokio::spawn(async move { state.forward(&sent).await.map(drop) });
            let _ = forwarding.await;
            Err(Broken)
        }
        Some(Effect::DelayRequest { delay_ms }) => {
            // A message that is on its way arrives, also when its sender is gone.
            let forwarding = tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(delay_ms)).await;
                state.forward(&sent).await
            });
            Ok(whole(forwarding.await.map_err(|_| Broken)??))
        }
        Some(Effect::DelayAnswer { delay_ms }) => {
            let answer = state.forward(&sent).await?;
            tokio::time::sleep(Duration::from_millis(delay_ms)).await;
            Ok(whole(answer))
        }
        Some(Effect::Duplicate { answer_of_second }) => {
            let both = tokio::spawn(async move { tokio::join!(state.forward(&sent), state.forward(&sent)) });
            let (first, second) = both.await.map_err(|_| Broken)?;
            Ok(whole(if answer_of_second { second? } else { first? }))
        }
        Some(Effect::Reorder) => {
            let forwarding = tokio::spawn(async move {
                let _ = tokio::time::timeout(MAX_HOLD, state.passed.notified()).await;
                state.forward(&sent).await
            });
            Ok(whole(forwarding.await.map_err(|_| Broken)??))
        }
        Some(Effect::CutRequest) => {
            state.cut(&sent).await;
            Err(Broken)
        }
        Some(Effect::CutAnswer) => Ok(half(state.forward(&sent).await?)),
        Some(Effect::Refuse { status }) => {
            let status = StatusCode::from_u16(status).map_err(|_| Broken)?;
            Ok(whole(Answer { status, headers: HeaderMap::new(), body: Bytes::new() }))
        }
        Some(Effect::ShortenAnswer) => {
            let mut answer = state.forward(&sent).await?;
            answer.body.truncate(answer.body.len() / 2);
            answer.headers.remove(header::CONTENT_LENGTH);
            Ok(whole(answer))
        }
    }
}

fn whole(answer: Answer) -> Response<Body> {
    let mut response = Response::new(Body::from(answer.body));
    *response.status_mut() = answer.status;
    *response.headers_mut() = answer.headers;
    response.headers_mut().remove(header::CONNECTION);
    response.headers_mut().remove(header::TRANSFER_ENCODING);
    response
}

fn half(answer: Answer) -> Response<Body> {
    let length = answer.body.len();
    let parts = futures::stream::iter([Ok(answer.body.slice(..length / 2)), Err(Broken)]);
    let mut response = whole(Answer { body: Bytes::new(), ..answer });
    response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
    *response.body_mut() = Body::from_stream(parts);
    response
}
