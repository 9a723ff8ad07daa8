//! The life of this server in the store. It may decide for runs as long as nobody else can have declared it dead, which
//! it tells by its own monotonic clock: a process that was stopped for a while finds its life over when it goes on.

use nightshift_protocol::id::ServerId;
use tokio::sync::watch;
use tokio::time::Instant;

/// Who this server is, while its pulse is fresh.
#[derive(Debug)]
pub(crate) struct Life(watch::Sender<Option<Span>>);

#[derive(Debug, Clone)]
struct Span {
    server: ServerId,
    until: Instant,
}

impl Life {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(None))
    }

    /// A new life that lasts until then, unless a pulse extends it.
    pub(crate) fn begin(&self, server: ServerId, until: Instant) {
        self.0.send_replace(Some(Span { server, until }));
    }

    /// The pulse of this life was heard. A life that is over stays over.
    pub(crate) fn extend(&self, server: &ServerId, until: Instant) {
        self.0.send_if_modified(|span| {
            if let Some(span) = span.as_mut().filter(|span| span.server == *server) {
                span.until = until;
            }
            // Who waits for another life is not woken by every pulse.
            false
        });
    }

    /// This life is over.
    pub(crate) fn end(&self) {
        self.0.send_if_modified(|span| span.take().is_some());
    }

    /// Who this server is; nobody when its life may be over.
    pub(crate) fn current(&self) -> Option<ServerId> {
        self.0.borrow().as_ref().filter(|span| Instant::now() < span.until).map(|span| span.server.clone())
    }

    /// Waits until the server is somebody else than this one: another life, or nobody.
    pub(crate) async fn is_over(&self, server: &ServerId) {
        let mut changes = self.0.subscribe();
        // The sender lives as long as `self`.
        let _ = changes.wait_for(|span| span.as_ref().is_none_or(|span| span.server != *server)).await;
    }

    /// Waits until the server is somebody.
    pub(crate) async fn begun(&self) -> ServerId {
        let mut changes = self.0.subscribe();
        loop {
            if let Some(server) = self.current() {
                return server;
            }
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::time::Duration;

    use uuid::Uuid;

    use super::*;

    fn server(number: u128) -> ServerId {
        ServerId::from_uuid(Uuid::from_u128(number))
    }

    #[tokio::test(start_paused = true)]
    async fn a_life_without_a_pulse_ends_by_itself() {
        let life = Life::new();
        assert_eq!(life.current(), None);
        life.begin(server(1), Instant::now() + Duration::from_secs(6));
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(life.current(), Some(server(1)));
        life.extend(&server(1), Instant::now() + Duration::from_secs(6));
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(life.current(), Some(server(1)));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(life.current(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_pulse_of_an_earlier_life_extends_nothing() {
        let life = Life::new();
        life.begin(server(2), Instant::now() + Duration::from_secs(1));
        life.extend(&server(1), Instant::now() + Duration::from_mins(1));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(life.current(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn who_works_for_a_life_hears_of_its_end_and_of_the_next_one() {
        let life = std::sync::Arc::new(Life::new());
        life.begin(server(1), Instant::now() + Duration::from_mins(1));
        let waiting = tokio::spawn({
            let life = life.clone();
            async move {
                life.is_over(&server(1)).await;
                life.begun().await
            }
        });
        tokio::task::yield_now().await;
        life.end();
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        life.begin(server(2), Instant::now() + Duration::from_mins(1));
        assert_eq!(waiting.await.unwrap(), server(2));
    }
}
