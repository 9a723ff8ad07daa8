//! The configured tokens, and caches of stored tokens, sessions and share links.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nightshift_protocol::access::{Role, TokenView};
use nightshift_protocol::api::Share;
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::caller::Caller;

/// Time for which a cached look-up is believed. A token revoked through another server stays valid here for at most this time
/// plus one look-up. Revoked through this server, it ends at once.
pub(crate) const BELIEVED_FOR: Duration = Duration::from_secs(3);
/// Maximum number of entries of a cache, including unknown secrets, so that guessing puts no load on the store.
const MAX_KEPT: usize = 1_024;

/// The tokens.
pub(crate) struct Keys {
    pub(crate) admin: blake3::Hash,
    worker: blake3::Hash,
    embedded: blake3::Hash,
    pub(crate) tokens: Cache<TokenView>,
    pub(crate) sessions: Cache<Caller>,
    pub(crate) links: Cache<Share>,
    /// Counts invalidations of the cache. Callers with long-lived connections check their credentials again after each.
    forgotten: watch::Sender<u64>,
}

/// A cache of look-ups by the hash of a secret.
///
/// An entry that is no longer believed still tells that its secret was found before.
pub(crate) struct Cache<T>(Mutex<HashMap<blake3::Hash, Cached<T>>>);

/// A cached look-up.
#[derive(Clone)]
pub(crate) struct Cached<T> {
    /// None if the store did not know the secret, or if it had ended.
    pub(crate) found: Option<T>,
    until: Instant,
}

impl<T> Cached<T> {
    /// Returns whether the entry stands for a look-up.
    pub(crate) fn is_believed(&self) -> bool {
        Instant::now() < self.until
    }
}

impl<T: Clone> Cache<T> {
    fn new() -> Self {
        Self(Mutex::default())
    }

    pub(crate) fn get(&self, hash: &blake3::Hash) -> Option<Cached<T>> {
        self.entries().get(hash).cloned()
    }

    /// Keeps the result of a look-up. In a full cache, unknown secrets make room first, and outdated entries second.
    pub(crate) fn keep(&self, hash: blake3::Hash, found: Option<T>) {
        let mut entries = self.entries();
        if entries.len() >= MAX_KEPT {
            entries.retain(|_, kept| kept.found.is_some());
        }
        if entries.len() >= MAX_KEPT {
            entries.retain(|_, kept| kept.is_believed());
        }
        if entries.len() < MAX_KEPT {
            entries.insert(hash, Cached { found, until: Instant::now() + BELIEVED_FOR });
        }
    }

    /// Requires a new look-up of every secret.
    fn outdate(&self) {
        let mut entries = self.entries();
        entries.retain(|_, kept| kept.found.is_some());
        entries.values_mut().for_each(|kept| kept.until = Instant::now());
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<blake3::Hash, Cached<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Keys {
    /// Creates the configured tokens: the operator's token may do everything, and `embedded` belongs to the worker in
    /// this process.
    pub(crate) fn new(admin: &SecretString, worker: &SecretString, embedded: &SecretString) -> Self {
        Self {
            embedded: blake3::hash(embedded.expose_secret().as_bytes()),
            admin: blake3::hash(admin.expose_secret().as_bytes()),
            worker: blake3::hash(worker.expose_secret().as_bytes()),
            tokens: Cache::new(),
            sessions: Cache::new(),
            links: Cache::new(),
            forgotten: watch::Sender::new(0),
        }
    }

    /// Requires new look-ups after a token, session or link was created or ended here.
    pub(crate) fn forget(&self) {
        self.tokens.outdate();
        self.sessions.outdate();
        self.links.outdate();
        self.forgotten.send_modify(|count| *count += 1);
    }

    /// Removes the session of this cookie from the cache after it was ended here.
    pub(crate) fn forget_session(&self, secret: &str) {
        self.sessions.entries().remove(&blake3::hash(secret.as_bytes()));
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signing_out_keeps_what_is_cached_of_others() {
        let [admin, worker, own] = ["admin-secret", "worker-secret", "own-secret"].map(SecretString::from);
        let keys = Keys::new(&admin, &worker, &own);
        for secret in ["one", "two"] {
            let hash = blake3::hash(secret.as_bytes());
            keys.sessions.keep(hash, Some(Caller::new(secret, Role::Viewer)));
            keys.links.keep(hash, None);
        }
        let mut forgets = keys.forgets();
        keys.forget_session("one");
        assert!(keys.sessions.get(&blake3::hash(b"one")).is_none());
        let two = blake3::hash(b"two");
        assert!(keys.sessions.get(&two).is_some_and(|kept| kept.is_believed()));
        assert!(forgets.has_changed().is_ok_and(|changed| changed), "connections check their credentials again");
        forgets.mark_unchanged();
        keys.forget();
        assert!(keys.sessions.get(&two).is_some_and(|kept| !kept.is_believed() && kept.found.is_some()));
        assert!(keys.links.get(&two).is_none(), "an unknown secret may be known now");
    }

    #[test]
    fn guesses_displace_no_secret_that_was_found() {
        let cache = Cache::new();
        let known = blake3::hash(b"known");
        cache.keep(known, Some(()));
        cache.outdate();
        for number in 0..=MAX_KEPT {
            cache.keep(blake3::hash(&number.to_le_bytes()), None);
        }
        assert!(cache.get(&known).is_some_and(|kept| !kept.is_believed() && kept.found.is_some()));
        for number in 0..=MAX_KEPT {
            cache.keep(blake3::hash(&number.to_le_bytes()), Some(()));
        }
        assert!(cache.entries().len() <= MAX_KEPT);
    }
}
