//! The server lease in the store.
//!
//! The server may decide for runs only while no other server can have declared it dead. It measures that with its own
//! monotonic clock, so a suspended process finds its lease expired when it resumes.

use nightshift_protocol::id::ServerId;
use tokio::sync::watch;
use tokio::time::Instant;

/// The server lease, valid while its heartbeat is recent.
#[derive(Debug)]
pub(crate) struct ServerLease(watch::Sender<Option<Span>>);

#[derive(Debug, Clone)]
struct Span {
    server: ServerId,
    until: Instant,
}

impl ServerLease {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(None))
    }

    /// Begins a new lease that expires at `until` without a heartbeat.
    pub(crate) fn begin(&self, server: ServerId, until: Instant) {
        self.0.send_replace(Some(Span { server, until }));
    }

    /// Extends the lease after a successful heartbeat. An expired lease stays expired.
    pub(crate) fn extend(&self, server: &ServerId, until: Instant) {
        self.0.send_if_modified(|span| {
            if let Some(span) = span.as_mut().filter(|span| span.server == *server) {
                span.until = until;
            }
            // A heartbeat does not wake tasks that wait for another lease.
            false
        });
    }

    /// Ends the lease.
    pub(crate) fn end(&self) {
        self.0.send_if_modified(|span| span.take().is_some());
    }

    /// Returns this server's id, or none if the lease may have expired.
    pub(crate) fn current(&self) -> Option<ServerId> {
        self.0.borrow().as_ref().filter(|span| Instant::now() < span.until).map(|span| span.server.clone())
    }

    /// Waits until this lease has ended.
    pub(crate) async fn wait_until_ended(&self, server: &ServerId) {
        let mut changes = self.0.subscribe();
        // The sender lives as long as `self`.
        let _ = changes.wait_for(|span| span.as_ref().is_none_or(|span| span.server != *server)).await;
    }

    /// Waits until a lease begins. Returns its id.
    pub(crate) async fn wait_until_begun(&self) -> ServerId {
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
    async fn a_lease_without_a_heartbeat_expires() {
        let lease = ServerLease::new();
        assert_eq!(lease.current(), None);
        lease.begin(server(1), Instant::now() + Duration::from_secs(6));
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(lease.current(), Some(server(1)));
        lease.extend(&server(1), Instant::now() + Duration::from_secs(6));
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(lease.current(), Some(server(1)));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(lease.current(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_heartbeat_of_an_earlier_lease_extends_nothing() {
        let lease = ServerLease::new();
        lease.begin(server(2), Instant::now() + Duration::from_secs(1));
        lease.extend(&server(1), Instant::now() + Duration::from_mins(1));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(lease.current(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_for_the_end_of_a_lease_and_for_the_next_one_works() {
        let lease = std::sync::Arc::new(ServerLease::new());
        lease.begin(server(1), Instant::now() + Duration::from_mins(1));
        let waiting = tokio::spawn({
            let lease = lease.clone();
            async move {
                lease.wait_until_ended(&server(1)).await;
                lease.wait_until_begun().await
            }
        });
        tokio::task::yield_now().await;
        lease.end();
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        lease.begin(server(2), Instant::now() + Duration::from_mins(1));
        assert_eq!(waiting.await.unwrap(), server(2));
    }
}
