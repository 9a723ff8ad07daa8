//! Tokens: the configured ones, and those in the store, by the hash of their secret.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::{HeaderValue, Method};
use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use nightshift_engine::clock::Random;
use nightshift_engine::store::StoreError;
use nightshift_protocol::access::{Role, TokenView};
use nightshift_protocol::time::TimestampMs;
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::watch;
use tokio::time::Instant;

use super::Caller;
use super::sessions::CachedSession;
use crate::app::App;
use crate::error::ApiFailure;

/// Prefix of the secret of a stored token.
const SECRET_PREFIX: &str = "nst_";
/// Characters after the prefix: 32 bytes in base64url.
const SECRET_CHARS: usize = 43;
/// Lifetime of a cached token lookup. A token revoked through another server stays valid here for at most this time
/// plus one lookup. Revoked through this server, it ends at once.
pub(super) const BELIEVED_FOR: Duration = Duration::from_secs(3);
/// Maximum number of cached tokens, including unknown ones, so that guessing puts no load on the store.
pub(super) const MAX_KEPT: usize = 1_024;
/// Minimum time between two records of a token's use, in milliseconds.
const TOUCH_EVERY_MS: u64 = 60_000;

/// The tokens.
pub(crate) struct Keys {
    pub(super) admin: blake3::Hash,
    worker: blake3::Hash,
    embedded: blake3::Hash,
    kept: Mutex<HashMap<[u8; 32], CachedToken>>,
    sessions: Mutex<HashMap<[u8; 32], CachedSession>>,
    /// Counts invalidations of the cache. Callers with long-lived connections check their credentials again after each.
    forgotten: watch::Sender<u64>,
}

/// A cached token. None if the store does not know it.
struct CachedToken {
    token: Option<TokenView>,
    until: Instant,
}

impl Keys {
    /// Creates the configured tokens: the operator's token may do everything, and `embedded` belongs to the worker in
    /// this process.
    pub(crate) fn new(admin: &SecretString, worker: &SecretString, embedded: &SecretString) -> Self {
        Self {
            embedded: blake3::hash(embedded.expose_secret().as_bytes()),
            admin: blake3::hash(admin.expose_secret().as_bytes()),
            worker: blake3::hash(worker.expose_secret().as_bytes()),
            kept: Mutex::default(),
            sessions: Mutex::default(),
            forgotten: watch::Sender::new(0),
        }
    }

    /// Returns the caller of this `authorization` header, or none without a header. An invalid token is an error.
    pub(crate) async fn caller(
        &self,
        app: &App,
        method: &Method,
        header: Option<&HeaderValue>,
    ) -> Result<Option<Caller>, ApiFailure> {
        let Some(header) = header else { return Ok(None) };
        let shown = Shown::read(method, header).ok_or_else(wrong_token)?;
        let caller = match self.configured(&shown.secret) {
            Some(caller) => caller,
            None if Self::is_of_link(&shown.secret) => Self::examine_link(app, Self::link(app, &shown.secret).await?)?,
            None => Self::examine(app, &self.known(app, &shown.secret).await?)?,
        };
        if shown.by_browser && caller.role == Role::Worker {
            return Err(wrong_token());
        }
        Ok(Some(caller))
    }

    /// Clears the cache after a token or session was created or ended here.
    pub(crate) fn forget(&self) {
        self.kept().clear();
        self.sessions().clear();
        self.forgotten.send_modify(|count| *count += 1);
    }

    /// Returns a receiver of invalidations.
    pub(super) fn forgets(&self) -> watch::Receiver<u64> {
        self.forgotten.subscribe()
    }

    pub(super) fn configured(&self, secret: &[u8]) -> Option<Caller> {
        let shown = blake3::hash(secret);
        // blake3::Hash compares in constant time, and all comparisons are always made.
        let (name, role, embedded) = match (shown == self.admin, shown == self.worker, shown == self.embedded) {
            (true, _, _) => ("operator", Role::Admin, false),
            (false, true, _) => ("worker", Role::Worker, false),
            (false, false, true) => ("worker", Role::Worker, true),
            (false, false, false) => return None,
        };
        Some(Caller { embedded, ..Caller::new(name, role) })
    }

    /// Returns the stored token of this secret.
    pub(super) async fn known(&self, app: &App, secret: &[u8]) -> Result<TokenView, ApiFailure> {
        let secret = std::str::from_utf8(secret).ok().filter(|text| is_well_formed(text)).ok_or_else(wrong_token)?;
        self.look_up(app, secret).await?.ok_or_else(wrong_token)
    }

    /// Returns the caller of this token, if it is still valid.
    pub(super) fn examine(app: &App, token: &TokenView) -> Result<Caller, ApiFailure> {
        if token.revoked_at.is_some() {
            return Err(ApiFailure::unauthorized(
                "token.revoked",
                format!("the token `{}` was revoked: ask an administrator for a new one", token.name),
            ));
        }
        if token.expires_at.is_some_and(|end| end <= app.clock.now()) {
            return Err(ApiFailure::unauthorized(
                "token.expired",
                format!("the token `{}` has expired: ask an administrator for a new one", token.name),
            ));
        }
        Ok(Caller { ends_at: token.expires_at, ..Caller::new(&token.name, token.role) })
    }

    async fn look_up(&self, app: &App, secret: &str) -> Result<Option<TokenView>, StoreError> {
        let hash = blake3::hash(secret.as_bytes());
        let now = Instant::now();
        if let Some(kept) = self.kept().get(hash.as_bytes()).filter(|kept| now < kept.until) {
            return Ok(kept.token.clone());
        }
        let mut token = app.store.find_token(hash.to_hex().as_str()).await?;
        if let Some(token) = &mut token {
            note_use(app, token).await;
        }
        let mut kept = self.kept();
        if kept.len() >= MAX_KEPT {
            kept.retain(|_, kept| now < kept.until && kept.token.is_some());
        }
        if kept.len() < MAX_KEPT {
            kept.insert(*hash.as_bytes(), CachedToken { token: token.clone(), until: now + BELIEVED_FOR });
        }
        Ok(token)
    }

    pub(super) fn sessions(&self) -> MutexGuard<'_, HashMap<[u8; 32], CachedSession>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<[u8; 32], CachedToken>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Records that a token was used, unless that was done recently. The call continues without waiting.
async fn note_use(app: &App, token: &mut TokenView) {
    let now = app.clock.now();
    let lately = |at: TimestampMs| now.since_ms(at) < TOUCH_EVERY_MS;
    if token.revoked_at.is_some() || token.last_used_at.is_some_and(lately) {
        return;
    }
    match app.store.touch_token(&token.id, now).await {
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

/// Returns whether a text has the form of a stored token's secret. Other texts are not looked up.
fn is_well_formed(secret: &str) -> bool {
    is_well_formed_secret(secret, SECRET_PREFIX)
}

/// Returns whether a text has the form of a secret with this prefix.
pub(super) fn is_well_formed_secret(secret: &str, prefix: &str) -> bool {
    secret.strip_prefix(prefix).is_some_and(|rest| {
        rest.len() == SECRET_CHARS && rest.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    })
}

/// Creates a new secret. A UUID has 74 random bits, so four of them are hashed into 256 bits.
pub(crate) fn new_secret(random: &dyn Random) -> String {
    new_secret_of(random, SECRET_PREFIX)
}

/// Creates a new secret with this prefix.
pub(super) fn new_secret_of(random: &dyn Random, prefix: &str) -> String {
    let mut hasher = blake3::Hasher::new_derive_key("nightshift 2026 secret of an API token");
    for _ in 0..4 {
        hasher.update(&random.uuid().to_be_bytes());
    }
    format!("{prefix}{}", BASE64_URL_SAFE_NO_PAD.encode(hasher.finalize().as_bytes()))
}

/// Creates a new signing secret for a webhook.
pub(crate) fn new_webhook_secret(random: &dyn Random) -> String {
    new_secret_of(random, "nsw_")
}

/// Creates a new lease token for a request.
pub(crate) fn new_request_lease(random: &dyn Random) -> String {
    new_secret_of(random, "nsl_")
}

/// Returns the stored hash of a secret.
pub(crate) fn secret_hash(secret: &str) -> String {
    blake3::hash(secret.as_bytes()).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::OsRandom;

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

    #[test]
    fn secrets_are_well_formed_and_differ() {
        let secrets: std::collections::HashSet<String> = (0..100).map(|_| new_secret(&OsRandom)).collect();
        assert_eq!(secrets.len(), 100);
        assert!(secrets.iter().all(|secret| is_well_formed(secret)));
        for text in ["", "nst_", "nst_short", "guess", &format!("nst_{}", "é".repeat(43))] {
            assert!(!is_well_formed(text), "{text}");
        }
    }
}
