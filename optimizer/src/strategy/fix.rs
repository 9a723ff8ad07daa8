//! Fix turns: within an attempt, the Coder is asked to fix a program that does not build or that the screening refuses, so
//! often as the goal says. A fix turn is asked for what the repair of the attempt would be asked for.
//!
//! While a turn is open, the attempt shows the version that failed, with its outcome: it stays what the attempt is when the
//! turn brings no other version. Steps of turn 1 have keys like `subtask1/attempt3/fix1/build`.

use std::borrow::Cow;

use nightshift_protocol::attempt::{Attempt, AttemptOutcome, EarlierVersion, Stage};
use nightshift_protocol::verdict::Verdict;

use super::attempt_step::AfterStep;
use super::attempt_step::AttemptStep;
use super::opening::Failure;
use super::rules;

/// Returns the outcome of the version that a turn is to fix; none while the attempt has no version that failed.
pub(super) fn unfixed(attempt: &Attempt) -> Option<AttemptOutcome> {
    attempt.source.as_ref().map(|_| attempt.outcome).filter(|outcome| *outcome != AttemptOutcome::Pending)
}

/// Returns the stage whose prompt a turn of the attempt is given; none for its first program.
pub(super) fn stage(attempt: &Attempt) -> Option<Stage> {
    Some(Failure::of(unfixed(attempt)?)?.repair(attempt).stage)
}

/// Returns the number of the turn that an open step belongs to; 0 for the first version.
pub(super) fn turn(attempt: &Attempt, step: AttemptStep) -> u32 {
    let earlier = u32::try_from(attempt.earlier_versions.len()).unwrap_or(u32::MAX);
    match step {
        AttemptStep::WriteCode if unfixed(attempt).is_some() => earlier.saturating_add(1),
        AttemptStep::WriteCode | AttemptStep::Build => earlier,
        _ => 0,
    }
}

/// Returns the last segments of the key of an open step.
pub(super) fn step_name(attempt: &Attempt, step: AttemptStep) -> Cow<'static, str> {
    if let Some(turn) = attempt.turns.last() {
        return Cow::Owned(format!("turn{}/{}", turn.number, step.as_str()));
    }
    match turn(attempt, step) {
        0 => Cow::Borrowed(step.as_str()),
        turn => Cow::Owned(format!("fix{turn}/{}", step.as_str())),
    }
}

/// Goes on with a fix turn where the attempt would be finished and a turn is left. What tries to deceive gets none.
pub(super) fn or_turn(max_fix_turns: u32, rules: u32, attempt: &Attempt, after: AfterStep) -> AfterStep {
    let is_left = attempt.earlier_versions.len() < usize::try_from(max_fix_turns).unwrap_or(usize::MAX);
    if after == AfterStep::Finished && is_left && !rules::is_major_hacking(rules, &attempt.findings) {
        AfterStep::Step(AttemptStep::WriteCode)
    } else {
        after
    }
}

/// Moves the version that failed to the earlier ones, so that the attempt can take the next one.
pub(super) fn set_aside_version(attempt: &mut Attempt) {
    if unfixed(attempt).is_none() {
        return;
    }
    let Some(source) = attempt.source.take() else { return };
    let outcome = std::mem::replace(&mut attempt.outcome, AttemptOutcome::Pending);
    let findings = std::mem::take(&mut attempt.findings);
    attempt
        .earlier_versions
        .push(EarlierVersion { build: attempt.build.take(), ..EarlierVersion::new(source, outcome, findings) });
    attempt.verdict = Verdict::default();
}
