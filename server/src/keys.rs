//! The configured tokens, and caches of stored tokens and sessions.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nightshift_protocol::access::{Role, TokenView};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::caller::Caller;

/// Lifetime of a cached token lookup. A token revoked through another server stays valid here for at most this time
/// plus one lookup. Revoked through this server, it ends at once.
pub(crate) const BELIEVED_FOR: Duration = Duration::from_secs(3);
/// Maximum number of cached tokens, including unknown ones, so that guessing puts no load on the store.
pub(crate) const MAX_KEPT: usize = 1_024;

/// The tokens.
pub(crate) struct Keys {
    pub(crate) admin: blake3::Hash,
    worker: blake3::Hash,
    embedded: blake3::Hash,
    kept: Mutex<HashMap<[u8; 32], CachedToken>>,
    sessions: Mutex<HashMap<[u8; 32], CachedSession>>,
    /// Counts invalidations of the cache. Callers with long-lived connections check their credentials again after each.
    forgotten: watch::Sender<u64>,
}

/// A cached token. None if the store does not know it.
pub(crate) struct CachedToken {
    pub(crate) token: Option<TokenView>,
    pub(crate) until: Instant,
}

/// A cached session lookup. None if the session does not exist or has ended.
pub(crate) struct CachedSession {
    pub(crate) caller: Option<Caller>,
    pub(crate) until: Instant,
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

    /// Clears the cache after a token or session was created or ended here.
    pub(crate) fn forget(&self) {
        self.kept().clear();
        self.sessions().clear();
        self.forgotten.send_modify(|count| *count += 1);
    }

    /// Removes the session of this cookie from the cache after it was ended here.
    pub(crate) fn forget_session(&self, secret: &str) {
        self.sessions().remove(blake3::hash(secret.as_bytes()).as_bytes());
        self.forgotten.send_modify(|count| *count += 1);
    }

    /// Returns a receiver of invalidations.
    pub(crate) fn forgets(&self) -> watch::Receiver<u64> {
        self.forgotten.subscribe()
    }

    pub(crate) fn configured(&self, secret: &[u8]) -> Option<Caller> {
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

    pub(crate) fn sessions(&self) -> MutexGuard<'_, HashMap<[u8; 32], CachedSession>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the cached tokens.
    pub(crate) fn kept(&self) -> MutexGuard<'_, HashMap<[u8; 32], CachedToken>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signing_out_keeps_what_is_cached_of_others() {
        let [admin, worker, own] = ["admin-secret", "worker-secret", "own-secret"].map(SecretString::from);
        let keys = Keys::new(&admin, &worker, &own);
        let until = Instant::now() + BELIEVED_FOR;
        for secret in ["one", "two"] {
            let hash = *blake3::hash(secret.as_bytes()).as_bytes();
            keys.sessions().insert(hash, CachedSession { caller: None, until });
            keys.kept().insert(hash, CachedToken { token: None, until });
        }
        let mut forgets = keys.forgets();
        keys.forget_session("one");
        assert_eq!((keys.sessions().len(), keys.kept().len()), (1, 2));
        assert!(!keys.sessions().contains_key(blake3::hash(b"one").as_bytes()));
        assert!(forgets.has_changed().is_ok_and(|changed| changed), "connections check their credentials again");
        forgets.mark_unchanged();
        keys.forget();
        assert_eq!((keys.sessions().len(), keys.kept().len()), (0, 0));
    }
}
