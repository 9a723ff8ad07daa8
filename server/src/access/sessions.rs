//! Browser sessions: a cookie that scripts cannot read stands for a token.
//!
//! The store keeps the hash of the cookie's value. A session has the permissions of its token, and ends with it.

use axum::http::header::{CONTENT_TYPE, COOKIE, HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use nightshift_engine::clock::Random;
use nightshift_engine::store::{SessionHolder, SessionRecord};
use nightshift_protocol::access::Role;
use nightshift_protocol::api::REQUEST_HEADER;
use nightshift_protocol::time::TimestampMs;

use super::Access;
use crate::caller::Caller;
use crate::error::ApiFailure;
use crate::keys::Keys;
use crate::rate_limits::Peer;
use crate::secret::secret_hash;
use crate::secret::{is_well_formed_secret, new_secret_of};

/// Prefix of a cookie's value.
const COOKIE_PREFIX: &str = "nss_";
/// Name of the cookie. Browsers share cookies between the ports of a host, so the port is appended where there is one.
const COOKIE_NAME: &str = "nightshift_session";
/// Header in which a browser states the origin of a request. Scripts cannot set it.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Header in which a reverse proxy states the original scheme.
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// The sender of a cookie.
pub(crate) enum Visitor {
    /// No session cookie.
    Anonymous,
    /// The cookie of an ended session.
    Ended,
    /// A signed-in caller.
    Known(Caller),
}

impl Access {
    /// Returns the sender of the cookie in these headers. A look-up in the store counts against the limit of its address.
    pub(crate) async fn visitor(&self, headers: &HeaderMap, peer: Option<Peer>) -> Result<Visitor, ApiFailure> {
        let Some(secret) = cookie(headers) else { return Ok(Visitor::Anonymous) };
        let hash = blake3::hash(secret.as_bytes());
        if let Some(cached) = self.cached(&self.keys.sessions, &hash, peer)? {
            let now = self.shared.clock.now();
            let caller = cached.found.filter(|caller| caller.ends_at.is_none_or(|end| end > now));
            return Ok(caller.map_or(Visitor::Ended, Visitor::Known));
        }
        let caller = self.look_up_session(secret).await?;
        self.keys.sessions.keep(hash, caller.clone());
        Ok(caller.map_or(Visitor::Ended, Visitor::Known))
    }

    async fn look_up_session(&self, secret: &str) -> Result<Option<Caller>, ApiFailure> {
        let store = &self.shared.store.sessions;
        let Some(session) = store.find_session(&secret_hash(secret)).await? else { return Ok(None) };
        if session.expires_at <= self.shared.clock.now() {
            return Ok(None);
        }
        let caller = match &session.holder {
            SessionHolder::Configured { proof } => {
                self.keys.proved(secret, proof).then(|| Caller::new("operator", Role::Admin))
            }
            SessionHolder::Token(id) => {
                let token = store.token_of_id(id).await?;
                token.and_then(|token| self.examine(&token).ok())
            }
            SessionHolder::Share(id) => {
                let share = self.shared.store.team.load_share(id).await.ok();
                share.and_then(|share| self.examine_link(share).ok())
            }
        };
        Ok(caller.map(|caller| Caller { by_cookie: true, ends_at: Some(session.expires_at), ..caller }))
    }

    /// Creates a session for the holder of this token. It ends with the token at the latest.
    pub(crate) async fn sign_in(
        &self,
        token: &str,
        secret: &str,
        expires_at: TimestampMs,
    ) -> Result<(SessionRecord, Caller), ApiFailure> {
        let (caller, holder) = match self.keys.configured(token.as_bytes()) {
            Some(caller) => (caller, SessionHolder::Configured { proof: self.keys.proof(secret) }),
            None if Self::is_of_link(token.as_bytes()) => {
                let share = self.link(token.as_bytes(), None).await?;
                let id = share.id.clone();
                (self.examine_link(share)?, SessionHolder::Share(id))
            }
            None => {
                let token = self.known(token.as_bytes(), None).await?;
                let id = token.id.clone();
                (self.examine(&token)?, SessionHolder::Token(id))
            }
        };
        if caller.role == Role::Worker {
            return Err(ApiFailure::forbidden(
                "access.role_needed",
                "this is a worker token: sign in with a token of the role viewer, operator or admin",
            ));
        }
        let expires_at = caller.ends_at.map_or(expires_at, |end| end.min(expires_at));
        let session =
            SessionRecord { secret_hash: secret_hash(secret), holder, created_at: self.shared.clock.now(), expires_at };
        Ok((session, Caller { by_cookie: true, ends_at: Some(expires_at), ..caller }))
    }
}

impl Keys {
    /// Binds a session to the operator's token. Changing the configured token ends the session, and the stored proof
    /// does not reveal the token.
    fn proof(&self, secret: &str) -> String {
        let key = blake3::derive_key("nightshift 2026 session of a configured token", secret.as_bytes());
        blake3::keyed_hash(&key, self.admin.as_bytes()).to_hex().to_string()
    }

    fn proved(&self, secret: &str, proof: &str) -> bool {
        // blake3::Hash compares in constant time.
        blake3::Hash::from_hex(proof).is_ok_and(|proof| {
            let key = blake3::derive_key("nightshift 2026 session of a configured token", secret.as_bytes());
            blake3::keyed_hash(&key, self.admin.as_bytes()) == proof
        })
    }
}

/// Creates a new cookie value.
pub(crate) fn new_cookie(random: &dyn Random) -> String {
    new_secret_of(random, COOKIE_PREFIX)
}

/// Returns the error for an ended session.
pub(crate) fn ended() -> ApiFailure {
    ApiFailure::new(
        StatusCode::UNAUTHORIZED,
        "auth.session_ended",
        "the session of this browser has ended, or its token was revoked: sign in again",
    )
}

/// Refuses requests that a page of another site may have sent through a browser, which adds cookies automatically.
pub(crate) fn is_from_here(method: &Method, headers: &HeaderMap) -> Result<(), ApiFailure> {
    if matches!(*method, Method::GET | Method::HEAD) {
        return Ok(());
    }
    if origin(headers) != Origin::Same {
        return Err(ApiFailure::forbidden(
            "auth.cross_origin",
            "a cookie is accepted only from pages of this server, and this request may come from another site; programs send the header `authorization: Bearer TOKEN` instead",
        ));
    }
    let json = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).is_some_and(is_json);
    if !json && !headers.contains_key(REQUEST_HEADER) {
        return Err(ApiFailure::forbidden(
            "auth.plain_form",
            format!("with a cookie, send `content-type: application/json` or the header `{REQUEST_HEADER}: 1`"),
        ));
    }
    Ok(())
}

/// Refuses a sign-in from another site, which could sign a visitor in under a different identity.
pub(crate) fn refuse_foreign_sign_in(headers: &HeaderMap) -> Result<(), ApiFailure> {
    if origin(headers) == Origin::Other {
        return Err(ApiFailure::forbidden("auth.cross_origin", "only pages of this server sign a browser in or out"));
    }
    Ok(())
}

fn is_json(content_type: &str) -> bool {
    content_type.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

#[derive(Debug, PartialEq, Eq)]
enum Origin {
    Same,
    Other,
    Unsaid,
}

/// Returns the origin of a request: as the browser states it, or for an old browser by the origin of its page.
fn origin(headers: &HeaderMap) -> Origin {
    if let Some(site) = headers.get(FETCH_SITE) {
        return if site == "same-origin" { Origin::Same } else { Origin::Other };
    }
    let Some(origin) = headers.get(ORIGIN) else { return Origin::Unsaid };
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let same = origin.to_str().ok().zip(host).is_some_and(|(origin, host)| is_same_host(origin, host));
    if same { Origin::Same } else { Origin::Other }
}

fn is_same_host(origin: &str, host: &str) -> bool {
    let (rest, default) = match (origin.strip_prefix("http://"), origin.strip_prefix("https://")) {
        (Some(rest), _) => (rest, 80),
        (_, Some(rest)) => (rest, 443),
        (None, None) => return false,
    };
    let parse = |text: &str| {
        let authority: Authority =
            text.parse().ok().filter(|authority: &Authority| !authority.as_str().contains('@'))?;
        Some((authority.host().to_ascii_lowercase(), authority.port_u16().unwrap_or(default)))
    };
    parse(rest).is_some_and(|named| parse(host) == Some(named))
}

/// Returns the value of our cookie, if it is well-formed.
///
/// If no cookie matches the port of the request, a cookie of another port counts. A page behind a reverse proxy calls
/// the API under a different address than the browser.
pub(crate) fn cookie(headers: &HeaderMap) -> Option<&str> {
    let name = cookie_name(headers);
    let ours = || cookies(headers).filter(|(_, value)| is_well_formed_secret(value, COOKIE_PREFIX));
    let of_any_port = |key: &str| {
        let port = key.strip_prefix(COOKIE_NAME).map(|port| port.strip_prefix('_').unwrap_or(port));
        port.is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let exact = ours().find(|(key, _)| *key == name);
    exact.or_else(|| ours().find(|(key, _)| of_any_port(key))).map(|(_, value)| value)
}

/// Returns names and values of all cookies.
fn cookies(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    let texts = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='))
}

fn cookie_name(headers: &HeaderMap) -> String {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let port = host.and_then(|host| host.parse::<Authority>().ok()).and_then(|host| host.port_u16());
    port.map_or_else(|| COOKIE_NAME.to_owned(), |port| format!("{COOKIE_NAME}_{port}"))
}

/// Returns the header that sets the cookie. An age of zero deletes it. The cookie is restricted to TLS if the browser
/// used TLS.
pub(crate) fn set_cookie(headers: &HeaderMap, secret: &str, max_age_s: u64) -> Result<HeaderValue, ApiFailure> {
    let forwarded = headers.get(FORWARDED_PROTO).is_some_and(|proto| proto.as_bytes().eq_ignore_ascii_case(b"https"));
    let by_tls = headers.get(ORIGIN).is_some_and(|origin| origin.as_bytes().starts_with(b"https://"));
    let secure = if forwarded || by_tls { "; Secure" } else { "" };
    let name = cookie_name(headers);
    let text = format!("{name}={secret}; Path=/; HttpOnly; SameSite=Strict; Max-Age={max_age_s}{secure}");
    let mut value = HeaderValue::from_str(&text).map_err(|error| {
        ApiFailure::internal("internal.unwritable", format!("the cookie cannot be written: {error}"))
    })?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.append(*name, value);
            }
        }
        headers
    }

    const JSON: (&str, &str) = ("content-type", "application/json; charset=utf-8");

    fn refused(pairs: &[(&'static str, &str)]) -> bool {
        is_from_here(&Method::POST, &headers(pairs)).is_err()
    }

    #[test]
    fn requests_of_another_site_are_refused() {
        let host = ("host", "127.0.0.1:7777");
        for site in ["cross-site", "same-site", "none", ""] {
            let same = ("origin", "http://127.0.0.1:7777");
            assert!(refused(&[host, JSON, ("sec-fetch-site", site), same]), "{site}");
        }
        for origin in [
            "http://evil.example",
            "http://127.0.0.1",
            "http://127.0.0.1:7778",
            "null",
            "http://127.0.0.1:7777@evil.example",
            "http://a@127.0.0.1:7777",
        ] {
            assert!(refused(&[host, JSON, ("origin", origin)]), "{origin}");
        }
        assert!(refused(&[host, JSON]), "nothing is said");
        assert!(!refused(&[host, JSON, ("sec-fetch-site", "same-origin")]));
        assert!(!refused(&[host, JSON, ("origin", "http://127.0.0.1:7777")]));
        assert!(!refused(&[("host", "night.example"), JSON, ("origin", "https://night.example")]));
        assert!(is_from_here(&Method::GET, &headers(&[host, ("sec-fetch-site", "cross-site")])).is_ok());
    }

    #[test]
    fn a_request_that_a_form_can_send_is_refused() {
        let same = ("sec-fetch-site", "same-origin");
        for kind in
            ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "text/plain; application/json"]
        {
            assert!(refused(&[same, ("content-type", kind)]), "{kind}");
        }
        assert!(refused(&[same]));
        assert!(!refused(&[same, ("x-nightshift-request", "1")]));
        assert!(!refused(&[same, JSON]));
    }

    #[test]
    fn the_cookie_is_found_among_others_and_belongs_to_its_port() {
        let secret = format!("nss_{}", "a".repeat(43));
        let text = format!("x=1; nightshift_session_7777={secret};nightshift_session=nss_short");
        let here = headers(&[("host", "localhost:7777"), ("cookie", "y=2"), ("cookie", &text)]);
        assert_eq!(cookie(&here), Some(secret.as_str()));
        // The cookie of another port, where none matches this port.
        let other = format!("nss_{}", "b".repeat(43));
        let both = format!("nightshift_session_1={other}; {text}");
        assert_eq!(cookie(&headers(&[("host", "localhost:7777"), ("cookie", &both)])), Some(secret.as_str()));
        assert_eq!(cookie(&headers(&[("host", "localhost"), ("cookie", &text)])), Some(secret.as_str()));
        for foreign in ["nightshift_session_x", "nightshift_sessions", "session", "xnightshift_session"] {
            let text = format!("{foreign}={secret}");
            assert_eq!(cookie(&headers(&[("host", "localhost"), ("cookie", &text)])), None, "{foreign}");
        }
    }

    #[test]
    fn the_cookie_goes_over_tls_alone_where_the_browser_came_over_tls() {
        let text = |pairs: &[(&'static str, &str)]| {
            let value = set_cookie(&headers(pairs), "nss_x", 60).ok();
            value.and_then(|value| value.to_str().ok().map(str::to_owned)).unwrap_or_default()
        };
        let plain = text(&[("host", "h:1"), ("origin", "http://h:1")]);
        assert_eq!(plain, "nightshift_session_1=nss_x; Path=/; HttpOnly; SameSite=Strict; Max-Age=60");
        for pair in [("x-forwarded-proto", "https"), ("origin", "https://h")] {
            assert!(text(&[("host", "h"), pair]).ends_with("; Secure"));
        }
    }
}
