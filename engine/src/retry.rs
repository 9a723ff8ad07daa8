//! Decides what follows a failed try.

use nightshift_protocol::step::{FailureClass, StepFailure};
use serde::{Deserialize, Serialize};

/// Retry policy of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// Total number of tries. A lost worker counts as one.
    pub max_tries: u32,
    /// Delay after the first failure, in milliseconds; doubles with each further one.
    pub first_delay_ms: u64,
    /// Longest delay, in milliseconds.
    pub max_delay_ms: u64,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { max_tries: 5, first_delay_ms: 500, max_delay_ms: 60_000 }
    }
}

/// Maximum number of tries of a step without a usable reply for which a provider may charge.
pub const MAX_CHARGED_TRIES: u32 = 3;

/// What follows a failed try.
#[derive(Debug, Clone, PartialEq)]
pub enum AfterFailure {
    /// Try again after this delay.
    Retry {
        /// Delay in milliseconds.
        delay_ms: u64,
    },
    /// Give up.
    GiveUp {
        /// The failure to record: the last one, marked as exhausted when the tries ran out.
        failure: StepFailure,
    },
}

/// Decides what follows the failure of try number `tries` (from 1).
///
/// `jitter` is in `[0, 1)`. The delay is between half of the exponential backoff and the whole of it.
#[must_use]
pub fn after_failure(policy: &RetryPolicy, tries: u32, failure: &StepFailure, jitter: f64) -> AfterFailure {
    if failure.class == FailureClass::Fatal {
        return AfterFailure::GiveUp { failure: failure.clone() };
    }
    if tries >= policy.max_tries || failure.charged_tries >= MAX_CHARGED_TRIES {
        let mut exhausted = failure.clone();
        exhausted.class = FailureClass::Fatal;
        let charged = match failure.charged_tries {
            charged if charged >= MAX_CHARGED_TRIES => format!(": the provider may have charged for {charged} of them"),
            _ => String::new(),
        };
        exhausted.message = format!("{} (given up after {tries} tries{charged})", failure.message);
        return AfterFailure::GiveUp { failure: exhausted };
    }
    let doublings = tries.saturating_sub(1).min(32);
    let whole_ms = policy.first_delay_ms.saturating_mul(1 << doublings).min(policy.max_delay_ms);
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a delay of minutes is far below 2^52 ms and the product is not negative"
    )]
    let jittered_ms = (whole_ms as f64 * (0.5 + jitter.clamp(0.0, 1.0) / 2.0)) as u64;
    AfterFailure::Retry { delay_ms: jittered_ms.max(failure.retry_after_ms.unwrap_or(0)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: RetryPolicy = RetryPolicy { max_tries: 3, first_delay_ms: 1_000, max_delay_ms: 1_500 };

    #[test]
    fn delays_double_up_to_the_longest() {
        let failure = StepFailure::retriable("x", "x");
        assert_eq!(after_failure(&POLICY, 1, &failure, 1.0), AfterFailure::Retry { delay_ms: 1_000 });
        assert_eq!(after_failure(&POLICY, 2, &failure, 1.0), AfterFailure::Retry { delay_ms: 1_500 });
        assert_eq!(after_failure(&POLICY, 1, &failure, 0.0), AfterFailure::Retry { delay_ms: 500 });
    }

    #[test]
    fn the_last_try_is_the_last() {
        let failure = StepFailure::retriable("x", "the network is down");
        let AfterFailure::GiveUp { failure } = after_failure(&POLICY, 3, &failure, 0.0) else { panic!("gave not up") };
        assert_eq!(failure.class, FailureClass::Fatal);
        assert!(failure.message.contains("3 tries"));
    }

    #[test]
    fn tries_that_may_be_charged_for_are_given_up_early() {
        let patient = RetryPolicy { max_tries: 40, ..POLICY };
        let mut failure = StepFailure::retriable("model.timeout", "no reply");
        failure.charged_tries = MAX_CHARGED_TRIES - 1;
        assert!(matches!(after_failure(&patient, 9, &failure, 0.0), AfterFailure::Retry { .. }));
        failure.charged_tries = MAX_CHARGED_TRIES;
        let AfterFailure::GiveUp { failure } = after_failure(&patient, 9, &failure, 0.0) else { panic!("gave not up") };
        assert!(failure.message.contains("9 tries: the provider may have charged for 3 of them"), "{failure}");
    }

    #[test]
    fn a_retry_delay_from_the_provider_is_used() {
        let mut failure = StepFailure::retriable("x", "x");
        failure.retry_after_ms = Some(30_000);
        assert_eq!(after_failure(&POLICY, 1, &failure, 0.0), AfterFailure::Retry { delay_ms: 30_000 });
    }
}
