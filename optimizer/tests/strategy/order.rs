//! Events and inputs: what is refused, what is tolerated, what is handed on.

use nightshift_engine::event::Event;
use nightshift_engine::workflow::{Command, WorkflowError};
use nightshift_optimizer::strategy::{MAX_HISTORY_LINE_CHARS, MAX_HISTORY_LINES, initial_digest};
use nightshift_protocol::api::RunDigest;
use nightshift_protocol::attempt::Route;
use nightshift_protocol::step::{StepFailure, StepInput};
use nightshift_protocol::task::TaskGoal;
use serde_json::{Value, json};

use super::facts;
use super::script::{Script, Try, advised, right};
use super::simulator::Failure;
use super::stored::StoredWorkflow;

type TestResult = Result<(), Failure>;

fn created() -> Result<Value, Failure> {
    let input = serde_json::to_value(facts::run_input(TaskGoal::default()))?;
    Ok(StoredWorkflow.apply(None, &Event::RunCreated { input })?)
}

fn is_out_of_order(result: &Result<Value, WorkflowError>) -> bool {
    matches!(result, Err(WorkflowError::OutOfOrder { .. }))
}

#[test]
fn a_run_begins_with_its_creation_and_only_once() -> TestResult {
    let workflow = StoredWorkflow;
    assert!(is_out_of_order(&workflow.apply(None, &Event::RunPaused { by: None })));
    let input = serde_json::to_value(facts::run_input(TaskGoal::default()))?;
    assert!(is_out_of_order(&workflow.apply(Some(created()?), &Event::RunCreated { input })));
    Ok(())
}

#[test]
fn a_step_that_the_run_does_not_wait_for_is_refused() -> TestResult {
    let output = serde_json::to_value(facts::profiled())?;
    for key in ["plan", "subtask1/attempt1/build", ""] {
        let event = Event::StepCompleted { key: key.to_owned(), output: output.clone() };
        assert!(is_out_of_order(&StoredWorkflow.apply(Some(created()?), &event)), "{key}");
    }
    Ok(())
}

#[test]
fn an_output_of_another_kind_is_refused() -> TestResult {
    let event =
        Event::StepCompleted { key: "prepare_task".to_owned(), output: serde_json::to_value(facts::profiled())? };
    assert!(is_out_of_order(&StoredWorkflow.apply(Some(created()?), &event)));
    Ok(())
}

#[test]
fn nothing_is_taken_after_the_end() -> TestResult {
    let run = Script::of([advised(2.0, Some(Route::Stop))]).play(TaskGoal::default())?;
    let last = run.events.iter().rev().find(|event| matches!(event, Event::StepCompleted { .. })).ok_or("no step")?;
    assert!(is_out_of_order(&StoredWorkflow.apply(Some(run.state), last)));
    Ok(())
}

#[test]
fn what_cannot_be_read_is_an_error_and_no_panic() -> TestResult {
    let workflow = StoredWorkflow;
    let unreadable = |result: Result<Value, WorkflowError>| matches!(result, Err(WorkflowError::Unreadable { .. }));
    assert!(unreadable(workflow.apply(None, &Event::RunCreated { input: json!({ "schema": 1 }) })));
    let mut other_strategy = facts::run_input(TaskGoal::default());
    other_strategy.strategy = "magic".to_owned();
    let input = serde_json::to_value(other_strategy)?;
    assert!(unreadable(workflow.apply(None, &Event::RunCreated { input })));
    let completed = |output| Event::StepCompleted { key: "prepare_task".to_owned(), output };
    assert!(unreadable(workflow.apply(Some(json!({ "state": "stitch.99" })), &completed(json!(1)))));
    assert!(unreadable(workflow.apply(Some(created()?), &completed(json!({ "step": "of another age" })))));
    assert!(unreadable(workflow.digest(&json!(null))));
    assert!(workflow.decide(&json!([])).is_err());
    Ok(())
}

#[test]
fn pausing_failing_and_retrying_change_no_decision() -> TestResult {
    let workflow = StoredWorkflow;
    let before = created()?;
    let decided = workflow.decide(&before)?;
    let key = "prepare_task".to_owned();
    let failure = StepFailure::fatal("toolchain.missing", "no compiler was found");
    let mut state = before.clone();
    for event in [
        Event::StepScheduled { key: key.clone() },
        Event::RunPaused { by: None },
        Event::RunResumed { by: None },
        Event::StepFailed { key: key.clone(), failure: failure.clone() },
        Event::RunFailed { failure },
        Event::RunRetried { keys: vec![key.clone()], by: None },
        Event::StepCancelled { key },
        Event::RunCancelRequested { by: None },
        Event::RunCancelled,
    ] {
        state = workflow.apply(Some(state), &event)?;
        assert_eq!(workflow.decide(&state)?, decided, "{event:?}");
    }
    assert_eq!(state, before);
    Ok(())
}

#[test]
fn the_activity_names_subtask_attempt_and_step() -> TestResult {
    let run = Script::of([Try::CompileError, right(2.5)])
        .play(TaskGoal { target_speedup: Some(2.0), ..TaskGoal::default() })?;
    let mut state = None;
    let mut activities = Vec::new();
    for event in &run.events {
        let next = StoredWorkflow.apply(state, event)?;
        let digest: RunDigest = serde_json::from_value(StoredWorkflow.digest(&next)?)?;
        if activities.last() != Some(&digest.activity) {
            activities.push(digest.activity);
        }
        state = Some(next);
    }
    assert_eq!(
        activities[..4].to_vec(),
        ["prepare the task", "plan", "subtask 1, attempt 1: write_code", "subtask 1, attempt 1: build"]
    );
    assert!(activities.contains(&"subtask 1, attempt 2: confirm".to_owned()));
    assert_eq!(initial_digest(&facts::run_input(TaskGoal::default())).activity, "prepare the task");
    Ok(())
}

#[test]
fn the_coder_is_given_plan_parent_and_history() -> TestResult {
    let run = Script::of([right(1.5), right(1.2), right(3.0)])
        .play(TaskGoal { target_speedup: Some(2.5), ..TaskGoal::default() })?;
    let Some(StepInput::WriteCode { request, .. }) = run.input("subtask1/attempt3/write_code") else {
        return Err("no third attempt".into());
    };
    assert_eq!(request.parent.as_ref().map(|parent| parent.number), Some(1));
    assert!(request.parent.as_ref().is_some_and(|parent| parent.diagnosis.is_some() && parent.route.is_some()));
    assert_eq!(request.history.len(), 2);
    assert_eq!(
        request.history,
        [
            "attempt 1 (plan 1, subtask 1, draft): method 1: tiles; correct_faster, 1.500x [1.455, 1.545], confirmed",
            "attempt 2 (plan 1, subtask 1, optimize from attempt 1): modification 1; correct_faster, 1.200x [1.164, 1.236], \
             measured once; 0.80x over attempt 1 where 1.30x was expected",
        ]
    );
    Ok(())
}

#[test]
fn the_judge_is_told_what_the_author_was_asked_for() -> TestResult {
    let tries = [right(1.5), advised(1.9, Some(Route::NextSubtask)), advised(2.4, Some(Route::Stop))];
    let run = Script::of(tries).with_plans(&[&[None, None]]).play(TaskGoal::default())?;
    let asked = |key: &str| match run.input(key) {
        Some(StepInput::Judge { modification, parent_source, parent_speedup, .. }) => {
            (modification.clone(), parent_source.clone(), parent_speedup.map(|speedup| speedup.estimate))
        }
        _ => (Some("no judge".to_owned()), None, None),
    };
    assert_eq!(asked("subtask1/attempt1/judge"), (None, None, None));
    assert_eq!(
        asked("subtask1/attempt2/judge"),
        (Some("modification 1".to_owned()), Some(facts::hash("source 1")), Some(1.5))
    );
    // A new subtask is a request of its own.
    assert_eq!(asked("subtask2/attempt3/judge"), (None, Some(facts::hash("source 2")), Some(1.9)));
    Ok(())
}

#[test]
fn the_judge_is_told_what_limited_the_program_before() -> TestResult {
    let tries = [right(1.5), Try::Wrong, advised(1.9, Some(Route::Stop))];
    let run = Script::of(tries).play(TaskGoal::default())?;
    let bound = |number: u32| match run.input(&format!("subtask1/attempt{number}/judge")) {
        Some(StepInput::Judge { parent_bound, .. }) => Ok(*parent_bound),
        other => Err(format!("{other:?}")),
    };
    let diagnosed = run.view.attempts[0].diagnosis.as_ref().map(|diagnosis| diagnosis.bound);
    assert!(diagnosed.is_some());
    assert_eq!((bound(1)?, bound(3)?), (None, diagnosed), "a repair carries on the change that was asked for before");
    Ok(())
}

#[test]
fn the_sandbox_is_demanded_of_every_step_that_runs_the_candidate() -> TestResult {
    let mut input = facts::run_input(TaskGoal { target_speedup: Some(2.0), ..TaskGoal::default() });
    input.sandbox_required = true;
    let script = Script::of([right(2.5)]);
    let run = super::simulator::run(&input, |key, input| script.answer(key, input))?;
    let mut demanded = Vec::new();
    for (key, input) in &run.steps {
        match input {
            StepInput::Build { sandbox_required, .. }
            | StepInput::Check { sandbox_required, .. }
            | StepInput::Measure { sandbox_required, .. } => {
                assert!(sandbox_required, "{key}");
                demanded.push(key);
            }
            _ => {}
        }
    }
    assert_eq!(demanded.len(), 4);
    Ok(())
}

#[test]
fn the_confirming_measurement_says_so() -> TestResult {
    let run = Script::of([advised(2.0, Some(Route::Stop))]).play(TaskGoal::default())?;
    let confirms = |key: &str| matches!(run.input(key), Some(StepInput::Measure { confirms: true, .. }));
    assert!(!confirms("subtask1/attempt1/measure"));
    assert!(confirms("subtask1/attempt1/confirm"));
    Ok(())
}

#[test]
fn a_long_history_is_bounded() -> TestResult {
    let limits = TaskGoal { max_attempts: Some(60), replan_after_failed: Some(90), ..TaskGoal::default() };
    let run = Script::of(vec![Try::CompileError; 60]).play(limits)?;
    let Some(StepInput::WriteCode { request, .. }) = run.input("subtask1/attempt60/write_code") else {
        return Err("no last attempt".into());
    };
    assert_eq!(request.history.len(), MAX_HISTORY_LINES);
    assert!(request.history.iter().all(|line| line.chars().count() <= MAX_HISTORY_LINE_CHARS));
    assert!(request.history.last().is_some_and(|line| line.starts_with("attempt 59")));
    assert!(request.history[0].contains("line 12: 'sum' was not declared in this scope"));
    Ok(())
}

#[test]
fn deciding_again_orders_the_same_key() -> TestResult {
    let state = created()?;
    let [Command::Schedule(first)] = &StoredWorkflow.decide(&state)?[..] else { return Err("no order".into()) };
    assert_eq!((first.key.as_str(), first.kind.as_str()), ("prepare_task", "prepare_task"));
    Ok(())
}
