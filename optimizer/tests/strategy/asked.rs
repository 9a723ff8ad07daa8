//! What the Coder is asked for: what was advised and never tried is carried on, and no method is asked for twice.

use nightshift_protocol::attempt::Route;
use nightshift_protocol::attempt_memory::AttemptMemory;
use nightshift_protocol::step::{CodeRequest, StepInput};
use nightshift_protocol::task::TaskGoal;

use super::script::{Script, advised, right};
use super::simulator::{Failure, Finished};

type TestResult = Result<(), Failure>;

fn request(run: &Finished, key: &str) -> Result<CodeRequest, Failure> {
    match run.input(key) {
        Some(StepInput::WriteCode { request, .. }) => Ok(*request.clone()),
        other => Err(format!("{key}: {other:?}").into()),
    }
}

#[test]
fn what_was_advised_and_never_tried_is_carried_into_a_new_plan() -> TestResult {
    let tries = [advised(1.5, Some(Route::Replan)), advised(2.0, Some(Route::Stop))];
    let run = Script::of(tries).play(TaskGoal::default())?;
    let Some(StepInput::Replan { best, memory, .. }) = run.input("replan2") else { return Err("no new plan".into()) };
    assert_eq!(best.as_ref().map(|best| best.number), Some(1), "the Planner sees the best program");
    let told: Vec<(u32, &str)> =
        memory.untried.iter().map(|untried| (untried.attempt, untried.text.as_str())).collect();
    assert_eq!(told, [(1, "modification 1")]);
    let asked = request(&run, "subtask1/attempt2/write_code")?;
    assert_eq!((asked.modification, asked.memory.untried.len()), (None, 1));
    Ok(())
}

#[test]
fn what_an_attempt_was_asked_for_is_no_longer_untried() -> TestResult {
    let run = Script::of([right(1.5), right(1.8), advised(2.0, Some(Route::Stop))]).play(TaskGoal::default())?;
    let asked = request(&run, "subtask1/attempt3/write_code")?;
    assert_eq!(asked.modification.map(|modification| modification.text).as_deref(), Some("modification 2"));
    assert!(asked.memory.untried.is_empty(), "{:?}", asked.memory.untried);
    Ok(())
}

#[test]
fn advice_that_the_next_subtask_may_have_taken_up_is_told_apart() -> TestResult {
    let tries = [advised(1.5, Some(Route::NextSubtask)), advised(1.9, Some(Route::Stop))];
    let run = Script::of(tries).with_plans(&[&[None, None]]).play(TaskGoal::default())?;
    let of =
        |memory: &AttemptMemory| memory.untried.iter().map(|it| (it.attempt, it.may_be_made_by)).collect::<Vec<_>>();
    assert_eq!(of(&request(&run, "subtask2/attempt2/write_code")?.memory), [(1, None)], "nothing is written yet");
    let Some(StepInput::Diagnose { memory, .. }) = run.input("subtask2/attempt2/diagnose") else {
        return Err("no diagnosis".into());
    };
    assert_eq!(of(memory), [(1, Some(2))]);
    Ok(())
}

#[test]
fn a_diagnosis_knows_that_its_attempt_is_the_best() -> TestResult {
    let run = Script::of([right(1.5), right(1.8), advised(1.2, Some(Route::Stop))]).play(TaskGoal::default())?;
    let best: Vec<Option<u32>> = (1..=3)
        .map(|attempt| match run.input(&format!("subtask1/attempt{attempt}/diagnose")) {
            Some(StepInput::Diagnose { memory, .. }) => Ok(memory.best.map(|best| best.attempt)),
            other => Err(format!("{other:?}").into()),
        })
        .collect::<Result<_, Failure>>()?;
    assert_eq!(best, [Some(1), Some(2), Some(2)]);
    Ok(())
}

#[test]
fn a_method_that_was_tried_is_not_asked_for_again() -> TestResult {
    // The second subtask becomes slower with its only method, so that the program of the first goes on.
    let tries = [advised(1.5, Some(Route::NextSubtask)), right(1.2), advised(1.9, Some(Route::Stop))];
    let run = Script::of(tries).with_plans(&[&[None, None]]).play(TaskGoal::default())?;
    let asked: Vec<Option<u32>> = ["subtask1/attempt1", "subtask2/attempt2", "subtask2/attempt3"]
        .iter()
        .map(|attempt| Ok(request(&run, &format!("{attempt}/write_code"))?.method))
        .collect::<Result<_, Failure>>()?;
    assert_eq!(asked, [Some(1), Some(1), None]);
    let last = request(&run, "subtask2/attempt3/write_code")?;
    assert_eq!(last.parent.map(|parent| parent.number), Some(1));
    assert_eq!(last.near, None, "a program that is a fifth slower is not nearly as fast");
    Ok(())
}

#[test]
fn a_program_that_is_nearly_as_fast_is_shown_beside_the_best() -> TestResult {
    let tries = [advised(1.5, Some(Route::NextSubtask)), right(1.4), advised(1.9, Some(Route::Stop))];
    let run = Script::of(tries).with_plans(&[&[None, None]]).play(TaskGoal::default())?;
    let last = request(&run, "subtask2/attempt3/write_code")?;
    let near = last.near.ok_or("no program beside")?;
    assert_eq!((near.attempt, near.speedup.estimate), (2, 1.4));
    Ok(())
}

#[test]
fn a_group_is_asked_for_the_same_method_and_candidates_of_a_beam_share_them() -> TestResult {
    let tries = [right(1.5), right(1.4), right(1.3), right(1.2)];
    let goal = || TaskGoal { max_attempts: Some(4), candidates_per_round: Some(4), ..TaskGoal::default() };
    for (strategy, method) in [("group", Some(1)), ("beam", None)] {
        let run = Script::of(tries.clone()).play_by(strategy, goal(), |_| 0)?;
        for number in 1..=4 {
            let asked = request(&run, &format!("subtask1/attempt{number}/write_code"))?;
            assert_eq!(asked.method, method, "{strategy}, attempt {number}");
        }
    }
    Ok(())
}
