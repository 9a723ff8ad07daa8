//! Access control: roles, the `Host` header, and security headers of answers.

mod keys;
mod links;
pub(crate) mod sessions;
mod sign_in_rate;
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
use secrecy::SecretString;

pub(crate) use links::new_share_secret;
pub(crate) use sessions::Visitor;
pub(crate) use sign_in_rate::limited_sign_ins;
pub(crate) use standing::Standing;

use crate::actor::Actor;
use crate::address::PREFIX;
use crate::error::ApiFailure;
use crate::keys::{Cache, Cached, Keys};
use crate::rate_limits::{Peer, RateLimits};
use crate::secret::new_secret;
use crate::shared::Shared;

/// The state of access control.
pub(crate) struct Access {
    shared: Arc<Shared>,
    pub(crate) keys: Keys,
    rate_limits: RateLimits,
    /// The token of the worker in this process.
    pub(crate) embedded_token: SecretString,
}

impl Access {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let config = &shared.config;
        let embedded_token = SecretString::from(new_secret(&*shared.random));
        Self {
            keys: Keys::new(&config.token, &config.worker_token, &embedded_token),
            rate_limits: RateLimits::new(config.rates),
            embedded_token,
            shared,
        }
    }

    /// Returns the cached look-up of a secret, or none if it must be looked up in the store.
    ///
    /// The look-up counts against the limit of the address `peer`, unless the secret was found before: guesses from an
    /// address lock out no caller at the same address.
    fn cached<T: Clone>(
        &self,
        cache: &Cache<T>,
        hash: &blake3::Hash,
        peer: Option<Peer>,
    ) -> Result<Option<Cached<T>>, ApiFailure> {
        match cache.get(hash) {
            Some(cached) if cached.is_believed() => return Ok(Some(cached)),
            Some(cached) if cached.found.is_some() => {}
            _ => self.rate_limits.count_look_up(peer)?,
        }
        Ok(None)
    }

    /// Admits callers with one of these roles, or every caller if the call is open. An invalid token is refused even where
    /// none is needed.
    async fn admit(
        &self,
        mut request: Request,
        next: Next,
        needed: &[Role],
        open: bool,
    ) -> Result<Response, ApiFailure> {
        let peer = request.extensions().get::<Peer>().copied();
        let shown = self.caller(request.method(), request.headers().get(AUTHORIZATION), peer).await?;
        let visitor = match shown {
            // A token takes precedence over the cookie that the browser sends.
            Some(caller) => Visitor::Known(caller),
            None => self.visitor(request.headers(), peer).await?,
        };
        let caller = match visitor {
            Visitor::Known(caller) => Some(caller),
            Visitor::Ended if !open => return Err(sessions::ended()),
            Visitor::Anonymous | Visitor::Ended => None,
        };
        self.rate_limits.count_call(peer, caller.as_ref())?;
        if caller.as_ref().is_some_and(|caller| caller.by_cookie) {
            sessions::is_from_here(request.method(), request.headers())?;
        }
        match caller {
            Some(caller) if open || needed.iter().any(|role| caller.role.includes(*role)) => {
                if let Some(target) = &caller.limited_to {
                    links::examine(&self.shared.store, target, request.method(), route(&request), request.uri())
                        .await?;
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
}

/// Admits readers.
pub(crate) async fn reads(
    State(access): State<Arc<Access>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiFailure> {
    access.admit(request, next, &[Role::Viewer], !access.shared.config.reads_need_token).await
}

/// Admits readers with a name, even where reading needs no token, because the call stores data under the caller's name.
pub(crate) async fn reads_by_name(
    State(access): State<Arc<Access>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiFailure> {
    access.admit(request, next, &[Role::Viewer], false).await
}

/// Admits readers and workers, who both read artifacts.
pub(crate) async fn reads_artifacts(
    State(access): State<Arc<Access>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiFailure> {
    access.admit(request, next, &[Role::Viewer, Role::Worker], !access.shared.config.reads_need_token).await
}

/// Admits callers that store artifacts: inputs of campaigns, and outputs of workers.
pub(crate) async fn writes_artifacts(
    State(access): State<Arc<Access>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiFailure> {
    access.admit(request, next, &[Role::Operator, Role::Worker], false).await
}

/// Admits callers that start and control campaigns.
pub(crate) async fn operates(
    State(access): State<Arc<Access>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiFailure> {
    access.admit(request, next, &[Role::Operator], false).await
}

/// Admits workers.
pub(crate) async fn works(
    State(access): State<Arc<Access>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiFailure> {
    access.admit(request, next, &[Role::Worker], false).await
}

/// Admits administrators.
pub(crate) async fn administers(
    State(access): State<Arc<Access>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiFailure> {
    access.admit(request, next, &[Role::Admin], false).await
}

/// Returns the route with its whole path.
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

/// Refuses a foreign `Host` on a loopback address.
///
/// Otherwise a page of another site whose name resolves to this address (DNS rebinding) could read everything through
/// the visitor's browser.
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

/// Adds the headers that make every answer harmless in a browser. A handler may set stricter ones.
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

/// Answers a path that the API does not have.
pub(crate) async fn no_such_call(request: Request) -> Response {
    unknown_call(request.method(), &path_as_asked(&request)).into_response()
}

/// Answers a method that a path does not have.
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

/// Returns the requested path. Within the API's router, the request's own path lacks the prefix.
fn path_as_asked(request: &Request) -> String {
    let path = request.uri().path();
    if path.starts_with(PREFIX) { path.to_owned() } else { format!("{PREFIX}{path}") }
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
