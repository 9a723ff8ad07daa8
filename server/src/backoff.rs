//! Delay of a loop after an error, so that a broken database gets few retries.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);

/// A delay that doubles with every consecutive failure, up to a limit.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Returns the delay after another failure.
    pub(crate) fn failed(&mut self) -> Duration {
        let delay = FIRST.saturating_mul(1 << self.failures.min(16)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        delay
    }

    /// Resets the delay after a success.
    pub(crate) fn succeeded(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_doubles_up_to_the_longest_and_starts_over_after_a_success() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.failed(), FIRST);
        assert_eq!(backoff.failed(), FIRST * 2);
        for _ in 0..100 {
            backoff.failed();
        }
        assert_eq!(backoff.failed(), LONGEST);
        backoff.succeeded();
        assert_eq!(backoff.failed(), FIRST);
    }
}
