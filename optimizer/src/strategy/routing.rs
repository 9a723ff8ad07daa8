//! Rules of routing that strategies are made of. Each looks at the history and may decide; which ones are asked, and in
//! which order, is the strategy's. A decision names its rule and its reason, and what the Verifier advised.

use nightshift_protocol::attempt::{Attempt, DecidedBy, Route, RouteDecision, Stage, StopReason};

use super::confirmation::{confirmed_estimate, confirmed_low};
use super::goal::Limits;
use super::modification;
use super::opening::{Failure, Opening};
use super::state::RunState;

/// What follows.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Next {
    /// One more attempt, or several at a time.
    Attempts(Vec<Opening>),
    /// A new plan.
    Replan { reason: String },
    /// The end.
    Stop(StopReason),
}

/// A decision, and what follows from it.
pub(super) type Routed = (RouteDecision, Next);

pub(super) fn target_reached(run: &RunState, limits: &Limits) -> Option<Routed> {
    let target = limits.target_speedup?;
    let confirmed = run.best()?.confirmation.as_ref()?;
    let over_reference = confirmed.speedup;
    let over =
        run.prepared.as_ref().and_then(|prepared| Some((prepared, prepared.target_baseline(limits.target_baseline)?)));
    let (low, over) = match over {
        Some((prepared, fastest)) => (prepared.over_fastest(confirmed)?.low, format!(" over {}", fastest.kind.label())),
        None => (over_reference.low, String::new()),
    };
    (low >= target).then(|| {
        let reason = format!("the confirmed speedup{over} is at least {low:.3}x, the target is {target:.3}x");
        (by_rule("target_reached", Route::Stop, reason), Next::Stop(StopReason::TargetReached))
    })
}

pub(super) fn attempts_used_up(run: &RunState, limits: &Limits) -> Option<Routed> {
    (run.attempt_count() >= limits.max_attempts).then(|| {
        let reason = format!("all {} attempts are used up", limits.max_attempts);
        (by_rule("attempts_used_up", Route::Stop, reason), Next::Stop(StopReason::AttemptBudget))
    })
}

/// A failed attempt is repaired, until as many in a row failed in the same way as a plan is given up for.
pub(super) fn failed(run: &RunState, limits: &Limits, last: &Attempt) -> Option<Routed> {
    let failure = Failure::of(last.outcome)?;
    let in_a_row = run
        .attempts()
        .rev()
        .take_while(|a| a.plan_version == last.plan_version && Failure::of(a.outcome) == Some(failure))
        .count();
    let given_up = in_a_row >= usize::try_from(limits.replan_after_failed).unwrap_or(usize::MAX);
    if given_up && replans_left(run, limits) {
        let reason = format!("the last {in_a_row} attempts of this plan {}", failure.describe());
        return Some((by_rule("failed_in_a_row", Route::Replan, reason.clone()), Next::Replan { reason }));
    }
    let reason = if given_up {
        format!("attempt {} {} and no new plan is left", last.number, failure.describe())
    } else {
        format!("attempt {} {}", last.number, failure.describe())
    };
    Some((by_rule("repair", Route::Repair, reason), Next::Attempts(vec![failure.repair(last)])))
}

/// Why the subtask is done, when the confirmed speedup is what the plan asks of it.
pub(super) fn subtask_target(run: &RunState, subtask: u32) -> Option<String> {
    let target = run.subtask(subtask)?.target_speedup.filter(|target| target.is_finite())?;
    let low = confirmed_low(run.best()?)?;
    (low >= target).then(|| {
        format!("the confirmed speedup is at least {low:.3}x, subtask {subtask} counts as done at {target:.3}x")
    })
}

/// The last M correct attempts of this plan brought no gain over the best before them.
pub(super) fn stagnated(run: &RunState, limits: &Limits, last: &Attempt) -> Option<Routed> {
    let wanted = usize::try_from(limits.replan_after_stagnant).ok()?;
    let recent: Vec<&Attempt> = run
        .attempts()
        .rev()
        .filter(|a| a.plan_version == last.plan_version && a.outcome.is_correct())
        .take(wanted)
        .collect();
    let oldest = recent.last().filter(|_| recent.len() == wanted)?.number;
    let earlier = run.attempts().filter(|a| a.number < oldest && a.outcome.is_correct());
    let best_before = earlier.filter_map(confirmed_estimate).reduce(f64::max)?;
    let wall = best_before * (1.0 + limits.min_gain);
    let gained = recent.iter().filter_map(|a| a.speedup()).any(|speedup| speedup.estimate > wall);
    if gained {
        return None;
    }
    let reason = format!(
        "the last {wanted} correct attempts brought less than {:.1} % over {best_before:.3}x",
        limits.min_gain * 100.0
    );
    Some(give_up(run, limits, "stagnated", &reason))
}

/// A new plan; the end when none is left.
pub(super) fn give_up(run: &RunState, limits: &Limits, rule: &str, reason: &str) -> Routed {
    if replans_left(run, limits) {
        let reason = reason.to_owned();
        return (by_rule(rule, Route::Replan, reason.clone()), Next::Replan { reason });
    }
    let reason = format!("{reason}, and no new plan is left");
    (by_rule(rule, Route::Stop, reason), Next::Stop(StopReason::Stagnated))
}

/// What the Verifier's diagnosis of an attempt leads to, within what is possible.
pub(super) enum Advised {
    /// Go on optimizing.
    Optimize(RouteDecision),
    /// The subtask is done.
    NextSubtask { reason: String },
    /// Decided.
    Routed(Routed),
}

pub(super) fn advised(run: &RunState, limits: &Limits, last: &Attempt) -> Advised {
    let by_rule_alone = |rule: &str, reason: String| Advised::Optimize(by_rule(rule, Route::Optimize, reason));
    let Some(diagnosis) = &last.diagnosis else {
        return by_rule_alone("no_diagnosis", "there is no diagnosis: the best attempt goes on".to_owned());
    };
    let issue = &diagnosis.critical_issue;
    match diagnosis.route {
        Route::Optimize => Advised::Optimize(by_model(Route::Optimize, format!("the Verifier sees: {issue}"))),
        // Only failures are repaired, and this attempt is right.
        Route::Repair => by_rule_alone(
            "nothing_to_repair",
            format!("the Verifier asked for a repair of a correct attempt, which is an optimization: {issue}"),
        ),
        Route::NextSubtask => {
            Advised::NextSubtask { reason: format!("the Verifier sees subtask {} as done", last.subtask) }
        }
        Route::Replan if replans_left(run, limits) => {
            let reason = format!("the Verifier asked for a new plan: {issue}");
            Advised::Routed((by_model(Route::Replan, reason.clone()), Next::Replan { reason }))
        }
        Route::Replan => {
            by_rule_alone("no_replan_left", format!("the Verifier asked for a new plan, but none is left: {issue}"))
        }
        Route::Stop => {
            let reason = format!("the Verifier sees nothing more to gain: {issue}");
            Advised::Routed((by_model(Route::Stop, reason), Next::Stop(StopReason::VerifierStopped)))
        }
    }
}

/// The best attempt is where optimization starts: a slower one is told of in the history.
pub(super) fn optimize(run: &RunState, last: &Attempt) -> Opening {
    let parent = run.best().unwrap_or(last);
    // A program of another subtask or plan was diagnosed for what was asked there.
    let is_same_scope = (parent.plan_version, parent.subtask) == (last.plan_version, last.subtask);
    let modification = if is_same_scope { modification::choose(run, parent, last, &[]) } else { None };
    Opening { subtask: last.subtask, stage: Stage::Optimize, parent: Some(parent.number), modification }
}

/// What follows a subtask that is done.
pub(super) enum AfterSubtask {
    /// The one of this number.
    Following(u32),
    /// It was the last one: the end or a new plan.
    Routed(Routed),
    /// It was the last one, a target is still ahead and no new plan is left.
    GoOn { reason: String },
}

/// On to the next subtask. After the last one the run is done, unless a target of the run is still ahead: then a new
/// plan is made, or, when none is left, the best attempt goes on until another rule ends the run.
pub(super) fn after_subtask(
    run: &RunState,
    limits: &Limits,
    last: &Attempt,
    decided_by: DecidedBy,
    reason: &str,
) -> AfterSubtask {
    let following = last.subtask.saturating_add(1);
    if run.subtask(following).is_some() {
        return AfterSubtask::Following(following);
    }
    match limits.target_speedup {
        None => {
            let decision = by("plan_done", decided_by, Route::Stop, format!("{reason}, and it was the last subtask"));
            AfterSubtask::Routed((decision, Next::Stop(StopReason::PlanDone)))
        }
        Some(target) if replans_left(run, limits) => {
            let reason = format!("{reason}, it was the last subtask, and the target of {target:.3}x is still ahead");
            AfterSubtask::Routed((by_rule("plan_done", Route::Replan, reason.clone()), Next::Replan { reason }))
        }
        Some(target) => AfterSubtask::GoOn {
            reason: format!(
                "{reason}, it was the last subtask, the target of {target:.3}x is still ahead and no new plan is left"
            ),
        },
    }
}

/// How a subtask or a new plan begins: from the best attempt, or from nothing when there is none.
pub(super) fn first_of_scope(run: &RunState, subtask: u32) -> Opening {
    let (stage, parent) = match run.best_attempt {
        Some(best) => (Stage::Optimize, Some(best)),
        None => (Stage::Draft, None),
    };
    Opening { subtask, stage, parent, modification: None }
}

/// A replan also needs an attempt to try it: the attempt budget was asked before.
pub(super) fn replans_left(run: &RunState, limits: &Limits) -> bool {
    run.replan_count() < limits.max_replans
}

/// A decision of the model's, or of the rule where no model was asked.
pub(super) fn by(rule: &str, decided_by: DecidedBy, route: Route, reason: String) -> RouteDecision {
    match decided_by {
        DecidedBy::Rule => by_rule(rule, route, reason),
        DecidedBy::Model => by_model(route, reason),
    }
}

pub(super) fn by_rule(rule: &str, route: Route, reason: String) -> RouteDecision {
    RouteDecision { route, decided_by: DecidedBy::Rule, reason, rule: Some(rule.to_owned()), advice: None }
}

pub(super) fn by_model(route: Route, reason: String) -> RouteDecision {
    RouteDecision { route, decided_by: DecidedBy::Model, reason, rule: None, advice: None }
}

/// Notes beside a decision what the Verifier advised.
pub(super) fn with_advice((mut decision, next): Routed, last: &Attempt) -> Routed {
    decision.advice = last.diagnosis.as_ref().map(|diagnosis| diagnosis.route);
    (decision, next)
}
