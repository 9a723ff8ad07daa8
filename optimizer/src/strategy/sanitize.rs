//! When a program is examined for errors of memory and for races.

use nightshift_engine::workflow::WorkflowError;
use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::profile::SanitizerTool;
use nightshift_protocol::task::Target;

use super::state::RunState;
use crate::rubric;

/// Whether an attempt, once it is checked, is sanitized before it is timed: when it is the first of its subtask to come
/// that far, and when it was derived from one in which something was found.
pub(super) fn is_due_after_check(run: &RunState, number: u32) -> Result<bool, WorkflowError> {
    if run.input.target != Target::Cuda {
        return Ok(false);
    }
    let last = run.wanted_attempt(number)?;
    let same_scope = |earlier: &&Attempt| {
        (earlier.plan_version, earlier.subtask) == (last.plan_version, last.subtask) && earlier.number < last.number
    };
    let clean_before = run.attempts.iter().filter(same_scope).any(|earlier| is_clean(earlier) == Some(true));
    let parent = last.parent.and_then(|number| run.attempt(number));
    Ok(!clean_before || parent.and_then(is_clean) == Some(false))
}

/// Whether a confirmed attempt that beats the best is sanitized before it becomes the best: unless it was examined for
/// everything before it was timed.
pub(super) fn is_due_before_publication(target: Target, attempt: &Attempt) -> bool {
    let examined = attempt.sanitize.iter().flat_map(|report| &report.tools);
    target == Target::Cuda && !examined.into_iter().any(|run| run.tool == SanitizerTool::Initcheck)
}

/// Whether nothing was found in an attempt; none when nobody looked.
fn is_clean(attempt: &Attempt) -> Option<bool> {
    attempt.sanitize.as_ref().map(|report| !rubric::has_violation(&report.findings))
}
