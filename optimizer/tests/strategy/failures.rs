//! Attempts that fail, and what follows.

use nightshift_engine::event::Event;
use nightshift_optimizer::strategy::view;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::AttemptOutcome;
use nightshift_protocol::model_call::ModelCallSummary;
use nightshift_protocol::step::{StepFailure, StepInput, StepOutput};
use nightshift_protocol::task::TaskGoal;
use nightshift_protocol::verdict::{Answer, ProcessEnd};
use serde_json::json;

use super::facts;
use super::script::{Script, Try, crash, right};
use super::simulator::{self, Failure};
use super::stored::StoredWorkflow;

type TestResult = Result<(), Failure>;

fn target(speedup: f64) -> TaskGoal {
    TaskGoal { target_speedup: Some(speedup), ..TaskGoal::default() }
}

#[test]
fn a_crash_a_hang_and_a_memory_hog_are_each_called_what_they_are() -> TestResult {
    let tries = [
        Try::Ends(crash()),
        Try::Ends(ProcessEnd::TimedOut { limit_ms: 500 }),
        Try::Ends(ProcessEnd::MemoryExceeded { limit_bytes: 1 << 28, peak_bytes: 1 << 29 }),
        Try::Ends(ProcessEnd::Exited { status: 3 }),
        right(2.5),
    ];
    let run = Script::of(tries).play_all(TaskGoal { replan_after_failed: Some(9), ..target(2.0) })?;
    let outcomes: Vec<&str> = run.view.attempts.iter().map(|attempt| attempt.outcome.as_str()).collect();
    assert_eq!(outcomes, ["crashed", "timed_out", "memory_exceeded", "runtime_failed", "correct_faster"]);
    assert_eq!(
        run.lineage()[1..].to_vec(),
        [
            "1.1 repair_runtime from 1",
            "1.1 repair_runtime from 2",
            "1.1 repair_runtime from 3",
            "1.1 repair_runtime from 4"
        ]
    );
    // A program that did not come to its end is neither right nor wrong.
    assert_eq!(run.view.attempts[0].verdict.numerically_correct, Answer::Inconclusive);
    Ok(())
}

#[test]
fn a_violation_is_not_even_built() -> TestResult {
    let run = Script::of([Try::Forbidden, right(2.5)]).play_all(target(2.0))?;
    assert_eq!(run.rungs(1), ["write_code"]);
    assert_eq!(run.lineage()[1], "1.1 repair_compliance from 1");
    let first = &run.view.attempts[0];
    assert_eq!(first.outcome, AttemptOutcome::NotCompliant);
    assert_eq!(first.verdict.contract_compliant, Answer::Fail);
    let reward = first.reward.as_ref().ok_or("no reward")?;
    assert!(!reward.major_hacking && !reward.correct && reward.reward.abs() < f64::EPSILON);
    Ok(())
}

#[test]
fn a_reply_without_code_repeats_the_request() -> TestResult {
    let tries = [Try::NoCode, Try::CompileError, Try::NoCode, right(2.5)];
    let run = Script::of(tries).play_all(TaskGoal { replan_after_failed: Some(9), ..target(2.0) })?;
    assert_eq!(run.lineage(), ["1.1 draft", "1.1 draft", "1.1 repair_compile from 2", "1.1 repair_compile from 2"]);
    assert_eq!(run.view.attempts[0].outcome, AttemptOutcome::NoCode);
    assert_eq!(run.view.attempts[0].source, None);
    Ok(())
}

#[test]
fn failing_in_the_same_way_gives_up_the_plan_while_another_is_left() -> TestResult {
    for failure in [Try::CompileError, Try::Wrong, Try::Ends(crash()), Try::Forbidden, Try::NoCode] {
        let tries = [failure.clone(), failure.clone(), failure.clone(), failure.clone(), failure.clone(), right(3.0)];
        let run = Script::of(tries).play_all(TaskGoal { max_replans: Some(1), ..target(2.0) })?;
        assert_eq!(
            run.routes(),
            ["repair by rule", "replan by rule", "repair by rule", "repair by rule", "repair by rule", "stop by rule"],
            "{failure:?}"
        );
        assert_eq!(run.lineage()[2], "2.1 draft", "{failure:?}");
        assert!(run.view.attempts[3].route.as_ref().is_some_and(|route| route.reason.contains("no new plan is left")));
    }
    Ok(())
}

#[test]
fn failing_in_different_ways_is_progress() -> TestResult {
    let tries = [Try::CompileError, Try::Wrong, Try::CompileError, Try::Ends(crash()), right(3.0)];
    let run = Script::of(tries).play_all(target(2.0))?;
    assert_eq!(run.view.plans.len(), 1);
    Ok(())
}

#[test]
fn every_failure_earns_nothing_and_needs_no_agent() -> TestResult {
    let tries = [Try::NoCode, Try::Forbidden, Try::CompileError, Try::Wrong, Try::Ends(crash())];
    let run = Script::of(tries).play_all(TaskGoal { max_attempts: Some(5), ..TaskGoal::default() })?;
    assert_eq!(run.stopped(), "attempt_budget");
    assert_eq!(run.digest.best_attempt, None);
    for attempt in &run.view.attempts {
        assert!(attempt.reward.as_ref().is_some_and(|reward| reward.reward.abs() < f64::EPSILON));
        assert!(attempt.diagnosis.is_none() && attempt.rubric.is_none());
    }
    Ok(())
}

#[test]
fn a_program_that_dies_while_it_is_timed_has_failed() -> TestResult {
    let confirmation = Try::DiesInConfirmation { measured: 4.0, end: ProcessEnd::TimedOut { limit_ms: 9 } };
    let run = Script::of([Try::DiesInMeasurement(crash()), confirmation, right(2.5)])
        .play_all(TaskGoal { replan_after_failed: Some(3), ..target(2.0) })?;
    let outcomes: Vec<&str> = run.view.attempts.iter().map(|attempt| attempt.outcome.as_str()).collect();
    assert_eq!(outcomes, ["crashed", "timed_out", "correct_faster"]);
    assert_eq!(run.digest.best_attempt, Some(3));
    assert_eq!(run.view.attempts[1].verdict.fast, Answer::Inconclusive);
    let history = match run.input("subtask1/attempt3/write_code") {
        Some(StepInput::WriteCode { request, .. }) => request.history.clone(),
        other => return Err(format!("{other:?}").into()),
    };
    assert!(history[0].contains("while it was timed: the program crashed with SIGSEGV"), "{history:?}");
    Ok(())
}

#[test]
fn outputs_that_are_wrong_when_timed_break_the_rules() -> TestResult {
    let script = Script::of([right(4.0), right(2.5)]);
    let run = simulator::run(&facts::run_input(target(2.0)), |key, input| {
        if key == "subtask1/attempt1/measure" {
            let measurement = Box::new(facts::measurement(4.0));
            return Ok(StepOutput::Measured { measurement, findings: vec![facts::violation()] });
        }
        script.answer(key, input)
    })?;
    assert_eq!(run.view.attempts[0].outcome, AttemptOutcome::NotCompliant);
    assert_eq!(run.rungs(1), ["write_code", "build", "check", "measure"]);
    assert_eq!(run.digest.best_attempt, Some(2));
    Ok(())
}

#[test]
fn a_cheat_that_is_only_seen_in_the_confirmation_is_no_measure_for_others() -> TestResult {
    let script = Script::of([right(1.5), right(9.0), right(1.6), right(1.7)]);
    let limits = TaskGoal { max_attempts: Some(4), replan_after_stagnant: Some(1), ..TaskGoal::default() };
    let run = simulator::run(&facts::run_input(limits), |key, input| {
        if key == "subtask1/attempt2/confirm" {
            let measurement = Box::new(facts::measurement(9.0));
            return Ok(StepOutput::Measured { measurement, findings: vec![facts::violation()] });
        }
        script.answer(key, input)
    })?;
    assert_eq!(run.view.attempts[1].outcome, AttemptOutcome::NotCompliant);
    // 1.6 gains over 1.5, 1.7 over 1.6: neither is compared with the 9.0 of the cheat.
    assert_eq!(run.routes(), ["optimize by model", "repair by rule", "optimize by model", "stop by rule"]);
    assert_eq!(run.digest.best_attempt, Some(4));
    Ok(())
}

#[test]
fn a_task_that_cannot_be_used_ends_its_run() -> TestResult {
    let run = simulator::run(&facts::run_input(TaskGoal::default()), |_, _| {
        Ok(StepOutput::TaskRejected {
            code: "task.reference_does_not_compile".to_owned(),
            message: "line 3: expected ;".to_owned(),
            log: None,
        })
    })?;
    assert_eq!(run.keys(), ["prepare_task"]);
    assert_eq!(run.stopped(), "task_rejected");
    Ok(())
}

/// A call of a live model.
fn call(turn: u32) -> Result<ModelCallSummary, Failure> {
    let hash = ArtifactHash::of(b"x");
    Ok(serde_json::from_value(json!({
        "model": "lab/some", "scripted": false, "prompt_version": "p", "prompt": hash, "reply": hash,
        "input_tokens": 11, "output_tokens": 22, "price_microusd": 242, "latency_ms": 5, "turn": turn,
    }))?)
}

#[test]
fn the_calls_of_a_failed_step_are_counted_until_a_result_lists_them() -> TestResult {
    let finished = Script::of([right(2.5)]).play_all(target(2.0))?;
    let planned_at = finished
        .events
        .iter()
        .position(|event| matches!(event, Event::StepCompleted { key, .. } if key == "plan"))
        .ok_or("no plan")?;
    let mut state = None;
    for event in &finished.events[..planned_at] {
        state = Some(StoredWorkflow.apply(state, event)?);
    }
    let mut state = state.ok_or("no state")?;
    let fail = |calls| {
        let mut failure = StepFailure::fatal("model.no_plan", "no plan");
        failure.calls = calls;
        Event::StepFailed { key: "plan".to_owned(), failure }
    };
    state = StoredWorkflow.apply(Some(state), &fail(vec![call(1)?, call(2)?]))?;
    state = StoredWorkflow.apply(Some(state), &fail(vec![call(1)?, call(2)?, call(3)?]))?;
    assert_eq!(view(&state)?.failed_calls, [call(1)?, call(2)?, call(3)?], "each is counted once");
    let Event::StepCompleted { key, output } = &finished.events[planned_at] else { return Err("no plan".into()) };
    let mut output = output.clone();
    output["calls"] = json!([call(1)?, call(2)?]);
    state = StoredWorkflow.apply(Some(state), &Event::StepCompleted { key: key.clone(), output })?;
    let seen = view(&state)?;
    assert_eq!(seen.plans[0].calls, [call(1)?, call(2)?]);
    assert_eq!(seen.failed_calls, [call(3)?]);
    Ok(())
}

#[test]
fn a_worker_that_speaks_of_model_calls_is_not_believed() -> TestResult {
    let finished = Script::of([right(2.5)]).play_all(target(2.0))?;
    let state = StoredWorkflow.apply(None, &finished.events[0])?;
    let mut failure = StepFailure::fatal("x", "x");
    failure.calls = vec![call(1)?];
    let event = Event::StepFailed { key: "prepare_task".to_owned(), failure };
    assert_eq!(StoredWorkflow.apply(Some(state.clone()), &event)?, state);
    Ok(())
}
