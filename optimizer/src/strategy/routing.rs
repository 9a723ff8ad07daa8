//! Where a run goes after an attempt. The rules are asked in the order in which they stand here; the first that answers
//! decides, and its reason is recorded.

use nightshift_engine::workflow::WorkflowError;
use nightshift_protocol::attempt::{Attempt, AttemptOutcome, DecidedBy, Route, RouteDecision, Stage, StopReason};

use super::attempt::{confirmed_estimate, confirmed_low};
use super::goal::Limits;
use super::state::RunState;

/// What follows.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Next {
    /// Another attempt.
    Attempt { subtask: u32, stage: Stage, parent: Option<u32> },
    /// A new plan.
    Replan { reason: String },
    /// The end.
    Stop(StopReason),
}

/// Ways to fail that count as the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    NoCode,
    Compliance,
    Compile,
    Runtime,
    Incorrect,
}

impl Failure {
    fn of(outcome: AttemptOutcome) -> Option<Self> {
        match outcome {
            AttemptOutcome::Pending | AttemptOutcome::CorrectFaster | AttemptOutcome::CorrectNotFaster => None,
            AttemptOutcome::NoCode => Some(Self::NoCode),
            AttemptOutcome::NotCompliant => Some(Self::Compliance),
            AttemptOutcome::CompileFailed => Some(Self::Compile),
            AttemptOutcome::Crashed
            | AttemptOutcome::TimedOut
            | AttemptOutcome::MemoryExceeded
            | AttemptOutcome::RuntimeFailed => Some(Self::Runtime),
            AttemptOutcome::Incorrect => Some(Self::Incorrect),
        }
    }

    fn describe(self) -> &'static str {
        match self {
            Self::NoCode => "gave no program",
            Self::Compliance => "broke the rules",
            Self::Compile => "did not compile",
            Self::Runtime => "failed at run time",
            Self::Incorrect => "gave wrong results",
        }
    }
}

/// Decides where to go after the last attempt, which is finished.
pub(super) fn route(run: &RunState) -> Result<(RouteDecision, Next), WorkflowError> {
    let limits = run.limits();
    let last = run.last_attempt()?;
    Ok(target_reached(run, &limits)
        .or_else(|| attempts_used_up(run, &limits))
        .or_else(|| failed(run, &limits, last))
        .or_else(|| subtask_done(run, &limits, last))
        .or_else(|| stagnated(run, &limits, last))
        .unwrap_or_else(|| diagnosed(run, &limits, last)))
}

fn target_reached(run: &RunState, limits: &Limits) -> Option<(RouteDecision, Next)> {
    let target = limits.target_speedup?;
    let low = confirmed_low(run.best()?)?;
    (low >= target).then(|| {
        let reason = format!("the confirmed speedup is at least {low:.3}x, the target is {target:.3}x");
        (by_rule(Route::Stop, reason), Next::Stop(StopReason::TargetReached))
    })
}

fn attempts_used_up(run: &RunState, limits: &Limits) -> Option<(RouteDecision, Next)> {
    (run.attempt_count() >= limits.max_attempts).then(|| {
        let reason = format!("all {} attempts are used up", limits.max_attempts);
        (by_rule(Route::Stop, reason), Next::Stop(StopReason::AttemptBudget))
    })
}

fn failed(run: &RunState, limits: &Limits, last: &Attempt) -> Option<(RouteDecision, Next)> {
    let failure = Failure::of(last.outcome)?;
    let in_a_row = run
        .attempts
        .iter()
        .rev()
        .take_while(|a| a.plan_version == last.plan_version && Failure::of(a.outcome) == Some(failure))
        .count();
    let given_up = in_a_row >= usize::try_from(limits.replan_after_failed).unwrap_or(usize::MAX);
    if given_up && replans_left(run, limits) {
        let reason = format!("the last {in_a_row} attempts of this plan {}", failure.describe());
        return Some((by_rule(Route::Replan, reason.clone()), Next::Replan { reason }));
    }
    let (stage, parent) = match failure {
        // There is nothing to mend: the same request once more.
        Failure::NoCode => (last.stage, last.parent),
        Failure::Compliance => (Stage::RepairCompliance, Some(last.number)),
        Failure::Compile => (Stage::RepairCompile, Some(last.number)),
        Failure::Runtime => (Stage::RepairRuntime, Some(last.number)),
        Failure::Incorrect => (Stage::RepairCorrectness, Some(last.number)),
    };
    let reason = if given_up {
        format!("attempt {} {} and no new plan is left", last.number, failure.describe())
    } else {
        format!("attempt {} {}", last.number, failure.describe())
    };
    Some((by_rule(Route::Repair, reason), Next::Attempt { subtask: last.subtask, stage, parent }))
}

fn subtask_done(run: &RunState, limits: &Limits, last: &Attempt) -> Option<(RouteDecision, Next)> {
    let target = run.subtask(last.subtask)?.target_speedup.filter(|target| target.is_finite())?;
    let low = confirmed_low(run.best()?)?;
    (low >= target).then(|| {
        let reason = format!(
            "the confirmed speedup is at least {low:.3}x, subtask {} counts as done at {target:.3}x",
            last.subtask
        );
        next_subtask(run, limits, last, DecidedBy::Rule, &reason)
    })
}

/// The last M correct attempts of this plan brought no gain over the best before them.
fn stagnated(run: &RunState, limits: &Limits, last: &Attempt) -> Option<(RouteDecision, Next)> {
    let wanted = usize::try_from(limits.replan_after_stagnant).ok()?;
    let recent: Vec<&Attempt> = run
        .attempts
        .iter()
        .rev()
        .filter(|a| a.plan_version == last.plan_version && a.outcome.is_correct())
        .take(wanted)
        .collect();
    let oldest = recent.last().filter(|_| recent.len() == wanted)?.number;
    let earlier = run.attempts.iter().filter(|a| a.number < oldest && a.outcome.is_correct());
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
    Some(if replans_left(run, limits) {
        (by_rule(Route::Replan, reason.clone()), Next::Replan { reason })
    } else {
        let reason = format!("{reason}, and no new plan is left");
        (by_rule(Route::Stop, reason), Next::Stop(StopReason::Stagnated))
    })
}

/// What the Verifier advised, within what is possible.
fn diagnosed(run: &RunState, limits: &Limits, last: &Attempt) -> (RouteDecision, Next) {
    let Some(diagnosis) = &last.diagnosis else {
        return optimize(run, last, DecidedBy::Rule, "there is no diagnosis: the best attempt goes on".to_owned());
    };
    let issue = &diagnosis.critical_issue;
    match diagnosis.route {
        Route::Optimize => optimize(run, last, DecidedBy::Model, format!("the Verifier sees: {issue}")),
        // Only failures are repaired, and this attempt is right.
        Route::Repair => optimize(
            run,
            last,
            DecidedBy::Rule,
            format!("the Verifier asked for a repair of a correct attempt, which is an optimization: {issue}"),
        ),
        Route::NextSubtask => next_subtask(
            run,
            limits,
            last,
            DecidedBy::Model,
            &format!("the Verifier sees subtask {} as done", last.subtask),
        ),
        Route::Replan if replans_left(run, limits) => {
            let reason = format!("the Verifier asked for a new plan: {issue}");
            let decision = RouteDecision { route: Route::Replan, decided_by: DecidedBy::Model, reason: reason.clone() };
            (decision, Next::Replan { reason })
        }
        Route::Replan => optimize(
            run,
            last,
            DecidedBy::Rule,
            format!("the Verifier asked for a new plan, but none is left: {issue}"),
        ),
        Route::Stop => {
            let reason = format!("the Verifier sees nothing more to gain: {issue}");
            let decision = RouteDecision { route: Route::Stop, decided_by: DecidedBy::Model, reason };
            (decision, Next::Stop(StopReason::VerifierStopped))
        }
    }
}

/// The best attempt is where optimization starts: a slower one is told of in the history.
fn optimize(run: &RunState, last: &Attempt, decided_by: DecidedBy, reason: String) -> (RouteDecision, Next) {
    let parent = run.best_attempt.unwrap_or(last.number);
    (
        RouteDecision { route: Route::Optimize, decided_by, reason },
        Next::Attempt { subtask: last.subtask, stage: Stage::Optimize, parent: Some(parent) },
    )
}

/// On to the next subtask. After the last one the run is done, unless a target of the run is still ahead: then a new
/// plan is made, or, when none is left, the best attempt goes on until another rule ends the run.
fn next_subtask(
    run: &RunState,
    limits: &Limits,
    last: &Attempt,
    decided_by: DecidedBy,
    reason: &str,
) -> (RouteDecision, Next) {
    let following = last.subtask.saturating_add(1);
    if run.subtask(following).is_some() {
        let decision = RouteDecision { route: Route::NextSubtask, decided_by, reason: reason.to_owned() };
        let (stage, parent) = first_of_scope(run);
        return (decision, Next::Attempt { subtask: following, stage, parent });
    }
    match limits.target_speedup {
        None => {
            let reason = format!("{reason}, and it was the last subtask");
            (RouteDecision { route: Route::Stop, decided_by, reason }, Next::Stop(StopReason::PlanDone))
        }
        Some(target) if replans_left(run, limits) => {
            let reason = format!("{reason}, it was the last subtask, and the target of {target:.3}x is still ahead");
            (by_rule(Route::Replan, reason.clone()), Next::Replan { reason })
        }
        Some(target) => {
            let reason = format!(
                "{reason}, it was the last subtask, the target of {target:.3}x is still ahead and no new plan is left"
            );
            optimize(run, last, DecidedBy::Rule, reason)
        }
    }
}

/// How a subtask or a new plan begins: from the best attempt, or from nothing when there is none.
pub(super) fn first_of_scope(run: &RunState) -> (Stage, Option<u32>) {
    match run.best_attempt {
        Some(best) => (Stage::Optimize, Some(best)),
        None => (Stage::Draft, None),
    }
}

/// A replan also needs an attempt to try it: the attempt budget was asked before.
pub(super) fn replans_left(run: &RunState, limits: &Limits) -> bool {
    run.replan_count() < limits.max_replans
}

fn by_rule(route: Route, reason: String) -> RouteDecision {
    RouteDecision { route, decided_by: DecidedBy::Rule, reason }
}
