//! Programs with tunables: searched once they are right, and what won is what goes on.

use nightshift_protocol::attempt::{AttemptOutcome, Route};
use nightshift_protocol::step::{StepInput, StepOutput};
use nightshift_protocol::task::TaskGoal;
use nightshift_protocol::tunable::Tunable;
use nightshift_protocol::tune::{TuneEnd, TuneReport, TunedProgram, TunedVariant, VariantOutcome};
use nightshift_protocol::verdict::ProcessEnd;

use super::facts;
use super::script::{Script, Try, advised};
use super::simulator::{self, Failure, Finished};

type TestResult = Result<(), Failure>;

fn tunable() -> Tunable {
    Tunable { name: "TILE".to_owned(), line: 3, value: 4, values: vec![4, 8] }
}

fn variant(value: i64, outcome: VariantOutcome) -> TunedVariant {
    TunedVariant { values: vec![value], outcome, rounds: 1, speedup: None, message: None }
}

fn report(winner: Option<i64>) -> TuneReport {
    let chosen = winner == Some(8);
    TuneReport {
        tunables: vec![tunable()],
        configurations: 2,
        variants: vec![
            variant(4, if chosen { VariantOutcome::Slower } else { VariantOutcome::Kept }),
            variant(8, if chosen { VariantOutcome::Chosen } else { VariantOutcome::Slower }),
        ],
        rounds: 1,
        end: TuneEnd::Settled,
        wall_ms: 900,
        declared: facts::hash("source 1"),
    }
}

fn program(wrong_elements: u64) -> Option<Box<TunedProgram>> {
    let StepOutput::Checked { report } = facts::checked(ProcessEnd::Finished, wrong_elements) else { return None };
    let (source, build) = (facts::hash("tuned source"), facts::build(Some("tuned library")));
    Some(Box::new(TunedProgram { source, build, check: *report }))
}

/// One right attempt that declares a tunable, and what the search says about it.
fn play(goal: TaskGoal, tuned: &StepOutput, on_cuda: bool, tries: Vec<Try>) -> Result<Finished, Failure> {
    let script = Script::of(tries);
    let input = if on_cuda { facts::cuda_run_input(goal) } else { facts::run_input(goal) };
    simulator::run(&input, |key, step| {
        if matches!(step, StepInput::Tune { .. }) {
            return Ok(tuned.clone());
        }
        let mut output = script.answer(key, step)?;
        if let StepOutput::CodeWritten { tunables, .. } = &mut output {
            tunables.push(tunable());
        }
        Ok(output)
    })
}

fn one_right() -> Vec<Try> {
    vec![advised(1.5, Some(Route::Stop))]
}

#[test]
fn a_right_program_with_tunables_is_searched_before_it_is_measured() -> TestResult {
    let tuned = StepOutput::Tuned { report: Box::new(report(Some(8))), program: program(0) };
    let run = play(TaskGoal::default(), &tuned, false, one_right())?;
    let rungs = ["write_code", "build", "check", "tune", "measure", "confirm", "profile", "diagnose", "judge"];
    assert_eq!(run.rungs(1), rungs);
    let Some(StepInput::Tune { source, budget, reference_library, truth_library, .. }) =
        run.input("subtask1/attempt1/tune")
    else {
        return Err("it was not tuned".into());
    };
    assert_eq!(
        (source, reference_library, truth_library),
        (&facts::hash("source 1"), &facts::hash("reference"), &facts::hash("truth"))
    );
    assert!(budget.max_variants > 1 && budget.wall_ms > 0);
    for step in ["measure", "confirm"] {
        let Some(StepInput::Measure { library, .. }) = run.input(&format!("subtask1/attempt1/{step}")) else {
            return Err("it was not measured".into());
        };
        assert_eq!(library, &facts::hash("tuned library"), "the program that won is measured anew");
    }
    let attempt = &run.view.attempts[0];
    assert_eq!(attempt.source, Some(facts::hash("tuned source")));
    assert_eq!(attempt.tunables[0].value, 8);
    assert_eq!(attempt.outcome, AttemptOutcome::CorrectFaster);
    assert_eq!(attempt.tuning.as_ref().map(|tuning| tuning.declared.clone()), Some(facts::hash("source 1")));
    Ok(())
}

#[test]
fn a_program_that_nothing_beats_goes_on_as_it_was_written() -> TestResult {
    let run = play(
        TaskGoal::default(),
        &StepOutput::Tuned { report: Box::new(report(None)), program: None },
        false,
        one_right(),
    )?;
    let attempt = &run.view.attempts[0];
    assert_eq!((attempt.source.clone(), attempt.tunables[0].value), (Some(facts::hash("source 1")), 4));
    assert!(attempt.tuning.is_some());
    Ok(())
}

#[test]
fn a_winner_that_did_not_pass_its_check_wins_nothing() -> TestResult {
    let tuned = StepOutput::Tuned { report: Box::new(report(Some(8))), program: program(3) };
    let run = play(TaskGoal::default(), &tuned, false, one_right())?;
    let attempt = &run.view.attempts[0];
    assert_eq!(attempt.source, Some(facts::hash("source 1")));
    assert_eq!(attempt.tunables[0].value, 4);
    let check = attempt.check.as_ref().ok_or("no check")?;
    assert!(check.cases.iter().all(|case| case.passed));
    Ok(())
}

#[test]
fn on_a_gpu_the_program_that_won_is_the_one_that_is_sanitized() -> TestResult {
    let tuned = StepOutput::Tuned { report: Box::new(report(Some(8))), program: program(0) };
    let run = play(TaskGoal::default(), &tuned, true, one_right())?;
    assert_eq!(run.rungs(1)[2..6], ["check", "tune", "sanitize", "measure"]);
    let Some(StepInput::Sanitize { library, source, .. }) = run.input("subtask1/attempt1/sanitize") else {
        return Err("it was not sanitized".into());
    };
    assert_eq!((library, source), (&facts::hash("tuned library"), &facts::hash("tuned source")));
    Ok(())
}

#[test]
fn wrong_programs_and_switched_off_runs_are_not_searched() -> TestResult {
    let tuned = || StepOutput::Tuned { report: Box::new(report(None)), program: None };
    let wrong = vec![Try::Wrong, advised(1.5, Some(Route::Stop))];
    let run = play(TaskGoal::default(), &tuned(), false, wrong)?;
    assert_eq!(run.rungs(1), ["write_code", "build", "check"]);
    assert!(run.rungs(2).contains(&"tune"));
    for max_variants in [0, 1] {
        let goal = TaskGoal { max_variants: Some(max_variants), ..TaskGoal::default() };
        let run = play(goal, &tuned(), false, one_right())?;
        assert!(!run.rungs(1).contains(&"tune"));
        assert!(run.view.attempts[0].tuning.is_none());
    }
    Ok(())
}
