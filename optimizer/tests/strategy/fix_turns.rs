//! Programs that do not build, and that the Coder fixes within their attempt.

use nightshift_engine::event::Event;
use nightshift_engine::workflow::{Command, StepOrder};
use nightshift_optimizer::agent::budget_exhausted;
use nightshift_optimizer::strategy::{known, view, with_session};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::{Attempt, AttemptOutcome, Stage};
use nightshift_protocol::budget::{BudgetLine, Resource};
use nightshift_protocol::step::{CodeRequest, StepInput, StepOutput};
use nightshift_protocol::task::TaskGoal;
use nightshift_protocol::verdict::{Answer, Finding, Severity};
use serde_json::Value;

use super::facts;
use super::script::{Script, Try, right};
use super::simulator::{self, Failure, Finished};
use super::stored::StoredWorkflow;

type TestResult = Result<(), Failure>;

/// Ends the run at the first right program.
fn goal(max_fix_turns: u32) -> TaskGoal {
    TaskGoal { target_speedup: Some(2.0), max_fix_turns: Some(max_fix_turns), ..TaskGoal::default() }
}

fn request<'r>(run: &'r Finished, key: &str) -> Result<&'r CodeRequest, Failure> {
    match run.input(key) {
        Some(StepInput::WriteCode { request, .. }) => Ok(request),
        other => Err(format!("{key}: {other:?}").into()),
    }
}

fn sources(attempt: &Attempt) -> Vec<ArtifactHash> {
    attempt.earlier_versions.iter().map(|version| version.source.clone()).collect()
}

#[test]
fn a_program_that_does_not_build_is_fixed_within_its_attempt() -> TestResult {
    let versions = Try::Versions(vec![Try::CompileError, right(2.5)]);
    let run = Script::of([versions]).play_all(goal(2))?;
    let expected = [
        "prepare_task",
        "plan",
        "subtask1/attempt1/write_code",
        "subtask1/attempt1/build",
        "subtask1/attempt1/fix1/write_code",
        "subtask1/attempt1/fix1/build",
        "subtask1/attempt1/check",
        "subtask1/attempt1/measure",
        "subtask1/attempt1/confirm",
        "subtask1/attempt1/profile",
        "subtask1/attempt1/diagnose",
        "subtask1/attempt1/judge",
    ];
    assert_eq!(run.keys(), expected);
    assert_eq!(run.stopped(), "target_reached");

    let attempt = &run.view.attempts[0];
    assert_eq!((attempt.stage, attempt.outcome), (Stage::Draft, AttemptOutcome::CorrectFaster));
    assert_eq!(attempt.verdict.compiled, Answer::Pass);
    assert_eq!(attempt.source, Some(facts::source(1, 1)));
    assert!(attempt.build.as_ref().is_some_and(|build| build.library.is_some()));
    let [earlier] = attempt.earlier_versions.as_slice() else { return Err("one version failed".into()) };
    assert_eq!((&earlier.source, earlier.outcome), (&facts::source(1, 0), AttemptOutcome::CompileFailed));
    assert!(earlier.build.as_ref().is_some_and(|build| !build.messages.is_empty()));
    assert_eq!(attempt.calls.len(), 4, "both answers, the diagnosis and the rating");
    Ok(())
}

#[test]
fn the_coder_is_told_what_a_repair_of_the_attempt_would_be_told() -> TestResult {
    let change = Try::Versions(vec![Try::CompileError, right(2.5)]);
    let run = Script::of([right(1.5), change]).play_all(goal(1))?;
    let first = request(&run, "subtask1/attempt2/write_code")?;
    let fix = request(&run, "subtask1/attempt2/fix1/write_code")?;
    assert_eq!((first.fix_turn, fix.fix_turn), (0, 1));
    assert_eq!((first.stage, fix.stage), (Stage::Optimize, Stage::RepairCompile));
    let failed = fix.parent.as_ref().ok_or("no program to fix")?;
    assert_eq!((failed.number, failed.outcome), (2, AttemptOutcome::CompileFailed));
    assert_eq!(failed.source, Some(facts::source(2, 0)));
    assert!(first.modification.is_some() && fix.modification == first.modification, "the change is still asked for");
    assert_eq!((&fix.history, &fix.memory), (&first.history, &first.memory));
    assert_eq!((fix.method, &fix.near, fix.candidate), (None, &None, None));
    let StepInput::Build { source, .. } = run.input("subtask1/attempt2/fix1/build").ok_or("not built")? else {
        return Err("no build".into());
    };
    assert_eq!(*source, facts::source(2, 1));
    Ok(())
}

#[test]
fn after_the_last_turn_the_attempt_failed_and_is_repaired_as_ever() -> TestResult {
    for turns in [1, 2] {
        let run = Script::of([Try::CompileError, right(2.5)]).play_all(goal(turns))?;
        assert_eq!(run.lineage(), ["1.1 draft", "1.1 repair_compile from 1"]);
        assert_eq!(run.routes(), ["repair by rule", "stop by rule"]);
        let attempt = &run.view.attempts[0];
        let turns = usize::try_from(turns)?;
        assert_eq!(attempt.outcome, AttemptOutcome::CompileFailed);
        assert_eq!(attempt.source, Some(facts::source(1, turns)), "the last version is the attempt's");
        assert_eq!(sources(attempt), (0..turns).map(|turn| facts::source(1, turn)).collect::<Vec<_>>());
        assert!(attempt.reward.as_ref().is_some_and(|reward| reward.reward.abs() < f64::EPSILON));
        let repaired = request(&run, "subtask1/attempt2/write_code")?;
        assert_eq!((repaired.fix_turn, repaired.stage), (0, Stage::RepairCompile));
        assert!(repaired.parent.as_ref().is_some_and(|parent| parent.source == attempt.source));
    }
    Ok(())
}

#[test]
fn without_turns_and_in_runs_from_before_them_a_compile_error_ends_the_attempt() -> TestResult {
    for goal in [goal(0), TaskGoal { max_fix_turns: None, ..goal(0) }] {
        let run = Script::of([Try::CompileError, right(2.5)]).play_all(goal)?;
        assert_eq!(run.rungs(1), ["write_code", "build"]);
        assert!(run.keys().iter().all(|key| !key.contains("/fix")) && run.view.attempts[0].earlier_versions.is_empty());
    }
    Ok(())
}

#[test]
fn a_turn_without_a_program_leaves_the_version_that_failed() -> TestResult {
    for answer in [facts::no_code(), silence()] {
        let script = Script::of([Try::CompileError, right(2.5)]);
        let run = simulator::run(&facts::run_input(goal(2)), |key, input| {
            if key == "subtask1/attempt1/fix1/write_code" { Ok(answer.clone()) } else { script.answer(key, input) }
        })?;
        let attempt = &run.view.attempts[0];
        assert_eq!((attempt.outcome, &attempt.source), (AttemptOutcome::CompileFailed, &Some(facts::source(1, 0))));
        assert!(attempt.build.is_some() && attempt.earlier_versions.is_empty());
        assert_eq!(run.rungs(1), ["write_code", "build", "write_code"], "no turn follows");
        assert_eq!(run.lineage()[1], "1.1 repair_compile from 1");
        let is_noted = attempt.findings.iter().any(|finding| finding.severity == Severity::Note);
        assert_eq!(is_noted, !answer.calls().is_empty(), "a script that ended says nothing about the program");
    }
    Ok(())
}

/// The answer of a script that has no reply for a fix turn.
fn silence() -> StepOutput {
    StepOutput::NoCode {
        code: "model.script_ended".to_owned(),
        message: "the script has no reply".to_owned(),
        calls: Vec::new(),
    }
}

#[test]
fn what_the_screening_refuses_is_fixed_in_a_turn_unless_it_deceives() -> TestResult {
    let script = Script::of([Try::Forbidden, right(2.5)]);
    let refused = |code: &str| Finding { code: code.to_owned(), ..facts::violation() };
    let play = |code: &'static str| {
        simulator::run(&facts::run_input(goal(1)), |key, input| match key {
            "subtask1/attempt1/write_code" => Ok(facts::code_written(1, 0, vec![refused(code)])),
            "subtask1/attempt1/fix1/write_code" => Ok(facts::code_written(1, 1, Vec::new())),
            key if key.starts_with("subtask1/attempt1/") => script.answer(&key.replace("attempt1", "attempt2"), input),
            key => script.answer(key, input),
        })
    };
    let run = play("forbidden_include")?;
    let [attempt] = run.view.attempts.as_slice() else { return Err("one attempt".into()) };
    assert_eq!(request(&run, "subtask1/attempt1/fix1/write_code")?.stage, Stage::RepairCompliance);
    assert!(attempt.outcome.is_correct() && attempt.findings.is_empty());
    let [earlier] = attempt.earlier_versions.as_slice() else { return Err("one version failed".into()) };
    assert_eq!((earlier.outcome, &earlier.build), (AttemptOutcome::NotCompliant, &None));
    assert_eq!(earlier.findings, [refused("forbidden_include")]);

    let run = play("prebuilt_code")?;
    assert_eq!(run.rungs(1), ["write_code"]);
    assert_eq!(run.view.attempts[0].outcome, AttemptOutcome::NotCompliant);
    assert!(run.view.attempts[0].reward.as_ref().is_some_and(|reward| reward.major_hacking));
    Ok(())
}

#[test]
fn every_strategy_fixes_programs_and_counts_no_attempt_for_it() -> TestResult {
    let without_tools = known().into_iter().filter(|(strategy, _)| !with_session().contains(strategy));
    for (strategy, _) in without_tools {
        let versions = || Try::Versions(vec![Try::CompileError, Try::CompileError, right(1.5)]);
        let goal = TaskGoal {
            max_attempts: Some(4),
            candidates_per_round: Some(2),
            max_fix_turns: Some(2),
            ..TaskGoal::default()
        };
        let run =
            Script::of([versions(), versions(), versions(), versions()]).play_by(strategy, goal, |open| open - 1)?;
        let numbers: Vec<u32> = run.view.attempts.iter().map(|attempt| attempt.number).collect();
        assert_eq!(numbers, [1, 2, 3, 4], "{strategy}");
        for attempt in &run.view.attempts {
            assert!(attempt.outcome.is_correct(), "{strategy}: {:?}", attempt.outcome);
            assert_eq!(sources(attempt), [facts::source(attempt.number, 0), facts::source(attempt.number, 1)]);
        }
    }
    Ok(())
}

/// Follows the script until a step of this key is wanted; gives the state and the step.
fn until(script: &Script, goal: TaskGoal, wanted: &str) -> Result<(Value, StepOrder), Failure> {
    let input = serde_json::to_value(facts::run_input(goal))?;
    let mut state = StoredWorkflow.apply(None, &Event::RunCreated { input })?;
    loop {
        let Some(Command::Schedule(order)) = StoredWorkflow.decide(&state)?.into_iter().next() else {
            return Err(format!("{wanted} was never wanted").into());
        };
        if order.key == wanted {
            return Ok((state, order));
        }
        let output = script.answer(&order.key, &serde_json::from_value(order.input)?)?;
        let event = Event::StepCompleted { key: order.key, output: serde_json::to_value(output)? };
        state = StoredWorkflow.apply(Some(state), &event)?;
    }
}

#[test]
fn a_turn_sets_no_attempt_aside() -> TestResult {
    let script = Script::of([Try::CompileError]);
    let (state, order) = until(&script, goal(1), "subtask1/attempt1/write_code")?;
    assert!(order.reserve.iter().any(|amount| amount.resource == Resource::Attempts));
    assert_eq!(view(&state)?.attempts.len(), 1);
    let (state, order) = until(&script, goal(1), "subtask1/attempt1/fix1/write_code")?;
    assert_eq!(order.reserve, []);
    // The attempt is pending during the turn: no list counts it as failed.
    let [attempt] = &view(&state)?.attempts[..] else { return Err("there is one attempt".into()) };
    assert_eq!((attempt.outcome, attempt.earlier_versions.len()), (AttemptOutcome::Pending, 1));
    assert!(StoredWorkflow.digest(&state)?["activity"].as_str().is_some_and(|said| said.ends_with("fix1/write_code")));
    Ok(())
}

#[test]
fn a_budget_that_ends_in_a_turn_leaves_an_attempt_that_did_not_compile() -> TestResult {
    let (state, order) = until(&Script::of([Try::CompileError]), goal(2), "subtask1/attempt1/fix1/write_code")?;
    let line = BudgetLine { resource: Resource::Tokens, cap: Some(10), used: 7, reserved: 2 };
    let failure = budget_exhausted(&line);
    let state = StoredWorkflow.apply(Some(state), &Event::StepFailed { key: order.key, failure })?;
    assert!(matches!(StoredWorkflow.decide(&state)?.as_slice(), [Command::Complete { .. }]));
    let view = view(&state)?;
    assert_eq!(view.stop_reason.map(|reason| reason.as_str()), Some("budget_exhausted"));
    let attempt = &view.attempts[0];
    assert_eq!((attempt.outcome, &attempt.source), (AttemptOutcome::CompileFailed, &Some(facts::source(1, 0))));
    assert!(attempt.build.as_ref().is_some_and(|build| !build.messages.is_empty()));
    Ok(())
}
