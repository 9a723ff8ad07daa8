//! The verdict on a program of which no step was recorded answer by answer.

use crate::attempt_outcome::AttemptOutcome;
use crate::measurement::Measurement;
use crate::reports::{BuildReport, CheckReport};
use crate::verdict::{Answer, Finding, ProcessEnd, Verdict, has_violation};

/// Returns the answers that an outcome and its evidence give.
#[must_use]
pub fn derived_verdict(
    outcome: AttemptOutcome,
    findings: &[Finding],
    build: Option<&BuildReport>,
    check: Option<&CheckReport>,
    measurement: Option<&Measurement>,
) -> Verdict {
    let compiled = match outcome {
        AttemptOutcome::CompileFailed => Answer::Fail,
        _ if build.is_some() => Answer::Pass,
        _ => Answer::Inconclusive,
    };
    // Of a program that was only checked, nothing else is known.
    let passed = |check: &CheckReport| check.end == ProcessEnd::Finished && !check.cases.is_empty();
    let is_right = outcome.is_correct() || outcome == AttemptOutcome::Pending && check.is_some_and(passed);
    let right = if is_right { Answer::Pass } else { Answer::Inconclusive };
    let timed = measurement.filter(|_| outcome.is_correct());
    Verdict {
        compiled,
        numerically_correct: if outcome == AttemptOutcome::Incorrect { Answer::Fail } else { right },
        contract_compliant: if has_violation(findings) { Answer::Fail } else { right },
        fast: timed.map_or(Answer::Inconclusive, Measurement::is_fast),
        custom_kernel_time_share: None,
    }
}
