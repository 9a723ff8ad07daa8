//! Coder and judge in turns.

use nightshift_protocol::attempt::{DecidedBy, Route};
use nightshift_protocol::step::StepInput;
use nightshift_protocol::task::TaskGoal;

use super::script::{Script, Try, advised, right};
use super::simulator::{Failure, Finished};

type TestResult = Result<(), Failure>;

fn play(tries: &[Try], goal: TaskGoal) -> Result<Finished, Failure> {
    Script::of(tries.iter().cloned()).play_by("forge", goal, |_| 0)
}

fn rounds(number: usize) -> TaskGoal {
    TaskGoal { max_attempts: u32::try_from(number).ok(), ..TaskGoal::default() }
}

#[test]
fn it_begins_without_a_plan_and_uses_every_round() -> TestResult {
    let tries = [right(1.5), advised(1.2, Some(Route::Stop)), advised(1.9, Some(Route::Replan)), right(1.1)];
    let run = play(&tries, rounds(4))?;
    assert_eq!(run.keys()[..2], ["prepare_task", "subtask1/attempt1/write_code"]);
    assert_eq!(run.routes(), ["optimize by model", "optimize by rule", "optimize by rule", "stop by rule"]);
    // From the latest program, whether it is the best or not.
    assert_eq!(run.lineage(), ["1.1 draft", "1.1 optimize from 1", "1.1 optimize from 2", "1.1 optimize from 3"]);
    assert_eq!((run.stopped(), run.digest.best_attempt), ("attempt_budget", Some(3)));
    assert_eq!(run.view.plans.len(), 1);
    Ok(())
}

#[test]
fn a_failure_is_looked_at_by_the_judge_and_mended() -> TestResult {
    let run = play(&[Try::CompileError, Try::Wrong, Try::NoCode, right(2.5)], rounds(4))?;
    assert_eq!(run.rungs(1), ["write_code", "build", "diagnose"]);
    assert_eq!(run.rungs(2), ["write_code", "build", "check", "diagnose"]);
    assert_eq!(run.rungs(3), ["write_code"], "without a program there is nothing to look at");
    assert_eq!(
        run.lineage(),
        ["1.1 draft", "1.1 repair_compile from 1", "1.1 repair_correctness from 2", "1.1 repair_correctness from 2"]
    );
    let first = &run.view.attempts[0];
    let route = first.route.as_ref().ok_or("no route")?;
    assert_eq!((route.route, route.decided_by), (Route::Repair, DecidedBy::Model));
    assert!(route.reason.contains("did not compile") && route.reason.contains("cause 1"), "{}", route.reason);
    assert_eq!(first.correction.as_ref().map(|correction| correction.minimal_fix.as_str()), Some("fix 1"));
    Ok(())
}

#[test]
fn nothing_but_the_latest_program_and_its_feedback_is_carried() -> TestResult {
    let run = play(&[right(1.5), right(1.2), right(1.3)], rounds(3))?;
    let Some(StepInput::WriteCode { request, .. }) = run.input("subtask1/attempt3/write_code") else {
        return Err("no third round".into());
    };
    assert!(request.history.is_empty() && request.memory.is_empty());
    assert_eq!(request.parent.as_ref().map(|parent| parent.number), Some(2));
    assert_eq!(request.modification.as_ref().map(|asked| asked.text.as_str()), Some("modification 2"));
    Ok(())
}

#[test]
fn it_ends_at_its_target() -> TestResult {
    let goal = TaskGoal { target_speedup: Some(2.0), ..rounds(9) };
    assert_eq!(play(&[right(1.5), right(2.5)], goal)?.stopped(), "target_reached");
    Ok(())
}
