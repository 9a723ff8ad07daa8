//! Sending a request and reading its answer, in one place for all calls.

use std::time::Duration;

use futures::TryStreamExt;
use nightshift_protocol::error::ApiErrorBody;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::ClientError;

/// Longest time that an ordinary call may take.
pub const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);
/// How much longer than its own waiting time a long-polling call may take.
pub const LONG_POLL_GRACE: Duration = Duration::from_secs(30);
/// Longest time until a connection stands.
#[cfg(not(target_arch = "wasm32"))]
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Most bytes of one answer.
pub const MAX_REPLY_BYTES: usize = 256 * 1024 * 1024;
/// Most characters of an answer that is not understood that its error repeats.
const MAX_QUOTED_CHARS: usize = 200;

/// A connection to a server. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    /// Ends with `/api/v1/`.
    base: Url,
    authorization: Option<HeaderValue>,
}

impl Client {
    /// A client of the server at this address, for example `http://127.0.0.1:7777`. Nothing is sent yet.
    pub fn new(base_url: &str, token: Option<SecretString>) -> Result<Self, ClientError> {
        let base = api_base(base_url)?;
        let authorization = token.map(|token| bearer(&token)).transpose()?;
        let http = http_client(&base).map_err(ClientError::Setup)?;
        Ok(Self { http, base, authorization })
    }

    /// The server's address, without the path of the API.
    #[must_use]
    pub fn address(&self) -> String {
        let address = self.base.as_str();
        address.strip_suffix("/api/v1/").unwrap_or(address).to_owned()
    }

    /// The address of an endpoint: path segments are escaped, absent query values are left out.
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
        let request = self.http.request(method, url).timeout(REQUEST_TIMEOUT);
        match &self.authorization {
            Some(value) => request.header(AUTHORIZATION, value.clone()),
            None => request,
        }
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

    pub(crate) async fn json<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, ClientError> {
        let (status, body) = self.send(request).await?;
        serde_json::from_slice(&body).map_err(|error| ClientError::NotUnderstood {
            address: self.address(),
            status: status.as_u16(),
            reason: error.to_string(),
        })
    }

    /// Sends, and reads the whole answer; an answer that is no success becomes an error.
    pub(crate) async fn send(&self, request: RequestBuilder) -> Result<(StatusCode, Vec<u8>), ClientError> {
        let response = request.send().await.map_err(|error| self.failed(error))?;
        let status = response.status();
        let body = self.body(response).await?;
        if status.is_success() {
            return Ok((status, body));
        }
        match serde_json::from_slice::<ApiErrorBody>(&body) {
            Ok(answer) => Err(ClientError::Api { status: status.as_u16(), error: answer.error }),
            Err(_) => Err(ClientError::NotUnderstood {
                address: self.address(),
                status: status.as_u16(),
                reason: quote(&body),
            }),
        }
    }

    async fn body(&self, response: Response) -> Result<Vec<u8>, ClientError> {
        let mut stream = response.bytes_stream();
        let mut body = Vec::new();
        while let Some(chunk) = stream.try_next().await.map_err(|error| self.failed(error))? {
            if body.len() + chunk.len() > MAX_REPLY_BYTES {
                return Err(ClientError::TooLarge { address: self.address(), limit_bytes: MAX_REPLY_BYTES });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    fn failed(&self, error: reqwest::Error) -> ClientError {
        // The address of the call itself stays out of the message: it is long, and the base is what a person can mend.
        let source = error.without_url();
        if source.is_timeout() {
            ClientError::TimedOut { address: self.address(), source }
        } else {
            ClientError::Unreachable { address: self.address(), reason: innermost(&source), source }
        }
    }
}

/// The innermost cause: the others only repeat that a request failed.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

fn quote(body: &[u8]) -> String {
    // In one line: what is quoted is often a page for browsers.
    let text = String::from_utf8_lossy(body).split_whitespace().collect::<Vec<_>>().join(" ");
    if text.is_empty() { "an empty answer".to_owned() } else { text.chars().take(MAX_QUOTED_CHARS).collect() }
}

fn api_base(address: &str) -> Result<Url, ClientError> {
    let invalid = |reason: &str| ClientError::InvalidAddress { address: address.to_owned(), reason: reason.to_owned() };
    let url = Url::parse(address).map_err(|error| invalid(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(invalid("it begins with neither http:// nor https://"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(invalid("it carries a query or a fragment"));
    }
    let mut url = url;
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().extend(["api", "v1", ""]);
    }
    Ok(url)
}

fn bearer(token: &SecretString) -> Result<HeaderValue, ClientError> {
    let mut value =
        HeaderValue::from_str(&format!("Bearer {}", token.expose_secret())).map_err(|_| ClientError::InvalidToken)?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(not(target_arch = "wasm32"))]
fn http_client(base: &Url) -> Result<reqwest::Client, reqwest::Error> {
    let builder = reqwest::Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        // A redirect would carry the token to another host.
        .redirect(reqwest::redirect::Policy::none());
    // A proxy of the environment cannot reach this machine's own loopback.
    if is_loopback(base) { builder.no_proxy().build() } else { builder.build() }
}

#[cfg(target_arch = "wasm32")]
fn http_client(_base: &Url) -> Result<reqwest::Client, reqwest::Error> {
    reqwest::Client::builder().build()
}

#[cfg(not(target_arch = "wasm32"))]
fn is_loopback(url: &Url) -> bool {
    url.host_str().is_some_and(|host| {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn the_address_may_end_with_a_slash_or_carry_a_path() {
        for (given, expected) in [
            ("http://127.0.0.1:7777", "http://127.0.0.1:7777/api/v1/"),
            ("http://127.0.0.1:7777/", "http://127.0.0.1:7777/api/v1/"),
            ("https://host/nightshift", "https://host/nightshift/api/v1/"),
        ] {
            assert_eq!(api_base(given).unwrap().as_str(), expected);
        }
    }

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
