//! Tokens: the two that a server is started with, and those that are kept in the store, by the hash of their secret.

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
use super::sessions::KeptSession;
use crate::app::App;
use crate::error::ApiFailure;

/// What the secret of a stored token begins with.
const SECRET_PREFIX: &str = "nst_";
/// Characters after the prefix: 32 bytes in base64url.
const SECRET_CHARS: usize = 43;
/// How long a looked-up token is believed. A token that is revoked through another server works here at most this long,
/// and the time of one lookup; through this server, it ends at once.
pub(super) const BELIEVED_FOR: Duration = Duration::from_secs(3);
/// Tokens that are kept in memory, unknown ones too: guessing must not become a load on the store.
pub(super) const MAX_KEPT: usize = 1_024;
/// How often it is written down that a token was used, in milliseconds.
const TOUCH_EVERY_MS: u64 = 60_000;

/// The tokens.
pub(crate) struct Keys {
    pub(super) admin: blake3::Hash,
    worker: blake3::Hash,
    embedded: blake3::Hash,
    kept: Mutex<HashMap<[u8; 32], Kept>>,
    sessions: Mutex<HashMap<[u8; 32], KeptSession>>,
    /// Counts how often something was forgotten: who is let in for long looks again then.
    forgotten: watch::Sender<u64>,
}

/// A looked-up token; none when the store does not know it.
struct Kept {
    token: Option<TokenView>,
    until: Instant,
}

impl Keys {
    /// The configured tokens: the operator's may do everything. `embedded` is the one of the worker in this process.
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

    /// Who shows this `authorization` header; nobody without one. A token that is not good is an error.
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

    /// Forgets what was looked up: a token or session was created or ended here.
    pub(crate) fn forget(&self) {
        self.kept().clear();
        self.sessions().clear();
        self.forgotten.send_modify(|count| *count += 1);
    }

    /// Tells when a token, link or session was created or ended here.
    pub(super) fn forgets(&self) -> watch::Receiver<u64> {
        self.forgotten.subscribe()
    }

    pub(super) fn configured(&self, secret: &[u8]) -> Option<Caller> {
        let shown = blake3::hash(secret);
        // blake3::Hash compares in constant time; all comparisons are made for every token.
        let (name, role, embedded) = match (shown == self.admin, shown == self.worker, shown == self.embedded) {
            (true, _, _) => ("operator", Role::Admin, false),
            (false, true, _) => ("worker", Role::Worker, false),
            (false, false, true) => ("worker", Role::Worker, true),
            (false, false, false) => return None,
        };
        Some(Caller { embedded, ..Caller::new(name, role) })
    }

    /// The stored token of this secret.
    pub(super) async fn known(&self, app: &App, secret: &[u8]) -> Result<TokenView, ApiFailure> {
        let secret = std::str::from_utf8(secret).ok().filter(|text| is_well_formed(text)).ok_or_else(wrong_token)?;
        self.look_up(app, secret).await?.ok_or_else(wrong_token)
    }

    /// Who shows this token, if it is still good.
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
            kept.insert(*hash.as_bytes(), Kept { token: token.clone(), until: now + BELIEVED_FOR });
        }
        Ok(token)
    }

    pub(super) fn sessions(&self) -> MutexGuard<'_, HashMap<[u8; 32], KeptSession>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<[u8; 32], Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes down that a token was used, when that was not done lately. The call goes on without it.
async fn note_use(app: &App, token: &mut TokenView) {
    let now = app.clock.now();
    let lately = |at: TimestampMs| now.since_ms(at) < TOUCH_EVERY_MS;
    if token.revoked_at.is_some() || token.last_used_at.is_some_and(lately) {
        return;
    }
    match app.store.touch_token(&token.id, now).await {
        Ok(()) => token.last_used_at = Some(now),
        Err(error) => tracing::debug!(token.id = %token.id, error = %error, "the use of a token was not noted"),
    }
}

/// A secret as it was shown.
struct Shown {
    secret: Vec<u8>,
    /// Whether it came as the password that a browser sends.
    by_browser: bool,
}

impl Shown {
    fn read(method: &Method, header: &HeaderValue) -> Option<Self> {
        let (scheme, rest) = header.to_str().ok()?.split_once(' ')?;
        let rest = rest.trim();
        if scheme.eq_ignore_ascii_case("bearer") {
            return Some(Self { secret: rest.as_bytes().to_vec(), by_browser: false });
        }
        // Browsers send Basic credentials by themselves, also for a form on a foreign page: good for reading only.
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

/// Whether a text can be the secret of a stored token: others are not looked up.
fn is_well_formed(secret: &str) -> bool {
    is_well_formed_secret(secret, SECRET_PREFIX)
}

/// Whether a text can be a secret of this kind.
pub(super) fn is_well_formed_secret(secret: &str, prefix: &str) -> bool {
    secret.strip_prefix(prefix).is_some_and(|rest| {
        rest.len() == SECRET_CHARS && rest.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    })
}

/// A new secret. A UUID carries 74 random bits; four of them are hashed into 256.
pub(crate) fn new_secret(random: &dyn Random) -> String {
    new_secret_of(random, SECRET_PREFIX)
}

/// A new secret of another kind.
pub(super) fn new_secret_of(random: &dyn Random, prefix: &str) -> String {
    let mut hasher = blake3::Hasher::new_derive_key("nightshift 2026 secret of an API token");
    for _ in 0..4 {
        hasher.update(&random.uuid().to_be_bytes());
    }
    format!("{prefix}{}", BASE64_URL_SAFE_NO_PAD.encode(hasher.finalize().as_bytes()))
}

/// A new secret that signs what a webhook is told.
pub(crate) fn new_webhook_secret(random: &dyn Random) -> String {
    new_secret_of(random, "nsw_")
}

/// A new token of a lease on a request.
pub(crate) fn new_request_lease(random: &dyn Random) -> String {
    new_secret_of(random, "nsl_")
}

/// What is kept of a secret.
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
    fn what_a_browser_sends_by_itself_is_good_for_reading_only() {
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
