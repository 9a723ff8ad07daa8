//! An agent session: the Coder is given the plan and tools, and works over many turns. It builds, checks, measures and profiles
//! programs as it likes, and submits those that it wants to have counted. A submission is an attempt.

use nightshift_engine::workflow::WorkflowError;
use nightshift_protocol::attempt::{Route, RouteDecision, StopReason};

use super::Strategy;
use super::goal::Limits;
use super::opening::Opening;
use super::routing::{Next, Routed, attempts_used_up, by_model, by_rule, first_of_scope, target_reached, with_advice};
use super::session;
use super::state::{RunState, broken};
use crate::roofline::NEAR_ROOFLINE;

/// See the module.
pub(super) struct Agent;

impl Strategy for Agent {
    fn name(&self) -> &'static str {
        "agent"
    }

    fn about(&self) -> &'static str {
        "plan, then an agent session: the Coder builds, checks, measures and profiles over many turns, and submits programs"
    }

    fn has_session(&self) -> bool {
        true
    }

    fn begin(&self, run: &RunState) -> Vec<Opening> {
        vec![first_of_scope(run, 1)]
    }

    fn next(&self, run: &RunState, finished: &[u32]) -> Result<(RouteDecision, Next), WorkflowError> {
        let limits = run.limits();
        let number = finished.last().copied().ok_or_else(|| broken("no attempt is finished"))?;
        let last = run.wanted_attempt(number)?;
        let routed = target_reached(run, &limits)
            .or_else(|| finished_by_the_agent(run))
            .or_else(|| near_roofline(run))
            .or_else(|| attempts_used_up(run, &limits))
            .or_else(|| turns_used_up(run, &limits))
            .unwrap_or_else(|| {
                let reason = format!("attempt {number} is submitted, the session goes on");
                let decision = by_rule("session", Route::Optimize, reason);
                (decision, Next::Attempts(vec![first_of_scope(run, 1)]))
            });
        Ok(with_advice(routed, last))
    }
}

fn finished_by_the_agent(run: &RunState) -> Option<Routed> {
    session::is_finished(run).then(|| {
        let said = session::summary(run).map_or_else(String::new, |summary| format!(": {summary}"));
        let reason = format!("the agent ended its session{said}");
        (by_model(Route::Stop, reason), Next::Stop(StopReason::AgentFinished))
    })
}

fn near_roofline(run: &RunState) -> Option<Routed> {
    let best = run.best()?;
    let share = best.roofline_share().filter(|share| *share >= NEAR_ROOFLINE)?;
    let reason = format!("attempt {} reaches {:.0} % of the roofline", best.number, share * 100.0);
    Some((by_rule("near_roofline", Route::Stop, reason), Next::Stop(StopReason::NearRoofline)))
}

fn turns_used_up(run: &RunState, limits: &Limits) -> Option<Routed> {
    if session::following_turn(run) <= limits.max_turns {
        return None;
    }
    let reason = format!("all {} turns are used up", limits.max_turns);
    if session::worth_submitting(run).is_some() {
        let reason = format!("{reason}, and a program that was not submitted is faster than the best one");
        let next = Next::Attempts(vec![first_of_scope(run, 1)]);
        return Some((by_rule("turns_used_up", Route::Optimize, reason), next));
    }
    Some((by_rule("turns_used_up", Route::Stop, reason), Next::Stop(StopReason::TurnBudget)))
}
