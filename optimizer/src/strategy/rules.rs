//! Rules that changed: a run is decided to its end by the version that it began with, because its log is decided anew
//! whenever a server takes it over.

use nightshift_protocol::measurement::Interval;

/// The version of runs that begin now.
pub const RULES: u32 = 3;

/// From this version on, noise alone makes no new best.
const BY_INTERVAL: u32 = 2;

/// From this version on, a check that was too slow is given up.
const GIVES_UP: u32 = 3;

/// Whether a check of the sanitizer that was too slow for one program of a run is not asked about it again, nor about those
/// that follow: on full sizes it takes ten thousand times as long as the program, and the device with it.
pub(super) fn gives_up_slow_checks(rules: u32) -> bool {
    rules >= GIVES_UP
}

/// Whether a measurement may stand for a program that is faster than the best one, so that a fresh process has to confirm
/// it. First by its estimate, and so programs of one speed were confirmed and published in turns; since version 2 by its
/// whole interval.
pub(super) fn may_beat(rules: u32, measured: Interval, best: f64) -> bool {
    if rules < BY_INTERVAL { measured.estimate > best } else { measured.low > best }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_noise_explains_is_a_new_best_by_the_first_rules_alone() {
        let measured = Interval { estimate: 2.02, low: 1.99, high: 2.05 };
        assert!(may_beat(1, measured, 2.0));
        assert!(!may_beat(2, measured, 2.0));
        assert!(may_beat(2, measured, 1.98));
    }
}
