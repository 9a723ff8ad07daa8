//! Rules that changed: a run is decided to its end by the version that it began with, because its log is decided anew
//! whenever a server takes it over.

use nightshift_protocol::measurement::{Interval, Measurement};
use nightshift_protocol::verdict::{Finding, Severity, shows_deception};

/// The version of runs that begin now.
pub const RULES: u32 = 5;

/// From this version on, noise alone makes no new best.
const BY_INTERVAL: u32 = 2;

/// From this version on, a check that was too slow is given up.
const GIVES_UP: u32 = 3;

/// From this version on, only deception is a grave cheat.
const BY_DECEPTION: u32 = 4;

/// From this version on, a change that made the best program is no failure, however small its gain.
const KEEPS_SMALL_GAINS: u32 = 5;

/// From this version on, a measurement that is too wide to tell a gain from none is repeated.
const REPEATS_WIDE: u32 = 5;

/// Violations that were mistakes already before that; those of the sanitizer's checks were, too.
const MISTAKES_BEFORE: [&str; 11] = [
    "input_modified",
    "source_too_large",
    "empty_source",
    "not_text",
    "hidden_text",
    "lookalike_name",
    "forbidden_library",
    "forbidden_include",
    "threads",
    "managed_memory",
    "exits",
];
const SANITIZER_CHECKS: [&str; 4] = ["memcheck", "racecheck", "initcheck", "sanitizer"];

/// Whether findings show a grave cheat. First every violation did that was on no list of mistakes, and so honest programs were
/// accused.
pub(super) fn is_major_hacking(rules: u32, findings: &[Finding]) -> bool {
    if rules >= BY_DECEPTION {
        return shows_deception(findings);
    }
    let mistake =
        |code: &str| MISTAKES_BEFORE.contains(&code) || SANITIZER_CHECKS.iter().any(|check| code.starts_with(check));
    findings.iter().any(|finding| finding.severity == Severity::Violation && !mistake(&finding.code))
}

/// Whether a check of the sanitizer that was too slow for one program of a run is not asked about it again, nor about those
/// that follow: on full sizes it takes ten thousand times as long as the program, and the device with it.
pub(super) fn gives_up_slow_checks(rules: u32) -> bool {
    rules >= GIVES_UP
}

/// Whether a change that made the best program counts as one that helped. First it counted as a failure when its gain was below the
/// least one that a plan is kept for, and so the agents were told to avoid what the best program does.
pub(super) fn keeps_small_gains(rules: u32) -> bool {
    rules >= KEEPS_SMALL_GAINS
}

/// Whether a measurement may stand for a program that is faster than the best one, so that a fresh process has to confirm
/// it. First by its estimate, and so programs of one speed were confirmed and published in turns; since version 2 by its
/// whole interval.
pub(super) fn may_beat(rules: u32, measured: Interval, best: f64) -> bool {
    if rules < BY_INTERVAL { measured.estimate > best } else { measured.low > best }
}

/// Whether an attempt is measured again, in a fresh process: because it may be faster than the best one, or because its measurement
/// is less precise than wanted and reaches above `wall`, from which on a gain counts. Before version 5 such a measurement counted
/// as no gain.
pub(super) fn is_to_be_confirmed(rules: u32, measurement: &Measurement, best: f64, wall: f64) -> bool {
    let is_wide = !measurement.precise && measurement.speedup.high > wall;
    may_beat(rules, measurement.speedup, best) || (rules >= REPEATS_WIDE && is_wide)
}

/// Whether a confirmed attempt is faster than the best one: by its estimate where the first measurement, too, said so; else, since
/// version 5, by the whole interval of the confirmation.
pub(super) fn beats(rules: u32, first: Option<Interval>, confirmed: Interval, best: f64) -> bool {
    let said_so = rules < REPEATS_WIDE || first.is_none_or(|first| may_beat(rules, first, best));
    confirmed.estimate > best && (said_so || may_beat(rules, confirmed, best))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_defect_is_a_grave_cheat_by_older_rules_alone() {
        let found = |code: &str| {
            let message = String::new();
            [Finding { code: code.to_owned(), severity: Severity::Violation, message, line: None }]
        };
        let mistakes =
            ["memcheck", "memcheck.invalid_write", "racecheck", "initcheck", "forbidden_library", "managed_memory"];
        let mistakes = mistakes.map(|code| (code, false, false));
        let others = [("files", true, false), ("stale_output", true, false), ("prebuilt_code", true, true)];
        for (code, before, now) in mistakes.into_iter().chain(others) {
            let said = (is_major_hacking(3, &found(code)), is_major_hacking(4, &found(code)));
            assert_eq!(said, (before, now), "{code}");
        }
    }

    #[test]
    fn what_noise_explains_is_a_new_best_by_the_first_rules_alone() {
        let measured = Interval { estimate: 2.02, low: 1.99, high: 2.05 };
        assert!(may_beat(1, measured, 2.0));
        assert!(!may_beat(2, measured, 2.0));
        assert!(may_beat(2, measured, 1.98));
    }
}
