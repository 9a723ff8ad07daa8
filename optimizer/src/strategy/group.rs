//! Group sampling, for training data: each round is one question that is asked so many times at once, word for word, and
//! every answer is verified. What the next group is asked follows from the best answer so far; which of a group's answers
//! are better than the others is what a trainer learns from.
//!
//! Groups are the purpose here, so the search goes on as long as another group fits into the budget, also where the
//! Verifier sees nothing more to gain. A group has at least two members: a single one could not be compared.

use nightshift_engine::workflow::WorkflowError;
use nightshift_protocol::attempt::{Attempt, DecidedBy, Route, RouteDecision, StopReason};

use super::goal::Limits;
use super::opening::{Failure, Opening};
use super::routing::{
    Advised, AfterSubtask, Next, Routed, advised, after_subtask, by, by_rule, first_of_scope, optimize, replans_left,
    subtask_target, target_reached, with_advice,
};
use super::state::{RunState, broken};
use super::{MIN_GROUP, Strategy};

/// Attempts of a run, unless task or campaign say otherwise: four groups of four.
const ATTEMPTS: u32 = 16;

/// See the module.
pub(super) struct Group;

impl Strategy for Group {
    fn name(&self) -> &'static str {
        "group"
    }

    fn about(&self) -> &'static str {
        "groups of answers to the very same prompt, every one verified, for training; each group from the best so far"
    }

    fn default_max_attempts(&self) -> u32 {
        ATTEMPTS
    }

    fn same_prompt(&self) -> bool {
        true
    }

    fn takes_candidates(&self) -> bool {
        true
    }

    fn begin(&self, run: &RunState) -> Vec<Opening> {
        sampled(run, &run.limits(), &first_of_scope(run, 1))
    }

    fn next(&self, run: &RunState, finished: &[u32]) -> Result<(RouteDecision, Next), WorkflowError> {
        let limits = run.limits();
        let group = finished.iter().map(|number| run.wanted_attempt(*number)).collect::<Result<Vec<_>, _>>()?;
        let leader = leader(&group).ok_or_else(|| broken("no attempt is finished"))?;
        let routed = target_reached(run, &limits)
            .or_else(|| no_group_left(run, &limits))
            .or_else(|| all_failed(run, &limits, leader))
            .or_else(|| {
                let reason = subtask_target(run, leader.subtask)?;
                Some(subtask_done(run, &limits, leader, DecidedBy::Rule, &reason))
            })
            .unwrap_or_else(|| diagnosed(run, &limits, leader));
        Ok(with_advice(routed, leader))
    }
}

/// How far up the ladder an attempt came; a right one, how fast it is.
fn height(attempt: &Attempt) -> (u32, f64) {
    match Failure::of(attempt.outcome) {
        Some(Failure::NoCode) => (0, 0.0),
        Some(Failure::Compliance) => (1, 0.0),
        Some(Failure::Compile) => (2, 0.0),
        Some(Failure::Runtime) => (3, 0.0),
        Some(Failure::Incorrect) => (4, 0.0),
        None => (5, attempt.speedup().map_or(0.0, |speedup| speedup.estimate)),
    }
}

/// The member of a group that came furthest, of equal ones the first.
fn leader<'a>(group: &[&'a Attempt]) -> Option<&'a Attempt> {
    let above = |one: (u32, f64), other: (u32, f64)| one.0.cmp(&other.0).then(one.1.total_cmp(&other.1)).is_gt();
    group.iter().copied().reduce(|best, next| if above(height(next), height(best)) { next } else { best })
}

fn left(run: &RunState, limits: &Limits) -> u32 {
    limits.max_attempts.saturating_sub(run.attempt_count())
}

/// The same opening for each member of a group: as many as the goal says, the last group as many as may still be made.
fn sampled(run: &RunState, limits: &Limits, opening: &Opening) -> Vec<Opening> {
    let size = left(run, limits).min(limits.candidates_per_round.max(MIN_GROUP)).max(1);
    vec![opening.clone(); usize::try_from(size).unwrap_or(1)]
}

fn no_group_left(run: &RunState, limits: &Limits) -> Option<Routed> {
    let left = left(run, limits);
    (left < MIN_GROUP).then(|| {
        let reason = match left {
            0 => format!("all {} attempts are used up", limits.max_attempts),
            _ => format!("of {} attempts {left} is left, which is no group", limits.max_attempts),
        };
        (by_rule("groups_used_up", Route::Stop, reason), Next::Stop(StopReason::AttemptBudget))
    })
}

/// A group without a right answer: the one that came furthest is mended, by a whole group again. Plans are given up for
/// groups as the paper's loop gives them up for attempts.
fn all_failed(run: &RunState, limits: &Limits, leader: &Attempt) -> Option<Routed> {
    let failure = Failure::of(leader.outcome)?;
    let last_right = run.attempts().rev().find(|attempt| attempt.outcome.is_correct());
    let starts = run.attempts().filter(|attempt| {
        attempt.plan_version == leader.plan_version && attempt.candidate.is_none_or(|candidate| candidate.number == 1)
    });
    let groups = starts.filter(|start| last_right.is_none_or(|right| start.number > right.number)).count();
    if groups >= usize::try_from(limits.replan_after_failed).unwrap_or(usize::MAX) && replans_left(run, limits) {
        let reason = format!("the last {groups} groups of this plan gave no right program");
        return Some((by_rule("failed_in_a_row", Route::Replan, reason.clone()), Next::Replan { reason }));
    }
    let reason =
        format!("none of the group is right; attempt {} came furthest and {}", leader.number, failure.describe());
    let openings = sampled(run, limits, &failure.repair(leader));
    Some((by_rule("repair", Route::Repair, reason), Next::Attempts(openings)))
}

fn diagnosed(run: &RunState, limits: &Limits, leader: &Attempt) -> Routed {
    let onward = |decision| (decision, Next::Attempts(sampled(run, limits, &optimize(run, leader))));
    match advised(run, limits, leader) {
        Advised::Routed((decision, Next::Stop(_))) => {
            let reason = format!("every group is used, though {}", decision.reason);
            onward(by_rule("all_groups", Route::Optimize, reason))
        }
        Advised::Routed(routed) => routed,
        Advised::NextSubtask { reason } => subtask_done(run, limits, leader, DecidedBy::Model, &reason),
        Advised::Optimize(decision) => onward(decision),
    }
}

/// On to the next subtask. After the last one a plan is done, the groups are not.
fn subtask_done(run: &RunState, limits: &Limits, leader: &Attempt, decided_by: DecidedBy, reason: &str) -> Routed {
    let onward = |reason: String| {
        let openings = sampled(run, limits, &optimize(run, leader));
        (by_rule("all_groups", Route::Optimize, reason), Next::Attempts(openings))
    };
    match after_subtask(run, limits, leader, decided_by, reason) {
        AfterSubtask::Following(subtask) => {
            let decision = by("subtask_target", decided_by, Route::NextSubtask, reason.to_owned());
            (decision, Next::Attempts(sampled(run, limits, &first_of_scope(run, subtask))))
        }
        AfterSubtask::Routed((decision, Next::Stop(_))) => onward(format!("{}; every group is used", decision.reason)),
        AfterSubtask::Routed(routed) => routed,
        AfterSubtask::GoOn { reason } => onward(reason),
    }
}
