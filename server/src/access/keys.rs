//! Tokens: the configured ones, and those in the store, by the hash of their secret.

use axum::http::{HeaderValue, Method};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use nightshift_protocol::access::{Role, TokenView};
use nightshift_protocol::time::TimestampMs;

use super::Access;
use crate::caller::Caller;
use crate::error::ApiFailure;
use crate::rate_limits::Peer;
use crate::secret::is_well_formed;
use crate::shared::Shared;

/// Minimum time between two records of a token's use, in milliseconds.
const TOUCH_EVERY_MS: u64 = 60_000;

impl Access {
    /// Returns the caller of this `authorization` header, or none without a header. An invalid token is an error.
    ///
    /// A look-up in the store counts against the limit of the address `peer`, so that guessing puts no load on the store.
    pub(crate) async fn caller(
        &self,
        method: &Method,
        header: Option<&HeaderValue>,
        peer: Option<Peer>,
    ) -> Result<Option<Caller>, ApiFailure> {
        let Some(header) = header else { return Ok(None) };
        let shown = Shown::read(method, header).ok_or_else(wrong_token)?;
        let caller = match self.keys.configured(&shown.secret) {
            Some(caller) => caller,
            None if Self::is_of_link(&shown.secret) => self.examine_link(self.link(&shown.secret, peer).await?)?,
            None => self.examine(&self.known(&shown.secret, peer).await?)?,
        };
        if shown.by_browser && caller.role == Role::Worker {
            return Err(wrong_token());
        }
        Ok(Some(caller))
    }

    /// Returns the stored token of this secret.
    pub(super) async fn known(&self, secret: &[u8], peer: Option<Peer>) -> Result<TokenView, ApiFailure> {
        let secret = std::str::from_utf8(secret).ok().filter(|text| is_well_formed(text)).ok_or_else(wrong_token)?;
        self.look_up(secret, peer).await?.ok_or_else(wrong_token)
    }

    /// Returns the caller of this token, if it is still valid.
    pub(super) fn examine(&self, token: &TokenView) -> Result<Caller, ApiFailure> {
        if token.revoked_at.is_some() {
            return Err(ApiFailure::unauthorized(
                "token.revoked",
                format!("the token `{}` was revoked: ask an administrator for a new one", token.name),
            ));
        }
        if token.expires_at.is_some_and(|end| end <= self.shared.clock.now()) {
            return Err(ApiFailure::unauthorized(
                "token.expired",
                format!("the token `{}` has expired: ask an administrator for a new one", token.name),
            ));
        }
        Ok(Caller { ends_at: token.expires_at, ..Caller::new(&token.name, token.role) })
    }

    async fn look_up(&self, secret: &str, peer: Option<Peer>) -> Result<Option<TokenView>, ApiFailure> {
        let hash = blake3::hash(secret.as_bytes());
        if let Some(cached) = self.cached(&self.keys.tokens, &hash, peer)? {
            return Ok(cached.found);
        }
        let mut token = self.shared.store.tokens.find_token(hash.to_hex().as_str()).await?;
        if let Some(token) = &mut token {
            note_use(&self.shared, token).await;
        }
        self.keys.tokens.keep(hash, token.clone());
        Ok(token)
    }
}

/// Records that a token was used, unless that was done recently. The call continues without waiting.
async fn note_use(shared: &Shared, token: &mut TokenView) {
    let now = shared.clock.now();
    let lately = |at: TimestampMs| now.since_ms(at) < TOUCH_EVERY_MS;
    if token.revoked_at.is_some() || token.last_used_at.is_some_and(lately) {
        return;
    }
    match shared.store.tokens.touch_token(&token.id, now).await {
        Ok(()) => token.last_used_at = Some(now),
        Err(error) => tracing::debug!(token.id = %token.id, error = %error, "the use of a token could not be recorded"),
    }
}

/// A secret from a request.
struct Shown {
    secret: Vec<u8>,
    /// Whether it arrived as a Basic password from a browser.
    by_browser: bool,
}

impl Shown {
    fn read(method: &Method, header: &HeaderValue) -> Option<Self> {
        let (scheme, rest) = header.to_str().ok()?.split_once(' ')?;
        let rest = rest.trim();
        if scheme.eq_ignore_ascii_case("bearer") {
            return Some(Self { secret: rest.as_bytes().to_vec(), by_browser: false });
        }
        // Browsers send Basic credentials automatically, even for a form on a foreign page, so they permit only
        // reading.
        if scheme.eq_ignore_ascii_case("basic") && (method == Method::GET || method == Method::HEAD) {
            let decoded = BASE64_STANDARD.decode(rest).ok()?;
            let password = decoded.splitn(2, |byte| *byte == b':').nth(1)?;
            return Some(Self { secret: password.to_vec(), by_browser: true });
        }
        None
    }
}

pub(super) fn wrong_token() -> ApiFailure {
    ApiFailure::unauthorized("auth.wrong_token", "the token is not known to this server")
}

#[cfg(test)]
mod tests {
    use secrecy::SecretString;

    use super::*;
    use crate::keys::Keys;

    fn shown(method: &Method, value: &str) -> Option<Role> {
        let [admin, worker, own] = ["admin-secret", "worker-secret", "own-secret"].map(SecretString::from);
        let keys = Keys::new(&admin, &worker, &own);
        let shown = Shown::read(method, &HeaderValue::from_str(value).ok()?)?;
        keys.configured(&shown.secret).map(|caller| caller.role)
    }

    #[test]
    fn each_configured_token_has_its_role() {
        assert_eq!(shown(&Method::POST, "Bearer admin-secret"), Some(Role::Admin));
        assert_eq!(shown(&Method::POST, "bearer worker-secret"), Some(Role::Worker));
        assert_eq!(shown(&Method::POST, "Bearer own-secret"), Some(Role::Worker));
        for wrong in ["Bearer admin-secre", "Bearer ", "admin-secret", "Digest admin-secret"] {
            assert_eq!(shown(&Method::POST, wrong), None, "{wrong}");
        }
    }

    #[test]
    fn automatic_browser_credentials_permit_only_reading() {
        let basic = format!("Basic {}", BASE64_STANDARD.encode("anyone:admin-secret"));
        assert_eq!(shown(&Method::GET, &basic), Some(Role::Admin));
        assert_eq!(shown(&Method::HEAD, &basic), Some(Role::Admin));
        assert_eq!(shown(&Method::POST, &basic), None);
    }
}
