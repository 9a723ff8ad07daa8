//! Several candidates at a time over the same plan: each round begins from the fastest right programs so far, half as many
//! as there are candidates, and is routed as a whole when its last candidate is finished. A round without any right
//! program is mended candidate by candidate.

use nightshift_engine::workflow::WorkflowError;
use nightshift_protocol::attempt::{Attempt, DecidedBy, Route, RouteDecision, Stage};
use nightshift_protocol::attempt_memory::Modification;

use super::confirmation::confirmed_estimate;
use super::goal::Limits;
use super::opening::{Failure, Opening};
use super::routing::{
    Advised, AfterSubtask, Next, Routed, advised, after_subtask, attempts_used_up, by, by_rule, first_of_scope,
    give_up, replans_left, subtask_target, target_reached, with_advice,
};
use super::state::{RunState, broken};
use super::{Strategy, modification};

/// Attempts of a run, unless task or campaign say otherwise.
const ATTEMPTS: u32 = 16;

/// See the module.
pub(super) struct Beam;

impl Strategy for Beam {
    fn name(&self) -> &'static str {
        "beam"
    }

    fn about(&self) -> &'static str {
        "several candidates per round in parallel over one plan, each round from the fastest programs so far"
    }

    fn default_max_attempts(&self) -> u32 {
        ATTEMPTS
    }

    fn takes_candidates(&self) -> bool {
        true
    }

    fn begin(&self, run: &RunState) -> Vec<Opening> {
        first_round(run, &run.limits(), 1)
    }

    fn next(&self, run: &RunState, finished: &[u32]) -> Result<(RouteDecision, Next), WorkflowError> {
        let limits = run.limits();
        let round = finished.iter().map(|number| run.wanted_attempt(*number)).collect::<Result<Vec<_>, _>>()?;
        let last = *round.last().ok_or_else(|| broken("no attempt is finished"))?;
        // What its fastest program is diagnosed with counts for the round.
        let leader = fastest(round.iter().copied()).unwrap_or(last);
        let routed = target_reached(run, &limits)
            .or_else(|| attempts_used_up(run, &limits))
            .or_else(|| all_failed(run, &limits, &round, leader))
            .or_else(|| {
                let reason = subtask_target(run, leader.subtask)?;
                Some(subtask_done(run, &limits, leader, DecidedBy::Rule, &reason))
            })
            .or_else(|| stagnated(run, &limits, leader))
            .unwrap_or_else(|| match advised(run, &limits, leader) {
                Advised::Routed(routed) => routed,
                Advised::NextSubtask { reason } => subtask_done(run, &limits, leader, DecidedBy::Model, &reason),
                Advised::Optimize(decision) => (decision, Next::Attempts(next_round(run, &limits, leader))),
            });
        Ok(with_advice(routed, leader))
    }
}

/// The attempt whose measured time is best; none when none is right.
fn fastest<'a>(attempts: impl Iterator<Item = &'a Attempt>) -> Option<&'a Attempt> {
    let estimate = |attempt: &Attempt| attempt.speedup().map_or(0.0, |speedup| speedup.estimate);
    let right = attempts.filter(|attempt| attempt.outcome.is_correct());
    right.max_by(|one, other| estimate(one).total_cmp(&estimate(other)))
}

/// Candidates of the next round: as many as there may still be attempts, at most as many as the goal says.
fn width(run: &RunState, limits: &Limits) -> usize {
    let left = limits.max_attempts.saturating_sub(run.attempt_count()).max(1);
    usize::try_from(left.min(limits.candidates_per_round)).unwrap_or(1)
}

/// The first round of a subtask: all candidates start alike, and each is told to begin with another method.
fn first_round(run: &RunState, limits: &Limits, subtask: u32) -> Vec<Opening> {
    vec![first_of_scope(run, subtask); width(run, limits)]
}

/// A round in which nothing is right. Plans are given up for rounds as the paper's loop gives them up for attempts.
fn all_failed(run: &RunState, limits: &Limits, round: &[&Attempt], leader: &Attempt) -> Option<Routed> {
    if round.iter().any(|attempt| attempt.outcome.is_correct()) {
        return None;
    }
    let last_right = run.attempts().rev().find(|attempt| attempt.outcome.is_correct());
    let starts = round_starts(run, leader.plan_version);
    let rounds = starts.iter().filter(|start| last_right.is_none_or(|right| **start > right.number)).count();
    if rounds >= usize::try_from(limits.replan_after_failed).unwrap_or(usize::MAX) && replans_left(run, limits) {
        let reason = format!("the last {rounds} rounds of this plan gave no right program");
        return Some((by_rule("failed_in_a_row", Route::Replan, reason.clone()), Next::Replan { reason }));
    }
    let wanted = width(run, limits);
    let mut openings: Vec<Opening> =
        round.iter().filter_map(|attempt| Some(Failure::of(attempt.outcome)?.repair(attempt))).take(wanted).collect();
    if openings.is_empty() {
        openings = first_round(run, limits, leader.subtask);
    }
    let reason = format!("none of the {} attempts of the round is right: each is mended", round.len());
    Some((by_rule("repair", Route::Repair, reason), Next::Attempts(openings)))
}

/// The last M rounds of this plan brought no gain over the best before them.
fn stagnated(run: &RunState, limits: &Limits, leader: &Attempt) -> Option<Routed> {
    let rounds = usize::try_from(limits.replan_after_stagnant).ok()?;
    let firsts = round_starts(run, leader.plan_version);
    let oldest = firsts.len().checked_sub(rounds).and_then(|index| firsts.get(index)).copied()?;
    let earlier = run.attempts().filter(|a| a.number < oldest && a.outcome.is_correct());
    let best_before = earlier.filter_map(confirmed_estimate).reduce(f64::max)?;
    let wall = best_before * (1.0 + limits.min_gain);
    let recent = run.attempts().filter(|a| a.number >= oldest && a.outcome.is_correct());
    if recent.filter_map(Attempt::speedup).any(|speedup| speedup.estimate > wall) {
        return None;
    }
    let reason =
        format!("the last {rounds} rounds brought less than {:.1} % over {best_before:.3}x", limits.min_gain * 100.0);
    Some(give_up(run, limits, "stagnated", &reason))
}

/// The first attempts of the rounds of a plan.
fn round_starts(run: &RunState, plan_version: u32) -> Vec<u32> {
    let of_plan = run.attempts().filter(|attempt| attempt.plan_version == plan_version);
    let firsts = of_plan.filter(|attempt| attempt.candidate.is_none_or(|candidate| candidate.number == 1));
    firsts.map(|attempt| attempt.number).collect()
}

fn subtask_done(run: &RunState, limits: &Limits, leader: &Attempt, decided_by: DecidedBy, reason: &str) -> Routed {
    match after_subtask(run, limits, leader, decided_by, reason) {
        AfterSubtask::Routed(routed) => routed,
        AfterSubtask::Following(subtask) => {
            let decision = by("subtask_target", decided_by, Route::NextSubtask, reason.to_owned());
            (decision, Next::Attempts(first_round(run, limits, subtask)))
        }
        AfterSubtask::GoOn { reason } => {
            (by_rule("target_ahead", Route::Optimize, reason), Next::Attempts(next_round(run, limits, leader)))
        }
    }
}

/// Candidates in turn from the fastest right programs of the subtask: the first from each carries out its diagnosis, the
/// others choose a change of their own.
fn next_round(run: &RunState, limits: &Limits, leader: &Attempt) -> Vec<Opening> {
    let wanted = width(run, limits);
    let scope = (leader.plan_version, leader.subtask);
    let mut right: Vec<&Attempt> = run
        .attempts()
        .filter(|a| (a.plan_version, a.subtask) == scope && a.outcome.is_correct() && a.speedup().is_some())
        .collect();
    let estimate = |attempt: &Attempt| attempt.speedup().map_or(0.0, |speedup| speedup.estimate);
    right.sort_by(|one, other| estimate(other).total_cmp(&estimate(one)).then(one.number.cmp(&other.number)));
    right.truncate(wanted.div_ceil(2));
    if right.is_empty() {
        right.push(leader);
    }
    let mut taken: Vec<Modification> = Vec::new();
    let parents = right.iter().cycle().take(wanted);
    parents
        .map(|parent| {
            let modification = modification::choose(run, parent, leader, &taken);
            taken.extend(modification.clone());
            Opening { subtask: leader.subtask, stage: Stage::Optimize, parent: Some(parent.number), modification }
        })
        .collect()
}
