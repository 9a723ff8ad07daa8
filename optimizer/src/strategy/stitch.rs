//! The paper's loop: a plan, its subtasks one after the other, one attempt at a time; repair first, optimize only what is
//! right, and always from the best program; plan anew when a plan fails or stagnates.

use nightshift_engine::workflow::WorkflowError;
use nightshift_protocol::attempt::{Attempt, DecidedBy, Route, RouteDecision};

use super::Strategy;
use super::goal::Limits;
use super::opening::Opening;
use super::routing::{
    Advised, AfterSubtask, Next, Routed, advised, after_subtask, attempts_used_up, by, by_rule, failed, first_of_scope,
    optimize, stagnated, subtask_target, target_reached, with_advice,
};
use super::state::{RunState, broken};

/// See the module.
pub(super) struct Stitch;

impl Strategy for Stitch {
    fn name(&self) -> &'static str {
        "stitch"
    }

    fn about(&self) -> &'static str {
        "plan, then one attempt at a time, subtask by subtask, from the best program; plan anew when it stagnates"
    }

    fn begin(&self, run: &RunState) -> Vec<Opening> {
        vec![first_of_scope(run, 1)]
    }

    /// The rules are asked in the order in which they stand here; the first that answers decides.
    fn next(&self, run: &RunState, finished: &[u32]) -> Result<(RouteDecision, Next), WorkflowError> {
        let limits = run.limits();
        let number = finished.last().copied().ok_or_else(|| broken("no attempt is finished"))?;
        let last = run.wanted_attempt(number)?;
        let routed = target_reached(run, &limits)
            .or_else(|| attempts_used_up(run, &limits))
            .or_else(|| failed(run, &limits, last))
            .or_else(|| {
                let reason = subtask_target(run, last.subtask)?;
                Some(subtask_done(run, &limits, last, DecidedBy::Rule, &reason))
            })
            .or_else(|| stagnated(run, &limits, last))
            .unwrap_or_else(|| diagnosed(run, &limits, last));
        Ok(with_advice(routed, last))
    }
}

fn diagnosed(run: &RunState, limits: &Limits, last: &Attempt) -> Routed {
    match advised(run, limits, last) {
        Advised::Routed(routed) => routed,
        Advised::NextSubtask { reason } => subtask_done(run, limits, last, DecidedBy::Model, &reason),
        Advised::Optimize(decision) => (decision, Next::Attempts(vec![optimize(run, last)])),
    }
}

fn subtask_done(run: &RunState, limits: &Limits, last: &Attempt, decided_by: DecidedBy, reason: &str) -> Routed {
    match after_subtask(run, limits, last, decided_by, reason) {
        AfterSubtask::Routed(routed) => routed,
        AfterSubtask::Following(subtask) => {
            let decision = by("subtask_target", decided_by, Route::NextSubtask, reason.to_owned());
            (decision, Next::Attempts(vec![first_of_scope(run, subtask)]))
        }
        AfterSubtask::GoOn { reason } => {
            (by_rule("target_ahead", Route::Optimize, reason), Next::Attempts(vec![optimize(run, last)]))
        }
    }
}
