//! Chooses the one change that an attempt is asked for. A change that is known not to help needs a reason.

use nightshift_protocol::attempt::{Attempt, AttemptOutcome, Diagnosis, Stage};
use nightshift_protocol::attempt_memory::{Modification, TriedModification};

use super::confirmation::confirmed_estimate;
use super::rules;
use super::shared::Shared;
use super::state::RunState;
use crate::change_text::{Words, same_modification};

/// Every change that was asked for, oldest first, with what became of it. A repair goes on with the change of the attempt
/// that it repairs, so that the last of them has the last word.
pub(super) fn tried(run: &RunState, attempts: &[Shared<Attempt>]) -> Vec<TriedModification> {
    let (rules, min_gain) = (run.input.rules, run.limits().min_gain);
    let mut all: Vec<TriedModification> = Vec::new();
    let mut best: Option<f64> = None;
    for attempt in attempts {
        let confirmed = confirmed_estimate(attempt).filter(|_| attempt.outcome.is_correct());
        let made_best = rules::keeps_small_gains(rules) && confirmed.is_some() && confirmed > best;
        best = if confirmed > best { confirmed } else { best };
        let Some(modification) = &attempt.modification else { continue };
        let now = TriedModification {
            text: modification.text.clone(),
            attempt: attempt.number,
            outcome: attempt.outcome,
            expected: modification.expected_gain,
            measured: attempt.gain.map(|gain| gain.measured),
            failed: !made_best && is_failure(attempt, min_gain),
        };
        let repaired = match (attempt.stage, attempt.parent) {
            (Stage::Draft | Stage::Optimize, _) | (_, None) => None,
            (_, Some(parent)) => all.iter_mut().find(|earlier| earlier.attempt == parent),
        };
        match repaired {
            Some(earlier) => *earlier = now,
            None => all.push(now),
        }
    }
    all
}

/// Known not to help: what is still in the works is not known yet, what gave no program was not tried, and what could not
/// be compared is not known either.
fn is_failure(attempt: &Attempt, min_gain: f64) -> bool {
    match attempt.outcome {
        AttemptOutcome::Pending | AttemptOutcome::NoCode => false,
        outcome if !outcome.is_correct() => true,
        _ => attempt.gain.is_some_and(|gain| gain.measured < 1.0 + min_gain),
    }
}

/// What an attempt that starts from `parent` is asked for: what the Verifier advised on the parent, or, when that failed
/// already, on the newest attempt. Neither when both are known not to help, or are made by one of `beside`, which begin at
/// the same time: the author then chooses, and its prompt lists the failed changes.
pub(super) fn choose(
    run: &RunState,
    parent: &Attempt,
    newest: &Attempt,
    beside: &[Modification],
) -> Option<Modification> {
    let tried = tried(run, &run.attempts);
    let mut advisers = vec![parent];
    if newest.number != parent.number && same_scope(parent, newest) {
        advisers.push(newest);
    }
    advisers.into_iter().find_map(|adviser| {
        let asked = asked(adviser.diagnosis.as_ref()?, parent, adviser, &tried);
        let is_new = asked.repeats.is_none() || asked.because.is_some();
        let is_taken = beside.iter().any(|other| same_modification(&other.text, &asked.text));
        (is_new && !is_taken).then_some(asked)
    })
}

/// What the diagnosis of `parent` asks for, also when it failed before: for strategies without a memory, which cannot
/// know better. The request still says that it is a repetition.
pub(super) fn choose_again(run: &RunState, parent: &Attempt, because: &str) -> Option<Modification> {
    let tried = tried(run, &run.attempts);
    let mut asked = asked(parent.diagnosis.as_ref()?, parent, parent, &tried);
    if asked.repeats.is_some() && asked.because.is_none() {
        asked.because = Some(because.to_owned());
    }
    Some(asked)
}

fn asked(diagnosis: &Diagnosis, parent: &Attempt, adviser: &Attempt, tried: &[TriedModification]) -> Modification {
    let wanted = Words::of(&diagnosis.modification);
    let is_same = |earlier: &&TriedModification| {
        earlier.failed && (earlier.text == diagnosis.modification || wanted.describe(&earlier.text))
    };
    let failed = tried.iter().rev().find(is_same);
    Modification {
        text: diagnosis.modification.clone(),
        from: parent.number,
        diagnosed_on: adviser.number,
        // What is expected over another attempt says nothing about this one.
        expected_gain: diagnosis.expected_gain.filter(|_| adviser.number == parent.number),
        repeats: failed.map(|earlier| earlier.attempt),
        because: failed.and_then(|_| diagnosis.repeat_reason.clone()),
    }
}

fn same_scope(one: &Attempt, other: &Attempt) -> bool {
    (one.plan_version, one.subtask) == (other.plan_version, other.subtask)
}
