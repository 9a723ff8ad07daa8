//! Delays between repetitions of a call.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// First and longest delay before a failed call is retried.
const BOUNDS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Exponential backoff with jitter, so that the workers of a fleet do not retry at the same moment.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(super) fn new() -> Self {
        Self { next: BOUNDS.0 }
    }

    /// Returns whether there was no failure yet.
    pub(super) fn is_fresh(&self) -> bool {
        self.next == BOUNDS.0
    }

    /// Waits for the next delay. Returns `false` when `stop` is cancelled first.
    pub(super) async fn wait(&mut self, stop: &CancellationToken) -> bool {
        let delay = self.next.mul_f64(0.5 + rand::random::<f64>() / 2.0);
        self.next = (self.next * 2).min(BOUNDS.1);
        tokio::select! {
            biased;
            () = stop.cancelled() => false,
            () = tokio::time::sleep(delay) => true,
        }
    }
}
