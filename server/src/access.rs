//! Who may do what: tokens, the `Host` header, and the headers that keep pages harmless.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use secrecy::{ExposeSecret, SecretString};

use crate::app::App;
use crate::error::ApiFailure;

/// The hashes of the tokens. Comparing hashes takes the same time for every wrong token.
pub(crate) struct Keys {
    operator: blake3::Hash,
    worker: blake3::Hash,
}

/// Who calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    /// A person or a program with the operator's token.
    Operator,
    /// A machine with the workers' token.
    Worker,
    /// Nobody in particular.
    Anyone,
}

impl Keys {
    pub(crate) fn new(operator: &SecretString, worker: &SecretString) -> Self {
        Self {
            operator: blake3::hash(operator.expose_secret().as_bytes()),
            worker: blake3::hash(worker.expose_secret().as_bytes()),
        }
    }

    /// Who shows this header. A token that is not known is an error, also where none is needed.
    fn caller(&self, method: &Method, headers: &HeaderMap) -> Result<Caller, ApiFailure> {
        let Some(value) = headers.get(AUTHORIZATION) else { return Ok(Caller::Anyone) };
        let wrong = || ApiFailure::unauthorized("auth.wrong_token", "the token is not known to this server");
        let (scheme, rest) = value.to_str().ok().and_then(|text| text.split_once(' ')).ok_or_else(wrong)?;
        if scheme.eq_ignore_ascii_case("bearer") {
            let shown = blake3::hash(rest.trim().as_bytes());
            // blake3::Hash compares in constant time; both comparisons are made for every token.
            match (shown == self.operator, shown == self.worker) {
                (true, _) => Ok(Caller::Operator),
                (false, true) => Ok(Caller::Worker),
                (false, false) => Err(wrong()),
            }
        } else if scheme.eq_ignore_ascii_case("basic") && (method == Method::GET || method == Method::HEAD) {
            // Browsers send Basic credentials by themselves, also for a form on a foreign page: good for reading only.
            let decoded = BASE64_STANDARD.decode(rest.trim()).map_err(|_| wrong())?;
            let password = decoded.splitn(2, |byte| *byte == b':').nth(1).ok_or_else(wrong)?;
            if blake3::hash(password) == self.operator { Ok(Caller::Operator) } else { Err(wrong()) }
        } else {
            Err(wrong())
        }
    }
}

fn caller(app: &App, request: &Request) -> Result<Caller, ApiFailure> {
    app.keys.caller(request.method(), request.headers())
}

fn required(what: &str) -> ApiFailure {
    ApiFailure::unauthorized(
        "auth.required",
        format!("{what} needs a token: send the header `authorization: Bearer TOKEN`"),
    )
}

/// Lets through who may read.
pub(crate) async fn reads(State(app): State<Arc<App>>, request: Request, next: Next) -> Result<Response, ApiFailure> {
    match caller(&app, &request)? {
        Caller::Operator => {}
        _ if !app.config.reads_need_token => {}
        Caller::Worker => return Err(only_operator()),
        Caller::Anyone => return Err(required("reading from this server")),
    }
    Ok(next.run(request).await)
}

/// Lets through who may start and control campaigns.
pub(crate) async fn operates(
    State(app): State<Arc<App>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiFailure> {
    match caller(&app, &request)? {
        Caller::Operator => Ok(next.run(request).await),
        Caller::Worker => Err(only_operator()),
        Caller::Anyone => Err(required("this call")),
    }
}

/// Lets through workers, and the operator.
pub(crate) async fn works(State(app): State<Arc<App>>, request: Request, next: Next) -> Result<Response, ApiFailure> {
    match caller(&app, &request)? {
        Caller::Operator | Caller::Worker => Ok(next.run(request).await),
        Caller::Anyone => Err(required("this call")),
    }
}

/// Lets through who may read artifacts.
pub(crate) async fn reads_artifacts(
    State(app): State<Arc<App>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiFailure> {
    match caller(&app, &request)? {
        Caller::Operator | Caller::Worker => {}
        Caller::Anyone if !app.config.reads_need_token => {}
        Caller::Anyone => return Err(required("reading from this server")),
    }
    Ok(next.run(request).await)
}

fn only_operator() -> ApiFailure {
    ApiFailure::forbidden("auth.forbidden", "the workers' token does not allow this call: use the operator's token")
}

/// Refuses a foreign `Host` on a loopback address: a page of another site whose name was made to point here (DNS
/// rebinding) could otherwise read everything with the visitor's own browser.
pub(crate) async fn known_host(
    State(bind): State<SocketAddr>,
    request: Request,
    next: Next,
) -> Result<Response, ApiFailure> {
    if bind.ip().is_loopback() {
        let named = request.headers().get(HOST).and_then(|value| value.to_str().ok());
        let named = named.or_else(|| request.uri().authority().map(Authority::as_str)).unwrap_or_default();
        if !is_loopback_name(named) {
            return Err(ApiFailure::forbidden(
                "request.host_not_allowed",
                "this server answers only to the names localhost, 127.0.0.1 and [::1]",
            ));
        }
    }
    Ok(next.run(request).await)
}

fn is_loopback_name(named: &str) -> bool {
    let Ok(authority) = named.parse::<Authority>() else { return false };
    if authority.as_str().contains('@') {
        return false;
    }
    let host = authority.host();
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    host.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

const CSP: HeaderValue = HeaderValue::from_static(
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'",
);

/// Adds the headers that keep every answer harmless in a browser. A handler may be stricter, never looser by accident.
pub(crate) async fn safe_headers(request: Request, next: Next) -> Response {
    let is_api = request.uri().path().starts_with(crate::api::PREFIX);
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    let mut set = |name: HeaderName, value: HeaderValue| {
        headers.entry(name).or_insert(value);
    };
    set(CONTENT_SECURITY_POLICY, CSP);
    set(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    set(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    set(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    if is_api {
        set(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

/// The answer to an address that the API does not have.
pub(crate) async fn no_such_call(request: Request) -> Response {
    ApiFailure::not_found(
        "request.no_such_call",
        format!("the API has no call {} {}", request.method(), request.uri().path()),
    )
    .into_response()
}

/// The answer to a method that an address does not have.
pub(crate) async fn wrong_method(request: Request) -> Response {
    ApiFailure::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "request.method_not_allowed",
        format!("{} does not take the method {}", request.uri().path(), request.method()),
    )
    .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Keys {
        Keys::new(&SecretString::from("operator-secret"), &SecretString::from("worker-secret"))
    }

    fn shown(method: &Method, value: &str) -> Option<Caller> {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::from_str(value).unwrap_or_else(|_| HeaderValue::from_static("")));
        keys().caller(method, &headers).ok()
    }

    #[test]
    fn each_token_names_its_caller() {
        assert_eq!(shown(&Method::POST, "Bearer operator-secret"), Some(Caller::Operator));
        assert_eq!(shown(&Method::POST, "bearer worker-secret"), Some(Caller::Worker));
        assert_eq!(shown(&Method::POST, "Bearer operator-secre"), None);
        assert_eq!(shown(&Method::POST, "Bearer "), None);
        assert_eq!(shown(&Method::POST, "operator-secret"), None);
    }

    #[test]
    fn what_a_browser_sends_by_itself_is_good_for_reading_only() {
        let basic = format!("Basic {}", BASE64_STANDARD.encode("anyone:operator-secret"));
        assert_eq!(shown(&Method::GET, &basic), Some(Caller::Operator));
        assert_eq!(shown(&Method::POST, &basic), None);
        let worker = format!("Basic {}", BASE64_STANDARD.encode("anyone:worker-secret"));
        assert_eq!(shown(&Method::GET, &worker), None);
    }

    #[test]
    fn only_names_of_this_machine_are_loopback() {
        for name in ["localhost", "LOCALHOST:7777", "127.0.0.1", "127.0.0.1:80", "[::1]:7777", "[::1]"] {
            assert!(is_loopback_name(name), "{name}");
        }
        for name in ["", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "a@localhost", "10.0.0.1"]
        {
            assert!(!is_loopback_name(name), "{name}");
        }
    }
}
