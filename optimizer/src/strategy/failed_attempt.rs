//! The end of an attempt that failed: no agent judges it.

use nightshift_protocol::attempt::{Attempt, AttemptOutcome};
use nightshift_protocol::rubric::RewardBreakdown;
use nightshift_protocol::verdict::{Answer, has_violation};

use super::attempt_step::{AfterStep, AttemptStep};
use super::rules;
use crate::reward;
use crate::rubric;

/// No agent judges an attempt that failed: its reward follows from the failure alone.
pub(super) fn reward_of_failure(rules: u32, attempt: &Attempt) -> RewardBreakdown {
    let lambda = reward::lambda(rubric::skill_of(attempt.stage));
    let speedup = attempt.speedup().map_or(0.0, |speedup| speedup.estimate);
    let major_hacking = rules::is_major_hacking(rules, &attempt.findings);
    reward::of_parts(false, major_hacking, speedup, None, lambda)
}

pub(super) fn unless_violated(attempt: &mut Attempt, next: AttemptStep) -> AfterStep {
    if has_violation(&attempt.findings) { failed(attempt, AttemptOutcome::NotCompliant) } else { AfterStep::Step(next) }
}

/// Ends an attempt that no agent judges.
pub(super) fn failed(attempt: &mut Attempt, outcome: AttemptOutcome) -> AfterStep {
    attempt.outcome = outcome;
    if outcome == AttemptOutcome::NotCompliant {
        attempt.verdict.contract_compliant = Answer::Fail;
    }
    AfterStep::Finished
}
