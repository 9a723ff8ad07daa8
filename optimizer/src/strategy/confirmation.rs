//! Confirmed speedups: those that a fresh process measured again.

use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::measurement::Interval;

/// The speedup that a best attempt is compared by: the published one, once a fresh process had its say.
pub(super) fn confirmed_estimate(attempt: &Attempt) -> Option<f64> {
    confirmed_speedup(attempt).map(|speedup| speedup.estimate)
}

/// The confirmed speedup, with its interval.
pub(super) fn confirmed_speedup(attempt: &Attempt) -> Option<Interval> {
    attempt.confirmation.as_ref()?;
    attempt.speedup()
}

/// The speedup over the reference that a subtask's target is compared with: the lower bound of the confirmation.
pub(super) fn confirmed_low(attempt: &Attempt) -> Option<f64> {
    confirmed_speedup(attempt).map(|speedup| speedup.low)
}
