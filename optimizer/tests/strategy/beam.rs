//! Several candidates at a time.

use nightshift_protocol::attempt::Route;
use nightshift_protocol::step::StepInput;
use nightshift_protocol::task::TaskGoal;

use super::script::{Script, Try, advised, right};
use super::simulator::{Failure, Finished};

type TestResult = Result<(), Failure>;

fn goal(attempts: u32, candidates: u32) -> TaskGoal {
    TaskGoal { max_attempts: Some(attempts), candidates_per_round: Some(candidates), ..TaskGoal::default() }
}

/// Plays the steps of a round in turns, so that all lanes are under way at once.
fn play(tries: &[Try], goal: TaskGoal) -> Result<Finished, Failure> {
    let mut turn = 0;
    Script::of(tries.iter().cloned()).play_by("beam", goal, move |open| {
        turn += 1;
        turn % open
    })
}

#[test]
fn a_round_opens_its_candidates_together_over_one_plan() -> TestResult {
    let run = play(&[right(1.2), right(1.5), Try::Wrong, right(1.1)], goal(4, 4))?;
    assert_eq!(
        run.keys()[..6],
        [
            "prepare_task",
            "plan",
            "subtask1/attempt1/write_code",
            "subtask1/attempt2/write_code",
            "subtask1/attempt3/write_code",
            "subtask1/attempt4/write_code"
        ]
    );
    let Some(StepInput::WriteCode { request, .. }) = run.input("subtask1/attempt2/write_code") else {
        return Err("no second candidate".into());
    };
    assert_eq!(request.candidate.map(|candidate| (candidate.number, candidate.of)), Some((2, 4)));
    assert!(request.history.is_empty(), "siblings are as new as it is");
    assert_eq!((run.stopped(), run.digest.best_attempt), ("attempt_budget", Some(2)));
    Ok(())
}

#[test]
fn the_next_round_starts_from_the_fastest_and_asks_no_two_for_the_same() -> TestResult {
    let first = [right(1.2), right(1.5), Try::Wrong, right(1.1)];
    let second = [right(1.6), right(1.3), right(2.0), right(1.4)];
    let run = play(&[first, second].concat(), goal(8, 4))?;
    assert_eq!(
        run.lineage()[4..],
        ["1.1 optimize from 2", "1.1 optimize from 1", "1.1 optimize from 2", "1.1 optimize from 1"]
    );
    let asked: Vec<Option<&str>> = run.view.attempts[4..]
        .iter()
        .map(|attempt| attempt.modification.as_ref().map(|asked| asked.text.as_str()))
        .collect();
    assert_eq!(asked, [Some("modification 2"), Some("modification 1"), None, None]);
    assert_eq!(run.digest.best_attempt, Some(7));
    let gain = run.view.attempts[4].gain.ok_or("no gain")?;
    assert_eq!((gain.over, gain.expected), (2, Some(1.3)));
    assert!((gain.measured - 1.6 / 1.5).abs() < 1e-9);
    Ok(())
}

#[test]
fn a_round_in_which_nothing_is_right_is_mended_candidate_by_candidate_and_then_planned_anew() -> TestResult {
    let tries = [Try::Wrong, Try::CompileError, Try::CompileError, Try::Wrong, right(2.0), right(1.0)];
    let run = play(&tries, goal(6, 2))?;
    assert_eq!(
        run.lineage(),
        [
            "1.1 draft",
            "1.1 draft",
            "1.1 repair_correctness from 1",
            "1.1 repair_compile from 2",
            "2.1 draft",
            "2.1 draft"
        ]
    );
    assert_eq!(run.routes()[..4], ["repair by rule", "repair by rule", "replan by rule", "replan by rule"]);
    Ok(())
}

#[test]
fn the_fastest_of_a_round_speaks_for_it() -> TestResult {
    let slow = advised(1.1, Some(Route::Optimize));
    let run = play(&[slow, advised(1.9, Some(Route::Stop))], goal(9, 2))?;
    assert_eq!((run.stopped(), run.view.attempts.len()), ("verifier_stopped", 2));
    assert!(run.view.attempts.iter().all(|attempt| attempt.route == run.view.attempts[1].route));
    Ok(())
}

#[test]
fn rounds_without_a_gain_end_the_search() -> TestResult {
    let goal = TaskGoal { max_replans: Some(0), replan_after_stagnant: Some(2), ..goal(12, 2) };
    let run = play(&[right(2.0), right(1.9), right(2.01), right(1.8), right(2.0), right(1.7)], goal)?;
    assert_eq!((run.stopped(), run.view.attempts.len()), ("stagnated", 6));
    Ok(())
}

#[test]
fn the_last_round_is_as_wide_as_the_budget_allows() -> TestResult {
    let run = play(&[right(1.2), right(1.5), right(1.7), right(2.2), right(3.0)], goal(5, 3))?;
    assert_eq!(run.view.attempts.len(), 5);
    assert_eq!(run.view.attempts[4].candidate.map(|candidate| candidate.of), Some(2));
    Ok(())
}

#[test]
fn one_candidate_at_a_time_is_a_round_as_well() -> TestResult {
    let run = play(&[right(1.2), right(1.5)], goal(2, 1))?;
    assert_eq!(run.lineage(), ["1.1 draft", "1.1 optimize from 1"]);
    assert!(run.view.attempts.iter().all(|attempt| attempt.candidate.is_none()));
    Ok(())
}
