//! What a run remembers, and what it asks for because of that.

use nightshift_protocol::attempt::Route;
use nightshift_protocol::attempt_memory::AttemptMemory;
use nightshift_protocol::campaign::RunInput;
use nightshift_protocol::step::{StepInput, StepOutput};
use nightshift_protocol::task::TaskGoal;

use super::facts;
use super::script::{Script, Try, right};
use super::simulator::{self, Failure, Finished};

type TestResult = Result<(), Failure>;

fn memory(run: &Finished, attempt: u32) -> Result<&AttemptMemory, Failure> {
    let key = format!("subtask1/attempt{attempt}/write_code");
    match run.input(&key) {
        Some(StepInput::WriteCode { request, .. }) => Ok(&request.memory),
        other => Err(format!("{key}: {other:?}").into()),
    }
}

fn asked(run: &Finished, attempt: usize) -> Option<&str> {
    run.view.attempts.get(attempt - 1)?.modification.as_ref().map(|asked| asked.text.as_str())
}

fn long(attempts: u32) -> TaskGoal {
    TaskGoal {
        max_attempts: Some(attempts),
        replan_after_failed: Some(99),
        replan_after_stagnant: Some(99),
        ..TaskGoal::default()
    }
}

#[test]
fn the_expected_gain_is_kept_beside_the_measured_one() -> TestResult {
    let run = Script::of([right(1.5), right(1.8)]).play_all(long(2))?;
    let gain = run.view.attempts[1].gain.ok_or("no gain")?;
    assert_eq!((gain.over, gain.expected), (1, Some(1.3)));
    assert!((gain.measured - 1.2).abs() < 1e-9);
    assert_eq!(run.view.attempts[0].gain, None);
    Ok(())
}

#[test]
fn a_change_that_did_not_help_gives_way_to_the_next_one() -> TestResult {
    let run = Script::of([right(1.5), right(1.4), right(1.3), right(1.2)]).play_all(long(4))?;
    // Always from attempt 1: first what was advised on it, then what was advised on the newest one.
    assert_eq!(run.lineage()[1..], ["1.1 optimize from 1", "1.1 optimize from 1", "1.1 optimize from 1"]);
    assert_eq!(
        (asked(&run, 2), asked(&run, 3), asked(&run, 4)),
        (Some("modification 1"), Some("modification 2"), Some("modification 3"))
    );
    let failed: Vec<(&str, bool)> = memory(&run, 4)?.tried.iter().map(|t| (t.text.as_str(), t.failed)).collect();
    assert_eq!(failed, [("modification 1", true), ("modification 2", true)]);
    assert_eq!(memory(&run, 4)?.best.map(|best| best.attempt), Some(1));
    Ok(())
}

#[test]
fn a_change_that_made_the_best_program_is_no_failure_however_small_its_gain() -> TestResult {
    // Less than 10 % counts as no gain, but the second attempt is the best program nevertheless.
    let goal = TaskGoal { min_gain: Some(0.1), ..long(4) };
    let script = Script::of([right(1.5), right(1.6), right(1.55), right(1.2)]);
    let failed = |rules: u32| -> Result<Vec<(u32, bool)>, Failure> {
        let input = RunInput { rules, ..facts::run_input(goal.clone()) };
        let run = simulator::run(&input, |key, input| script.answer(key, input))?;
        Ok(memory(&run, 4)?.tried.iter().map(|tried| (tried.attempt, tried.failed)).collect())
    };
    assert_eq!(failed(4)?, [(2, true), (3, true)], "a run goes on by the rules that it began with");
    assert_eq!(failed(5)?, [(2, false), (3, true)]);
    Ok(())
}

/// Plays tries with a Verifier that always advises the same.
fn stubborn(tries: &[Try], reason: Option<&str>) -> Result<Finished, Failure> {
    let script = Script::of(tries.iter().cloned());
    let goal = long(u32::try_from(tries.len())?);
    simulator::run(&facts::run_input(goal), |key, input| {
        let mut output = script.answer(key, input)?;
        if let StepOutput::Diagnosed { diagnosis: Some(diagnosis), .. } = &mut output {
            "widen the tiles".clone_into(&mut diagnosis.modification);
            diagnosis.repeat_reason = reason.map(str::to_owned);
        }
        Ok(output)
    })
}

#[test]
fn the_same_advice_again_is_followed_only_with_a_reason() -> TestResult {
    let tries = [right(1.5), right(1.4), right(1.3)];
    let run = stubborn(&tries, None)?;
    assert_eq!((asked(&run, 2), asked(&run, 3)), (Some("widen the tiles"), None));
    let run = stubborn(&tries, Some("the bounds were off by one"))?;
    let again = run.view.attempts[2].modification.as_ref().ok_or("not asked")?;
    assert_eq!((again.repeats, again.because.as_deref()), (Some(2), Some("the bounds were off by one")));
    Ok(())
}

#[test]
fn a_repair_carries_on_what_was_asked_for_and_has_the_last_word_on_it() -> TestResult {
    let run = Script::of([right(1.5), Try::CompileError, right(2.0), right(2.1)]).play_all(long(4))?;
    assert_eq!((asked(&run, 2), asked(&run, 3)), (Some("modification 1"), Some("modification 1")));
    assert!(memory(&run, 3)?.tried.iter().all(|tried| tried.failed));
    let tried = &memory(&run, 4)?.tried;
    assert_eq!(tried.len(), 1, "{tried:?}");
    assert_eq!((tried[0].attempt, tried[0].failed), (3, false));
    Ok(())
}

#[test]
fn errors_that_came_again_are_one_entry_and_the_best_is_never_left_out() -> TestResult {
    let mut tries = vec![right(1.5)];
    tries.extend(vec![Try::CompileError; 3]);
    tries.extend(vec![Try::Wrong; 2]);
    tries.push(right(1.6));
    let run = Script::of(tries).play_all(long(7))?;
    let memory = memory(&run, 7)?;
    let clusters: Vec<Vec<u32>> = memory.errors.iter().map(|error| error.attempts.clone()).collect();
    assert_eq!(clusters, [vec![2, 3, 4], vec![5, 6]]);
    assert!(memory.errors[0].message.contains("'sum' was not declared"));
    assert_eq!((memory.best.map(|best| best.attempt), memory.left_out), (Some(1), 0));
    Ok(())
}

#[test]
fn a_route_names_its_rule_and_what_was_advised() -> TestResult {
    let advised = super::script::advised(1.5, Some(Route::Replan));
    let run = Script::of([advised, right(3.0)]).play_all(TaskGoal {
        target_speedup: Some(2.0),
        max_replans: Some(0),
        ..TaskGoal::default()
    })?;
    let routes: Vec<_> = run.view.attempts.iter().filter_map(|attempt| attempt.route.clone()).collect();
    assert_eq!((routes[0].rule.as_deref(), routes[0].advice), (Some("no_replan_left"), Some(Route::Replan)));
    assert_eq!((routes[1].rule.as_deref(), routes[1].advice), (Some("target_reached"), Some(Route::Optimize)));
    Ok(())
}
