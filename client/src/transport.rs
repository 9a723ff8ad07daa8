//! Sends requests and reads their answers, for all calls.

use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use nightshift_protocol::api::IDEMPOTENCY_HEADER;
use nightshift_protocol::error::ApiErrorBody;
use reqwest::header::{AUTHORIZATION, COOKIE, HOST, HeaderMap, HeaderValue};
use reqwest::{Method, Request, RequestBuilder, Response, StatusCode, Url};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::addresses::Addresses;
use crate::error::ClientError;

/// Timeout of an ordinary call.
pub const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);
/// Timeout of a long poll in addition to its waiting time.
pub const LONG_POLL_GRACE: Duration = Duration::from_secs(30);
/// Pause after a long poll that was answered early and empty.
#[cfg(not(target_arch = "wasm32"))]
const EARLY_ANSWER_PAUSE: Duration = Duration::from_secs(1);
/// Timeout of a connection attempt.
#[cfg(not(target_arch = "wasm32"))]
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Idle time before a keepalive probe, and the number of probes. A machine that lost its power does not close its
/// connections.
#[cfg(not(target_arch = "wasm32"))]
const KEEPALIVE: (Duration, u32) = (Duration::from_secs(5), 3);
/// Header with the trace context of a request.
const TRACE_HEADER: &str = "traceparent";
/// Maximum size of an answer, in bytes.
pub const MAX_REPLY_BYTES: usize = 256 * 1024 * 1024;
/// Maximum size of an error answer, in bytes.
const MAX_ERROR_BYTES: usize = 1024 * 1024;
/// Maximum length of the quotation of an unknown answer in an error, in characters.
const MAX_QUOTED_CHARS: usize = 200;

/// A connection to a server or to its replicas. Cheap to clone; clones share the current replica and the token.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    addresses: Arc<Addresses>,
    /// Ends with `/api/v1/`. Requests are built for it and sent to the current replica.
    base: Url,
    authorization: Arc<RwLock<Option<HeaderValue>>>,
    trace: Option<HeaderValue>,
    /// Cookie and host header of the original caller, on whose behalf it calls. The name of a cookie depends on the
    /// host.
    cookie: Option<HeaderValue>,
    host: Option<HeaderValue>,
}

impl Client {
    /// Creates a client of the server at this address, for example `http://127.0.0.1:7777`, or of replicas with
    /// addresses separated by commas. Sends nothing.
    pub fn new(base_url: &str, token: Option<SecretString>) -> Result<Self, ClientError> {
        let addresses = Addresses::parse(base_url)?;
        let authorization = Arc::new(RwLock::new(token.map(|token| bearer(&token)).transpose()?));
        let http = http_client(&addresses).map_err(ClientError::Setup)?;
        let base = addresses.base(0).cloned().ok_or_else(|| ClientError::InvalidAddress {
            address: base_url.to_owned(),
            reason: "it is empty".to_owned(),
        })?;
        Ok(Self { http, addresses: Arc::new(addresses), base, authorization, trace: None, cookie: None, host: None })
    }

    /// Returns the address of the current server or replica, without the path of the API.
    #[must_use]
    pub fn address(&self) -> String {
        self.addresses.address(self.addresses.current()).to_owned()
    }

    /// Replaces the token of this client and of its clones, for a server that was started again with another one.
    pub fn replace_token(&self, token: &SecretString) -> Result<(), ClientError> {
        *self.authorization.write().unwrap_or_else(PoisonError::into_inner) = Some(bearer(token)?);
        Ok(())
    }

    /// Returns the same client with a trace context for its calls (W3C `traceparent`).
    #[must_use]
    pub fn in_trace(&self, traceparent: Option<&str>) -> Self {
        let trace = traceparent.and_then(|text| HeaderValue::from_str(text).ok());
        Self { trace, ..self.clone() }
    }

    /// Returns the same client with the permissions of another caller: with that caller's `Authorization`, `Cookie` and
    /// `Host` headers, and without its own token.
    #[must_use]
    pub fn on_behalf_of(
        &self,
        authorization: Option<HeaderValue>,
        cookie: Option<HeaderValue>,
        host: Option<HeaderValue>,
    ) -> Self {
        Self { authorization: Arc::new(RwLock::new(authorization)), cookie, host, ..self.clone() }
    }

    /// Returns the address of an endpoint. Path segments are escaped, and missing query values are omitted.
    pub(crate) fn url(&self, segments: &[&str], query: &[(&str, Option<String>)]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        if query.iter().any(|(_, value)| value.is_some()) {
            let mut pairs = url.query_pairs_mut();
            for (name, value) in query {
                if let Some(value) = value {
                    pairs.append_pair(name, value);
                }
            }
        }
        url
    }

    pub(crate) fn request(&self, method: Method, url: Url) -> RequestBuilder {
        let mut request = self.http.request(method, url).timeout(REQUEST_TIMEOUT);
        let authorization = self.authorization.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(value) = authorization {
            request = request.header(AUTHORIZATION, value);
        }
        if let Some(value) = &self.cookie {
            request = request.header(COOKIE, value.clone());
        }
        if let Some(value) = &self.host {
            request = request.header(HOST, value.clone());
        }
        if let Some(value) = &self.trace {
            request = request.header(TRACE_HEADER, value.clone());
        }
        request
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, url: Url) -> Result<T, ClientError> {
        self.json(self.request(Method::GET, url)).await
    }

    pub(crate) async fn post<B: Serialize + Sync, T: DeserializeOwned>(
        &self,
        url: Url,
        body: &B,
    ) -> Result<T, ClientError> {
        self.json(self.request(Method::POST, url).json(body)).await
    }

    /// Posts a creating request with this idempotency key.
    pub(crate) async fn create<B: Serialize + Sync, T: DeserializeOwned>(
        &self,
        url: Url,
        body: &B,
        idempotency_key: &str,
    ) -> Result<T, ClientError> {
        self.json(self.request(Method::POST, url).header(IDEMPOTENCY_HEADER, idempotency_key).json(body)).await
    }

    /// Posts a request whose answer has no body.
    pub(crate) async fn tell<B: Serialize + Sync>(&self, url: Url, body: &B) -> Result<(), ClientError> {
        self.send(self.request(Method::POST, url).json(body)).await?;
        Ok(())
    }

    pub(crate) async fn json<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, ClientError> {
        let (status, body) = self.send(request).await?;
        serde_json::from_slice(&body).map_err(|error| ClientError::NotUnderstood {
            address: self.address(),
            status: status.as_u16(),
            reason: error.to_string(),
        })
    }

    /// Sends a request and reads the whole answer. An answer without success becomes an error.
    pub(crate) async fn send(&self, request: RequestBuilder) -> Result<(StatusCode, Vec<u8>), ClientError> {
        let (status, _, body) = self.send_with_headers(request).await?;
        Ok((status, body))
    }

    /// Like [`Self::send`], with the headers of the answer.
    pub(crate) async fn send_with_headers(
        &self,
        request: RequestBuilder,
    ) -> Result<(StatusCode, HeaderMap, Vec<u8>), ClientError> {
        let mut answer = self.open(request).await?;
        let (status, headers) = (answer.status, std::mem::take(&mut answer.headers));
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await? {
            if body.len() + chunk.len() > MAX_REPLY_BYTES {
                return Err(ClientError::TooLarge { address: self.address(), limit_bytes: MAX_REPLY_BYTES });
            }
            body.extend_from_slice(&chunk);
        }
        Ok((status, headers, body))
    }

    /// Sends a request, and returns the answer before its body. An answer without success becomes an error.
    ///
    /// If a replica is unreachable or not ready, the next one is tried, each at most once. If the connection breaks
    /// later, or the replica does not know whether it carried the call out, only a reading call or one with an
    /// idempotency key is repeated. The caller decides about repeating all others.
    pub(crate) async fn open(&self, request: RequestBuilder) -> Result<Answer, ClientError> {
        let mut request = request.build().map_err(|error| self.failed(self.addresses.current(), error))?;
        let mut left = self.addresses.len();
        loop {
            left -= 1;
            let again = if left > 0 { request.try_clone() } else { None };
            let number = self.addresses.current();
            let is_repeatable = matches!(*request.method(), Method::GET | Method::HEAD)
                || request.headers().contains_key(IDEMPOTENCY_HEADER);
            let error = match self.http.execute(self.addressed(request, number)).await {
                Ok(response) if response.status().is_success() => {
                    return Ok(Answer::new(self.clone(), number, response));
                }
                Ok(response) => {
                    let is_unready = response.status() == StatusCode::SERVICE_UNAVAILABLE;
                    let error = self.refused(number, response).await;
                    if !is_unready {
                        return Err(error);
                    }
                    self.addresses.move_on_from(number);
                    if !(is_repeatable || was_refused_at_once(&error)) {
                        return Err(error);
                    }
                    error
                }
                Err(error) => {
                    self.addresses.move_on_from(number);
                    let may_repeat = is_repeatable || never_arrived(&error);
                    let error = self.failed(number, error);
                    if !may_repeat {
                        return Err(error);
                    }
                    error
                }
            };
            match again {
                Some(again) => request = again,
                None => return Err(error),
            }
        }
    }

    /// Returns the request for the replica of this index.
    fn addressed(&self, mut request: Request, number: usize) -> Request {
        if let Some(base) = self.addresses.base(number)
            && let Some(below) = request.url().as_str().strip_prefix(self.base.as_str())
            && let Ok(url) = Url::parse(&format!("{base}{below}"))
        {
            *request.url_mut() = url;
        }
        request
    }

    async fn refused(&self, number: usize, response: Response) -> ClientError {
        let status = response.status().as_u16();
        let mut answer = Answer::new(self.clone(), number, response);
        let mut body = Vec::new();
        loop {
            match answer.chunk().await {
                Ok(Some(chunk)) if body.len() + chunk.len() <= MAX_ERROR_BYTES => body.extend_from_slice(&chunk),
                Ok(_) => break,
                Err(error) => return error,
            }
        }
        match serde_json::from_slice::<ApiErrorBody>(&body) {
            Ok(answer) => ClientError::Api { status, error: answer.error },
            Err(_) => ClientError::NotUnderstood {
                address: self.addresses.address(number).to_owned(),
                status,
                reason: quote(&body),
            },
        }
    }

    fn failed(&self, number: usize, error: reqwest::Error) -> ClientError {
        // The message contains only the base address: the full one is long, and a person can correct only the base.
        let source = error.without_url();
        let address = self.addresses.address(number).to_owned();
        if source.is_timeout() {
            ClientError::TimedOut { address, source }
        } else {
            ClientError::Unreachable { address, reason: innermost(&source), source }
        }
    }
}

#[cfg(not(target_arch = "wasm32"))]
type Body = Pin<Box<dyn Stream<Item = reqwest::Result<Bytes>> + Send>>;
#[cfg(target_arch = "wasm32")]
type Body = Pin<Box<dyn Stream<Item = reqwest::Result<Bytes>>>>;

/// An answer whose body was not read yet.
pub(crate) struct Answer {
    client: Client,
    number: usize,
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    body: Body,
}

impl Answer {
    fn new(client: Client, number: usize, mut response: Response) -> Self {
        let (status, headers) = (response.status(), std::mem::take(response.headers_mut()));
        Self { client, number, status, headers, body: Box::pin(response.bytes_stream()) }
    }

    /// Returns the next bytes; none at the end.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, ClientError> {
        self.body.next().await.transpose().map_err(|error| {
            self.client.addresses.move_on_from(self.number);
            self.client.failed(self.number, error)
        })
    }
}

/// Makes a long poll that the server holds for up to `wait`.
///
/// A server that holds as many polls as it can answers further ones at once. A pause follows such an empty answer, so
/// that callers can repeat the poll immediately.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) async fn long_poll<T>(
    wait: Duration,
    is_empty: impl FnOnce(&T) -> bool,
    poll: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, ClientError> {
    let until = std::time::Instant::now() + wait;
    let answer = poll.await?;
    let left = until.saturating_duration_since(std::time::Instant::now());
    if !left.is_zero() && is_empty(&answer) {
        tokio::time::sleep(left.min(EARLY_ANSWER_PAUSE)).await;
    }
    Ok(answer)
}

/// A browser makes no long polls.
#[cfg(target_arch = "wasm32")]
pub(crate) async fn long_poll<T>(
    _wait: Duration,
    _is_empty: impl FnOnce(&T) -> bool,
    poll: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, ClientError> {
    poll.await
}

/// Returns whether a replica that is not ready refused the call before it began. After an error of its store or a
/// timeout, the call may have been carried out.
fn was_refused_at_once(error: &ClientError) -> bool {
    matches!(error, ClientError::Api { error, .. }
        if error.code.starts_with("server.") && error.code != "server.timed_out")
}

/// Returns whether no byte of the call can have reached a server.
#[cfg(not(target_arch = "wasm32"))]
fn never_arrived(error: &reqwest::Error) -> bool {
    error.is_connect()
}

/// A browser gives no such information.
#[cfg(target_arch = "wasm32")]
fn never_arrived(_error: &reqwest::Error) -> bool {
    false
}

/// Returns the innermost cause. The outer ones only repeat that a request failed.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

fn quote(body: &[u8]) -> String {
    // In one line, because the quoted text is often an HTML page.
    let text = String::from_utf8_lossy(body).split_whitespace().collect::<Vec<_>>().join(" ");
    if text.is_empty() { "an empty answer".to_owned() } else { text.chars().take(MAX_QUOTED_CHARS).collect() }
}

fn bearer(token: &SecretString) -> Result<HeaderValue, ClientError> {
    let mut value =
        HeaderValue::from_str(&format!("Bearer {}", token.expose_secret())).map_err(|_| ClientError::InvalidToken)?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(not(target_arch = "wasm32"))]
fn http_client(addresses: &Addresses) -> Result<reqwest::Client, reqwest::Error> {
    let builder = reqwest::Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_keepalive(KEEPALIVE.0)
        .tcp_keepalive_interval(KEEPALIVE.0)
        .tcp_keepalive_retries(KEEPALIVE.1)
        // A redirect would carry the token to another host.
        .redirect(reqwest::redirect::Policy::none());
    // A proxy from the environment cannot reach this machine's loopback.
    if addresses.are_loopback() { builder.no_proxy().build() } else { builder.build() }
}

#[cfg(target_arch = "wasm32")]
fn http_client(_addresses: &Addresses) -> Result<reqwest::Client, reqwest::Error> {
    reqwest::Client::builder().build()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_no_http_address_is_refused() {
        for address in ["", "127.0.0.1:7777", "ftp://host", "host", "http://host/?a=b"] {
            let error = Client::new(address, None).unwrap_err();
            assert_eq!(error.code(), "usage.invalid_address", "{address}");
        }
    }

    #[test]
    fn a_segment_cannot_leave_its_place_in_the_path() {
        let client = Client::new("http://127.0.0.1:1", None).unwrap();
        let url = client.url(&["ids", "../a/b?c"], &[("after", Some("1&2".to_owned())), ("before", None)]);
        assert_eq!(url.as_str(), "http://127.0.0.1:1/api/v1/ids/..%2Fa%2Fb%3Fc?after=1%262");
    }

    #[test]
    fn a_foreign_answer_is_quoted_in_one_short_line() {
        assert_eq!(quote(b"<html>\n  <p>not\there</p>\n"), "<html> <p>not here</p>");
        assert_eq!(quote(b" \n"), "an empty answer");
        assert_eq!(quote(&[b'x'; 1000]).len(), MAX_QUOTED_CHARS);
    }

    #[test]
    fn a_token_is_never_printed() {
        let client = Client::new("http://127.0.0.1:1", Some("verysecret".to_owned().into())).unwrap();
        assert!(!format!("{client:?}").contains("verysecret"));
    }
}
