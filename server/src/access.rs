//! Who may do what: roles, the `Host` header, and the headers that keep pages harmless.

mod keys;
mod links;
mod rate;
pub(crate) mod sessions;
mod standing;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::uri::Authority;
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use nightshift_protocol::access::Role;
use nightshift_protocol::api::Target;
use nightshift_protocol::time::TimestampMs;

pub(crate) use keys::{Keys, new_request_lease, new_secret, new_webhook_secret, secret_hash};
pub(crate) use links::new_share_secret;
pub(crate) use rate::{Peer, RateLimits, limited_sign_ins};
pub use rate::{Rate, Rates};
pub(crate) use sessions::Visitor;
pub(crate) use standing::Standing;

use crate::actor::Actor;
use crate::api::PREFIX;
use crate::app::App;
use crate::error::ApiFailure;

/// Who calls, by the token that was shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The token's name.
    pub(crate) name: String,
    /// What it allows.
    pub(crate) role: Role,
    /// All that may be read with it; everything without it.
    pub(crate) limited_to: Option<Target>,
    /// Whether a browser sent it by itself, as the cookie of a session.
    pub(crate) by_cookie: bool,
    /// Whether it is the worker in this server's process.
    pub(crate) embedded: bool,
    /// When it ends by itself.
    pub(crate) ends_at: Option<TimestampMs>,
}

impl Caller {
    fn new(name: &str, role: Role) -> Self {
        Self { name: name.to_owned(), role, limited_to: None, by_cookie: false, embedded: false, ends_at: None }
    }
}

/// Lets through who may read.
pub(crate) async fn reads(State(app): State<Arc<App>>, request: Request, next: Next) -> Result<Response, ApiFailure> {
    admit(&app, request, next, &[Role::Viewer], !app.config.reads_need_token).await
}

/// Lets through who may read and is somebody, also where reading needs no token: what is kept is kept for them.
pub(crate) async fn reads_by_name(
    State(app): State<Arc<App>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiFailure> {
    admit(&app, request, next, &[Role::Viewer], false).await
}

/// Lets through who may read artifacts: workers need them too.
pub(crate) async fn reads_artifacts(
    State(app): State<Arc<App>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiFailure> {
    admit(&app, request, next, &[Role::Viewer, Role::Worker], !app.config.reads_need_token).await
}

/// Lets through who may store artifacts: what campaigns begin with, and what workers make.
pub(crate) async fn writes_artifacts(
    State(app): State<Arc<App>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiFailure> {
    admit(&app, request, next, &[Role::Operator, Role::Worker], false).await
}

/// Lets through who may start and control campaigns.
pub(crate) async fn operates(
    State(app): State<Arc<App>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiFailure> {
    admit(&app, request, next, &[Role::Operator], false).await
}

/// Lets through workers.
pub(crate) async fn works(State(app): State<Arc<App>>, request: Request, next: Next) -> Result<Response, ApiFailure> {
    admit(&app, request, next, &[Role::Worker], false).await
}

/// Lets through who may do everything.
pub(crate) async fn administers(
    State(app): State<Arc<App>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiFailure> {
    admit(&app, request, next, &[Role::Admin], false).await
}

/// Lets through who has one of these roles, or everybody when the call is open. A token that is not good is refused
/// also where none is needed.
async fn admit(
    app: &App,
    mut request: Request,
    next: Next,
    needed: &[Role],
    open: bool,
) -> Result<Response, ApiFailure> {
    let shown = app.keys.caller(app, request.method(), request.headers().get(AUTHORIZATION)).await?;
    let visitor = match shown {
        // A token that is shown counts, whatever the browser sends along.
        Some(caller) => Visitor::Known(caller),
        None => app.keys.visitor(app, request.headers()).await?,
    };
    let caller = match visitor {
        Visitor::Known(caller) => Some(caller),
        Visitor::Gone if !open => return Err(sessions::ended()),
        Visitor::Nobody | Visitor::Gone => None,
    };
    app.rate_limits.count_call(request.extensions().get::<Peer>().copied(), caller.as_ref())?;
    if caller.as_ref().is_some_and(|caller| caller.by_cookie) {
        sessions::is_from_here(request.method(), request.headers())?;
    }
    match caller {
        Some(caller) if open || needed.iter().any(|role| caller.role.includes(*role)) => {
            if let Some(target) = &caller.limited_to {
                links::examine(app, target, request.method(), route(&request), request.uri()).await?;
            }
            request.extensions_mut().insert(Actor(caller.name.clone()));
            request.extensions_mut().insert(caller);
        }
        Some(caller) => return Err(role_needed(needed, caller.role)),
        None if open => {}
        None => return Err(token_required(needed)),
    }
    Ok(next.run(request).await)
}

/// The route, with its whole path.
fn route(request: &Request) -> &str {
    request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str)
}

fn role_needed(needed: &[Role], has: Role) -> ApiFailure {
    ApiFailure::forbidden(
        "access.role_needed",
        format!("this call needs a token with the role {}, and this one has the role {}", names(needed), has.as_str()),
    )
}

fn token_required(needed: &[Role]) -> ApiFailure {
    ApiFailure::unauthorized(
        "auth.required",
        format!(
            "this call needs a token with the role {}: send the header `authorization: Bearer TOKEN`",
            names(needed)
        ),
    )
}

fn names(roles: &[Role]) -> String {
    roles.iter().map(|role| role.as_str()).collect::<Vec<_>>().join(" or ")
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
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; connect-src 'self'; \
     img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'",
);

/// Adds the headers that keep every answer harmless in a browser. A handler may be stricter, never looser by accident.
pub(crate) async fn safe_headers(request: Request, next: Next) -> Response {
    let is_api = request.uri().path().starts_with(PREFIX);
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
    unknown_call(request.method(), &path_as_asked(&request)).into_response()
}

/// The answer to a method that an address does not have.
pub(crate) async fn wrong_method(request: Request) -> Response {
    unknown_method(request.method(), &path_as_asked(&request)).into_response()
}

pub(crate) fn unknown_call(method: &Method, path: &str) -> ApiFailure {
    ApiFailure::not_found("request.no_such_call", format!("the API has no call {method} {path}"))
}

pub(crate) fn unknown_method(method: &Method, path: &str) -> ApiFailure {
    ApiFailure::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "request.method_not_allowed",
        format!("{path} does not take the method {method}"),
    )
}

/// The path that was asked for: within the routes of the API, the request's own lacks their prefix.
fn path_as_asked(request: &Request) -> String {
    format!("{PREFIX}{}", request.uri().path())
}

#[cfg(test)]
mod tests {
    use super::*;

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
