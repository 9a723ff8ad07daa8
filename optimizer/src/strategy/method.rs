//! Which method of its subtask an attempt carries out, where no modification is asked for. What was tried already is not asked
//! for again.

use nightshift_protocol::attempt::{Attempt, AttemptOutcome, Stage};
use nightshift_protocol::plan::Subtask;

use super::state::RunState;

/// Returns the number of the method, from 1; nothing where a modification is asked for, and where every method was tried.
pub(super) fn of(run: &RunState, attempt: &Attempt) -> Option<u32> {
    if !carries_out_subtask(run, attempt) {
        return None;
    }
    let methods = u32::try_from(subtask(run, attempt)?.methods.len()).ok()?;
    let number = match attempt.candidate.filter(|candidate| candidate.group.is_none()) {
        // Candidates of a round take the methods in turn.
        Some(candidate) => candidate.number.checked_sub(1)?.checked_rem(methods)? + 1,
        None => tried(run, attempt) + 1,
    };
    (number <= methods).then_some(number)
}

/// Returns the subtask of an attempt, also where its plan was given up.
pub(super) fn subtask<'a>(run: &'a RunState, attempt: &Attempt) -> Option<&'a Subtask> {
    let plan = run.plans.iter().find(|plan| plan.version == attempt.plan_version)?;
    plan.plan.subtasks.get(usize::try_from(attempt.subtask.checked_sub(1)?).ok()?)
}

/// Methods of the same subtask that earlier attempts carried out. What gave no program tried nothing, and the members of a group
/// have one prompt.
fn tried(run: &RunState, attempt: &Attempt) -> u32 {
    let scope = (attempt.plan_version, attempt.subtask);
    let earlier = run.earlier_than(attempt.number).iter().filter(|earlier| {
        (earlier.plan_version, earlier.subtask) == scope
            && earlier.outcome != AttemptOutcome::NoCode
            && earlier.candidate.and_then(|candidate| candidate.group).is_none_or(|first| first == earlier.number)
            && carries_out_subtask(run, earlier)
    });
    u32::try_from(earlier.count()).unwrap_or(u32::MAX)
}

/// Whether an attempt is the subtask itself: its first program, or one on a program of another subtask or plan.
fn carries_out_subtask(run: &RunState, attempt: &Attempt) -> bool {
    let scope = |attempt: &Attempt| (attempt.plan_version, attempt.subtask);
    attempt.modification.is_none()
        && match attempt.stage {
            Stage::Draft => true,
            Stage::Optimize => {
                let parent = attempt.parent.and_then(|number| run.attempt(number));
                parent.is_some_and(|parent| scope(parent) != scope(attempt))
            }
            _ => false,
        }
}
