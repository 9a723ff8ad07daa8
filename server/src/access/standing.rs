//! Re-checks the credentials of long-lived connections, because they may end in the meantime.

use std::time::Duration;

use axum::http::header::{AUTHORIZATION, COOKIE, HOST};
use axum::http::{HeaderMap, Method, StatusCode};
use tokio::sync::watch;
use tokio::time::Instant;

use super::Visitor;
use crate::app::App;
use crate::caller::Caller;
use crate::keys::BELIEVED_FOR;

/// Time between two checks, for changes through other servers.
const EVERY: Duration = BELIEVED_FOR;

/// The credentials of a connection, with the time of the next check.
pub(crate) struct Standing {
    shown: HeaderMap,
    forgets: watch::Receiver<u64>,
    next: Instant,
}

impl Standing {
    /// Returns the credentials of an admitted caller, or none for anonymous access.
    pub(crate) fn of(app: &App, caller: Option<&Caller>, headers: &HeaderMap) -> Option<Self> {
        caller?;
        let mut shown = HeaderMap::new();
        for name in [AUTHORIZATION, COOKIE, HOST] {
            if let Some(value) = headers.get(&name) {
                shown.insert(name, value.clone());
            }
        }
        Some(Self { shown, forgets: app.keys.forgets(), next: Instant::now() + EVERY })
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
    pub(crate) async fn holds(&mut self, app: &App) -> bool {
        self.next = Instant::now() + EVERY;
        match app.keys.caller(app, &Method::GET, self.shown.get(AUTHORIZATION)).await {
            Ok(Some(_)) => true,
            Err(failure) => failure.status() != StatusCode::UNAUTHORIZED,
            Ok(None) => !matches!(app.keys.visitor(app, &self.shown).await, Ok(Visitor::Anonymous | Visitor::Ended)),
        }
    }
}
