//! Re-checks the credentials of long-lived connections, because they may end in the meantime.

use std::sync::Arc;
use std::time::Duration;

use axum::http::header::{AUTHORIZATION, COOKIE, HOST};
use axum::http::{HeaderMap, Method, StatusCode};
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Access, Visitor};
use crate::caller::Caller;
use crate::keys::BELIEVED_FOR;

/// Time between two checks, for changes through other servers.
const EVERY: Duration = BELIEVED_FOR;

/// The credentials of a connection, with the time of the next check.
pub(crate) struct Standing {
    access: Arc<Access>,
    shown: HeaderMap,
    forgets: watch::Receiver<u64>,
    next: Instant,
}

impl Standing {
    /// Returns the credentials of an admitted caller, or none for anonymous access.
    pub(crate) fn of(access: Arc<Access>, caller: Option<&Caller>, headers: &HeaderMap) -> Option<Self> {
        caller?;
        let mut shown = HeaderMap::new();
        for name in [AUTHORIZATION, COOKIE, HOST] {
            if let Some(value) = headers.get(&name) {
                shown.insert(name, value.clone());
            }
        }
        Some(Self { forgets: access.keys.forgets(), access, shown, next: Instant::now() + EVERY })
    }

    /// Waits until the next check is due.
    pub(crate) async fn until_due(&mut self) {
        tokio::select! {
            // The sender lives as long as the server.
            _ = self.forgets.changed() => {}
            () = tokio::time::sleep_until(self.next) => {}
        }
    }

    /// Returns whether the credentials are still valid. If the check fails, they count as valid until the next one.
    pub(crate) async fn holds(&mut self) -> bool {
        self.next = Instant::now() + EVERY;
        match self.access.caller(&Method::GET, self.shown.get(AUTHORIZATION), None).await {
            Ok(Some(_)) => true,
            Err(failure) => failure.status() != StatusCode::UNAUTHORIZED,
            Ok(None) => {
                !matches!(self.access.visitor(&self.shown, None).await, Ok(Visitor::Anonymous | Visitor::Ended))
            }
        }
    }
}
