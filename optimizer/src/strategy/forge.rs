//! Coder and judge in turns, ten rounds by default, without a plan: each round starts from the latest program and the
//! latest feedback, and from nothing else. The judge is the Verifier: it says what to mend in a program that failed and
//! what to change in one that is right. The best program of all rounds is the result.

use nightshift_engine::workflow::WorkflowError;
use nightshift_protocol::attempt::{Attempt, Route, RouteDecision, Stage};

use super::opening::{Failure, Opening};
use super::routing::{Next, Routed, attempts_used_up, by_model, by_rule, first_of_scope, target_reached, with_advice};
use super::state::{RunState, broken};
use super::{Strategy, modification};

/// Rounds of a run, unless task or campaign say otherwise.
const ROUNDS: u32 = 10;

/// Why a change that failed is asked for again.
const NO_MEMORY: &str =
    "this strategy carries only the latest program and its feedback, and the Verifier asked for it again";

/// See the module.
pub(super) struct Forge;

impl Strategy for Forge {
    fn name(&self) -> &'static str {
        "forge"
    }

    fn about(&self) -> &'static str {
        "coder and judge in turns for ten rounds, without a plan, each round from the latest program and its feedback"
    }

    fn default_max_attempts(&self) -> u32 {
        ROUNDS
    }

    fn plans(&self) -> bool {
        false
    }

    fn corrects(&self) -> bool {
        true
    }

    fn remembers(&self) -> bool {
        false
    }

    fn begin(&self, run: &RunState) -> Vec<Opening> {
        vec![first_of_scope(run, 1)]
    }

    fn next(&self, run: &RunState, finished: &[u32]) -> Result<(RouteDecision, Next), WorkflowError> {
        let limits = run.limits();
        let number = finished.last().copied().ok_or_else(|| broken("no attempt is finished"))?;
        let last = run.wanted_attempt(number)?;
        let routed = target_reached(run, &limits)
            .or_else(|| attempts_used_up(run, &limits))
            .or_else(|| repaired(last))
            .unwrap_or_else(|| optimized(run, last));
        Ok(with_advice(routed, last))
    }
}

fn repaired(last: &Attempt) -> Option<Routed> {
    let failure = Failure::of(last.outcome)?;
    let fact = format!("attempt {} {}", last.number, failure.describe());
    let decision = match &last.correction {
        Some(correction) => {
            by_model(Route::Repair, format!("{fact}; the Verifier sees: {}", correction.critical_issue))
        }
        None => by_rule("repair", Route::Repair, fact),
    };
    Some((decision, Next::Attempts(vec![failure.repair(last)])))
}

/// Every round is used, also when the judge sees nothing more to gain.
fn optimized(run: &RunState, last: &Attempt) -> Routed {
    let decision = match &last.diagnosis {
        Some(diagnosis) if diagnosis.route == Route::Optimize => {
            by_model(Route::Optimize, format!("the Verifier sees: {}", diagnosis.critical_issue))
        }
        Some(diagnosis) => by_rule(
            "all_rounds",
            Route::Optimize,
            format!("every round is used, though the Verifier sees: {}", diagnosis.critical_issue),
        ),
        None => {
            by_rule("no_diagnosis", Route::Optimize, "there is no diagnosis: the latest program goes on".to_owned())
        }
    };
    let opening = Opening {
        subtask: last.subtask,
        stage: Stage::Optimize,
        parent: Some(last.number),
        modification: modification::choose_again(run, last, NO_MEMORY),
    };
    (decision, Next::Attempts(vec![opening]))
}
