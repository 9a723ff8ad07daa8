//! What somebody showed who is let in for long: looked at again while they stay, because it may end meanwhile.

use std::time::Duration;

use axum::http::header::{AUTHORIZATION, COOKIE, HOST};
use axum::http::{HeaderMap, Method, StatusCode};
use tokio::sync::watch;
use tokio::time::Instant;

use super::keys::BELIEVED_FOR;
use super::{Caller, Visitor};
use crate::app::App;

/// How often it is looked at, for what another server was told.
const EVERY: Duration = BELIEVED_FOR;

/// What was shown, and when it is looked at again.
pub(crate) struct Standing {
    shown: HeaderMap,
    forgets: watch::Receiver<u64>,
    next: Instant,
}

impl Standing {
    /// Of somebody who was let in as this caller; none where nobody had to show anything and nobody did.
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

    /// Waits until it is time to look again.
    pub(crate) async fn until_due(&mut self) {
        tokio::select! {
            // The sender lives as long as the server.
            _ = self.forgets.changed() => {}
            () = tokio::time::sleep_until(self.next) => {}
        }
    }

    /// Whether it is still good. Where that cannot be found out now, it is until the next look.
    pub(crate) async fn holds(&mut self, app: &App) -> bool {
        self.next = Instant::now() + EVERY;
        match app.keys.caller(app, &Method::GET, self.shown.get(AUTHORIZATION)).await {
            Ok(Some(_)) => true,
            Err(failure) => failure.status() != StatusCode::UNAUTHORIZED,
            Ok(None) => !matches!(app.keys.visitor(app, &self.shown).await, Ok(Visitor::Nobody | Visitor::Gone)),
        }
    }
}
