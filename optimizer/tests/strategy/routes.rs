//! Every route of the loop.

use nightshift_protocol::attempt::{AttemptOutcome, Route};
use nightshift_protocol::campaign::RunInput;
use nightshift_protocol::measurement::{Interval, Measurement};
use nightshift_protocol::step::{StepInput, StepOutput};
use nightshift_protocol::task::TaskGoal;
use nightshift_protocol::verdict::Answer;

use super::facts;
use super::script::{Script, Try, advised, right};
use super::simulator::{self, Failure, Finished};

type TestResult = Result<(), Failure>;

fn goal() -> TaskGoal {
    TaskGoal::default()
}

fn target(speedup: f64) -> TaskGoal {
    TaskGoal { target_speedup: Some(speedup), ..TaskGoal::default() }
}

#[test]
fn a_first_try_that_reaches_the_target_ends_the_run() -> TestResult {
    let run = Script::of([right(2.5)]).play_all(target(2.0))?;
    assert_eq!(run.stopped(), "target_reached");
    assert_eq!(run.routes(), ["stop by rule"]);
    assert_eq!(
        run.keys(),
        [
            "prepare_task",
            "plan",
            "subtask1/attempt1/write_code",
            "subtask1/attempt1/build",
            "subtask1/attempt1/check",
            "subtask1/attempt1/measure",
            "subtask1/attempt1/confirm",
            "subtask1/attempt1/profile",
            "subtask1/attempt1/diagnose",
            "subtask1/attempt1/judge",
        ]
    );
    assert_eq!(run.digest.best_attempt, Some(1));
    assert!(run.digest.best_confirmed);
    assert_eq!(run.digest.activity, "ended: target_reached");
    let verdict = &run.view.attempts[0].verdict;
    assert_eq!(
        (verdict.compiled, verdict.numerically_correct, verdict.contract_compliant, verdict.fast),
        (Answer::Pass, Answer::Pass, Answer::Pass, Answer::Pass)
    );
    // Nothing measured the share, so nothing is claimed.
    assert_eq!(verdict.custom_kernel_time_share, None);
    Ok(())
}

#[test]
fn the_target_counts_for_the_lower_bound_only() -> TestResult {
    // 2.05 is above the target, but the interval begins at 1.99.
    let run = Script::of([right(2.05), right(2.2)]).play_all(target(2.0))?;
    assert_eq!(run.routes(), ["optimize by model", "stop by rule"]);
    Ok(())
}

#[test]
fn a_compile_error_is_repaired() -> TestResult {
    let run = Script::of([Try::CompileError, right(2.5)]).play_all(target(2.0))?;
    assert_eq!(run.lineage(), ["1.1 draft", "1.1 repair_compile from 1"]);
    assert_eq!(run.routes(), ["repair by rule", "stop by rule"]);
    assert_eq!(run.rungs(1), ["write_code", "build"]);
    Ok(())
}

#[test]
fn a_wrong_result_is_repaired() -> TestResult {
    let run = Script::of([Try::Wrong, right(2.5)]).play_all(target(2.0))?;
    assert_eq!(run.lineage(), ["1.1 draft", "1.1 repair_correctness from 1"]);
    assert_eq!(run.view.attempts[0].outcome, AttemptOutcome::Incorrect);
    assert_eq!(run.view.attempts[0].verdict.numerically_correct, Answer::Fail);
    assert_eq!(run.rungs(1), ["write_code", "build", "check"]);
    Ok(())
}

#[test]
fn a_right_but_slower_program_is_optimized() -> TestResult {
    let run = Script::of([right(0.8), right(2.5)]).play_all(target(2.0))?;
    assert_eq!(run.lineage(), ["1.1 draft", "1.1 optimize from 1"]);
    assert_eq!(run.view.attempts[0].outcome, AttemptOutcome::CorrectNotFaster);
    assert_eq!(run.view.attempts[0].verdict.fast, Answer::Fail);
    assert_eq!(run.digest.best_attempt, Some(2));
    Ok(())
}

#[test]
fn an_interval_around_one_decides_nothing() -> TestResult {
    let run = Script::of([right(1.01)]).play_all(TaskGoal { max_attempts: Some(1), ..goal() })?;
    assert_eq!(run.view.attempts[0].verdict.fast, Answer::Inconclusive);
    assert_eq!(run.view.attempts[0].outcome, AttemptOutcome::CorrectNotFaster);
    Ok(())
}

#[test]
fn optimization_starts_from_the_best_and_only_a_new_best_is_confirmed() -> TestResult {
    let limits = TaskGoal { max_attempts: Some(3), replan_after_stagnant: Some(9), ..goal() };
    let run = Script::of([right(1.5), right(1.2), right(1.8)]).play_all(limits)?;
    assert_eq!(run.lineage(), ["1.1 draft", "1.1 optimize from 1", "1.1 optimize from 1"]);
    assert!(run.rungs(1).contains(&"confirm") && run.rungs(3).contains(&"confirm"));
    assert!(!run.rungs(2).contains(&"confirm"));
    assert_eq!(run.digest.best_attempt, Some(3));
    Ok(())
}

#[test]
fn what_noise_explains_is_a_new_best_only_in_a_run_that_began_by_older_rules() -> TestResult {
    // Intervals reach three hundredths to each side.
    let script = Script::of([right(2.0), right(2.02), right(2.2), right(0.5)]);
    let confirmed = |rules: u32| -> Result<Vec<u32>, Failure> {
        let limits = TaskGoal { max_attempts: Some(4), replan_after_stagnant: Some(9), ..goal() };
        let input = RunInput { rules, ..facts::run_input(limits) };
        let run = simulator::run(&input, |key, input| script.answer(key, input))?;
        Ok((1..=4).filter(|number| run.rungs(*number).contains(&"confirm")).collect())
    };
    assert_eq!(confirmed(1)?, [1, 2, 3]);
    assert_eq!(confirmed(2)?, [1, 3]);
    Ok(())
}

#[test]
fn a_candidate_whose_confirmation_falls_away_is_not_the_best() -> TestResult {
    let fallen = Try::Right { measured: 3.0, confirmed: 1.1, advice: Some(Route::Optimize) };
    let run = Script::of([right(1.5), fallen]).play_all(TaskGoal { max_attempts: Some(2), ..target(2.0) })?;
    assert_eq!(run.stopped(), "attempt_budget");
    assert_eq!(run.digest.best_attempt, Some(1));
    let second = &run.view.attempts[1];
    assert_eq!(second.speedup().map(|speedup| speedup.estimate), Some(1.1));
    assert!(second.findings.iter().any(|finding| finding.code == "confirmation_lower"));
    Ok(())
}

/// A second attempt whose first measurement says nothing, over a best one at 6.19.
fn measured_widely(rules: u32, confirmed: f64) -> Result<Finished, Failure> {
    let script = Script::of([right(6.19), right(6.29), advised(6.0, Some(Route::Stop))]);
    let limits = TaskGoal { max_attempts: Some(3), replan_after_stagnant: Some(1), ..goal() };
    simulator::run(&RunInput { rules, ..facts::run_input(limits) }, |key, input| {
        let speedup = match key {
            "subtask1/attempt2/measure" => Interval { estimate: 6.29, low: 3.25, high: 7.57 },
            "subtask1/attempt2/confirm" => {
                Interval { estimate: confirmed, low: confirmed * 0.99, high: confirmed * 1.01 }
            }
            _ => return script.answer(key, input),
        };
        let measurement = Measurement { speedup, precise: key.ends_with("confirm"), ..facts::measurement(1.0) };
        Ok(StepOutput::Measured { measurement: Box::new(measurement), findings: Vec::new() })
    })
}

#[test]
fn a_measurement_that_says_nothing_is_repeated_before_it_counts_as_no_gain() -> TestResult {
    let run = measured_widely(5, 7.2)?;
    assert!(run.rungs(2).contains(&"confirm"), "{:?}", run.rungs(2));
    assert_eq!((run.digest.best_attempt, run.view.plans.len()), (Some(2), 1));
    // What is confirmed as no faster by its whole interval is no gain.
    let run = measured_widely(5, 6.2)?;
    assert_eq!((run.digest.best_attempt, run.view.plans.len()), (Some(1), 2));
    // A run goes on by the rules that it began with.
    let run = measured_widely(4, 7.2)?;
    assert!(!run.rungs(2).contains(&"confirm"), "{:?}", run.rungs(2));
    assert_eq!((run.digest.best_attempt, run.view.plans.len()), (Some(1), 2));
    Ok(())
}

/// An attempt that is measured and confirmed like this.
fn timed_twice(first: Interval, confirmation: (Interval, bool)) -> Result<Finished, Failure> {
    let script = Script::of([right(9.9)]);
    let goal = TaskGoal { max_attempts: Some(1), ..target(1.5) };
    simulator::run(&facts::run_input(goal), |key, input| {
        let StepInput::Measure { confirms, .. } = input else { return script.answer(key, input) };
        let (speedup, precise) = if *confirms { confirmation } else { (first, true) };
        let measurement = Measurement { speedup, precise, ..facts::measurement(1.0) };
        Ok(StepOutput::Measured { measurement: Box::new(measurement), findings: Vec::new() })
    })
}

fn interval(low: f64, estimate: f64, high: f64) -> Interval {
    Interval { estimate, low, high }
}

#[test]
fn the_confirmation_is_published_however_precise_it_is() -> TestResult {
    for (confirmation, outcome, fast) in [
        (interval(1.001, 1.04, 1.31), "correct_faster", Answer::Pass),
        (interval(0.9, 1.04, 1.31), "correct_not_faster", Answer::Inconclusive),
    ] {
        let run = timed_twice(interval(1.4, 1.5, 1.6), (confirmation, false))?;
        let attempt = &run.view.attempts[0];
        assert_eq!((attempt.outcome.as_str(), attempt.verdict.fast), (outcome, fast));
        assert_eq!(run.digest.best_speedup, Some(confirmation));
        assert!(attempt.findings.iter().any(|finding| finding.code == "confirmation_imprecise"));
    }
    Ok(())
}

#[test]
fn a_target_is_reached_when_the_confirmation_says_so() -> TestResult {
    for (first, confirmation, reached) in [
        (interval(1.4, 1.6, 1.8), interval(1.55, 1.6, 1.7), true),
        (interval(1.55, 1.6, 1.7), interval(1.4, 1.6, 1.8), false),
        (interval(1.55, 1.6, 1.7), interval(1.51, 1.6, 1.8), true),
    ] {
        let run = timed_twice(first, (confirmation, true))?;
        assert_eq!(run.stopped() == "target_reached", reached, "{first:?} {confirmation:?}");
        assert_eq!(run.view.attempts[0].verdict.fast, Answer::Pass);
    }
    Ok(())
}

#[test]
fn stagnation_triggers_a_replan_and_the_end_when_none_is_left() -> TestResult {
    let limits = TaskGoal { max_attempts: Some(9), max_replans: Some(1), ..goal() };
    let tries = [right(1.5), right(1.52), right(1.4), right(1.51), right(1.55)];
    let run = Script::of(tries).play_all(limits)?;
    assert_eq!(
        run.routes(),
        ["optimize by model", "optimize by model", "replan by rule", "optimize by model", "stop by rule"]
    );
    assert_eq!(run.stopped(), "stagnated");
    assert!(run.keys().contains(&"replan2"));
    assert_eq!(run.view.plans.len(), 2);
    assert!(run.view.plans[1].reason.as_ref().is_some_and(|reason| reason.contains("5.0 %")));
    // The second is faster by what noise explains: the first one stays the best.
    assert_eq!(run.lineage()[3], "2.1 optimize from 1");
    Ok(())
}

#[test]
fn a_gain_above_the_threshold_is_no_stagnation() -> TestResult {
    let limits = TaskGoal { max_attempts: Some(4), ..goal() };
    let run = Script::of([right(1.0), right(1.2), right(1.3), right(1.4)]).play_all(limits)?;
    assert_eq!(run.stopped(), "attempt_budget");
    assert_eq!(run.view.plans.len(), 1);
    Ok(())
}

#[test]
fn a_subtask_is_done_at_its_target_or_when_the_verifier_says_so() -> TestResult {
    let tries = [right(2.2), advised(2.4, Some(Route::NextSubtask)), advised(3.0, Some(Route::NextSubtask))];
    let run = Script::of(tries).with_plans(&[&[Some(2.0), None, Some(9.0)]]).play_all(goal())?;
    assert_eq!(run.routes(), ["next_subtask by rule", "next_subtask by model", "stop by model"]);
    assert_eq!(run.lineage(), ["1.1 draft", "1.2 optimize from 1", "1.3 optimize from 2"]);
    assert_eq!(run.stopped(), "plan_done");
    assert!(run.keys().contains(&"subtask2/attempt2/build") && run.keys().contains(&"subtask3/attempt3/judge"));
    Ok(())
}

#[test]
fn a_plan_that_is_done_below_the_runs_target_is_made_anew_and_then_optimized_on() -> TestResult {
    let done = || advised(1.5, Some(Route::NextSubtask));
    let limits =
        TaskGoal { max_replans: Some(1), replan_after_stagnant: Some(9), max_attempts: Some(3), ..target(4.0) };
    let run = Script::of([done(), done(), done()]).play_all(limits)?;
    assert_eq!(run.routes(), ["replan by rule", "optimize by rule", "stop by rule"]);
    assert_eq!(run.stopped(), "attempt_budget");
    Ok(())
}

#[test]
fn the_verifier_can_stop_a_run_below_its_target() -> TestResult {
    let run = Script::of([advised(1.5, Some(Route::Stop))]).play_all(target(4.0))?;
    assert_eq!(run.stopped(), "verifier_stopped");
    assert_eq!(run.routes(), ["stop by model"]);
    Ok(())
}

#[test]
fn the_verifier_can_ask_for_a_new_plan_while_one_is_left() -> TestResult {
    let tries = [advised(1.5, Some(Route::Replan)), advised(1.9, Some(Route::Replan)), advised(2.4, Some(Route::Stop))];
    let run = Script::of(tries).play_all(TaskGoal { max_replans: Some(1), ..goal() })?;
    assert_eq!(run.routes(), ["replan by model", "optimize by rule", "stop by model"]);
    Ok(())
}

#[test]
fn a_repair_of_a_right_program_is_an_optimization() -> TestResult {
    let run = Script::of([advised(1.5, Some(Route::Repair)), right(3.0)]).play_all(target(2.0))?;
    assert_eq!(run.lineage(), ["1.1 draft", "1.1 optimize from 1"]);
    assert_eq!(run.routes(), ["optimize by rule", "stop by rule"]);
    Ok(())
}

#[test]
fn without_a_diagnosis_the_rules_go_on() -> TestResult {
    let run = Script::of([advised(1.5, None), right(3.0)]).play_all(target(2.0))?;
    assert_eq!(run.routes(), ["optimize by rule", "stop by rule"]);
    Ok(())
}

#[test]
fn a_run_stops_when_its_attempts_are_used_up() -> TestResult {
    let limits = TaskGoal { max_attempts: Some(2), ..target(9.0) };
    let run = Script::of([right(1.5), right(1.8)]).play_all(limits)?;
    assert_eq!(run.stopped(), "attempt_budget");
    assert_eq!(run.digest.best_attempt, Some(2));
    Ok(())
}

#[test]
fn the_last_attempt_can_still_reach_the_target() -> TestResult {
    let limits = TaskGoal { max_attempts: Some(1), ..target(2.0) };
    assert_eq!(Script::of([right(3.0)]).play_all(limits)?.stopped(), "target_reached");
    Ok(())
}

#[test]
fn a_plan_without_subtasks_is_one_for_the_whole_program() -> TestResult {
    let run = Script::of([right(3.0)]).with_plans(&[&[]]).play_all(target(2.0))?;
    assert_eq!(run.view.plans[0].plan.subtasks.len(), 1);
    Ok(())
}
