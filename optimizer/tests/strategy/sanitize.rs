//! On a GPU, programs are examined for errors of memory and for races before anything is claimed about them.

use nightshift_optimizer::strategy::RULES;
use nightshift_protocol::attempt::{AttemptOutcome, Route};
use nightshift_protocol::campaign::RunInput;
use nightshift_protocol::machine::DeviceUse;
use nightshift_protocol::profile::{SanitizerOutcome, SanitizerTool};
use nightshift_protocol::step::{StepInput, StepKind};
use nightshift_protocol::task::{Target, TaskGoal};
use nightshift_protocol::verdict::Answer;

use super::facts;
use super::script::{Script, Try, advised, right};
use super::simulator::{self, Failure};

type TestResult = Result<(), Failure>;

fn target(speedup: f64) -> TaskGoal {
    TaskGoal { target_speedup: Some(speedup), ..TaskGoal::default() }
}

/// Goes on through everything that is told.
fn attempts(number: u32) -> TaskGoal {
    TaskGoal { max_attempts: Some(number), replan_after_stagnant: Some(9), ..TaskGoal::default() }
}

fn racy(measured: f64) -> Try {
    Try::Racy { measured, only_thorough: false }
}

#[test]
fn the_first_right_program_is_examined_for_everything_at_once() -> TestResult {
    let run = Script::of([right(2.5)]).play_on_cuda(target(2.0))?;
    let rungs = ["write_code", "build", "check", "sanitize", "measure", "confirm", "profile", "diagnose", "judge"];
    assert_eq!(run.rungs(1), rungs, "it becomes the best, and needs no second examination");
    let Some(StepInput::Sanitize { thorough, library, source, .. }) = run.input("subtask1/attempt1/sanitize") else {
        return Err("it was not sanitized".into());
    };
    assert!(thorough);
    assert_eq!((library, source), (&facts::hash("library 1"), &facts::hash("source 1")));
    assert_eq!(run.digest.best_attempt, Some(1));
    assert!(run.view.attempts[0].sanitize.as_ref().is_some_and(|report| report.answer() == Answer::Pass));
    Ok(())
}

#[test]
fn a_later_program_is_examined_only_when_it_would_become_the_best() -> TestResult {
    let run = Script::of([right(1.5), right(1.2), right(1.9)]).play_on_cuda(attempts(3))?;
    assert_eq!(run.rungs(2), ["write_code", "build", "check", "measure", "profile", "diagnose", "judge"]);
    assert_eq!(run.rungs(3)[3..7], ["measure", "confirm", "sanitize_best", "profile"]);
    let thorough = |key: &str| matches!(run.input(key), Some(StepInput::Sanitize { thorough: true, .. }));
    assert!(thorough("subtask1/attempt3/sanitize_best"));
    assert_eq!(run.digest.best_attempt, Some(3));
    Ok(())
}

#[test]
fn the_first_right_program_of_each_subtask_is_examined() -> TestResult {
    let tries = [advised(1.5, Some(Route::NextSubtask)), right(1.4), right(1.45)];
    let run = Script::of(tries).with_plans(&[&[None, None]]).play_on_cuda(attempts(3))?;
    let thorough = |key: &str| match run.input(key) {
        Some(StepInput::Sanitize { thorough, .. }) => Some(*thorough),
        _ => None,
    };
    assert_eq!(thorough("subtask2/attempt2/sanitize"), Some(false), "there is a best already");
    assert!(!run.rungs(3).contains(&"sanitize"));
    Ok(())
}

#[test]
fn a_race_makes_right_results_worthless_and_is_repaired() -> TestResult {
    let run = Script::of([racy(9.0), right(2.5)]).play_on_cuda(target(2.0))?;
    assert_eq!(run.rungs(1), ["write_code", "build", "check", "sanitize"], "it is not timed");
    assert_eq!(run.lineage()[1], "1.1 repair_runtime from 1");
    let first = &run.view.attempts[0];
    assert_eq!(first.outcome, AttemptOutcome::RuntimeFailed);
    let verdict = &first.verdict;
    assert_eq!(
        (verdict.compiled, verdict.numerically_correct, verdict.contract_compliant, verdict.fast),
        (Answer::Pass, Answer::Inconclusive, Answer::Fail, Answer::Inconclusive)
    );
    assert!(first.findings.iter().any(|finding| finding.code == "racecheck" && finding.line == Some(19)));
    let reward = first.reward.as_ref().ok_or("no reward")?;
    assert!(!reward.correct && !reward.major_hacking, "a race is a mistake, not a cheat: {reward:?}");
    let Some(StepInput::WriteCode { request, .. }) = run.input("subtask1/attempt2/write_code") else {
        return Err("no repair".into());
    };
    assert!(request.history[0].contains("a race between a write and a read in `sum`"), "{:?}", request.history);
    Ok(())
}

#[test]
fn what_only_a_thorough_look_finds_keeps_a_program_from_being_published() -> TestResult {
    let hidden = Try::Racy { measured: 4.0, only_thorough: true };
    let run = Script::of([right(1.5), hidden, right(1.9)]).play_on_cuda(attempts(3))?;
    assert_eq!(run.rungs(2)[3..], ["measure", "confirm", "sanitize_best"]);
    assert_eq!(run.view.attempts[1].outcome, AttemptOutcome::RuntimeFailed);
    assert_eq!(run.lineage()[2], "1.1 repair_runtime from 2");
    let Some(StepInput::WriteCode { request, .. }) = run.input("subtask1/attempt3/write_code") else {
        return Err("no repair".into());
    };
    let told = &request.history[1];
    assert!(told.contains("runtime_failed: racecheck") && !told.contains("4.000x"), "no speedup is claimed: {told}");
    // The repaired program is looked at before it is timed, although an earlier one of the subtask was clean.
    assert!(run.rungs(3).contains(&"sanitize"));
    assert_eq!(run.digest.best_attempt, Some(3), "1.9 beats 1.5: the 4.0 was never published");
    Ok(())
}

#[test]
fn a_machine_without_the_sanitizer_holds_no_run_up() -> TestResult {
    let script = Script::of([right(1.5), right(2.5)]);
    let run = simulator::run(&facts::cuda_run_input(target(2.0)), |key, input| {
        if let StepInput::Sanitize { .. } = input {
            return Ok(nightshift_protocol::step::StepOutput::Sanitized { report: Box::default() });
        }
        script.answer(key, input)
    })?;
    assert_eq!(run.stopped(), "target_reached");
    assert!(run.view.attempts[1].sanitize.as_ref().is_some_and(|report| report.answer() == Answer::Inconclusive));
    // No finding says that they are clean.
    for attempt in &run.view.attempts {
        let notes: Vec<_> = attempt.findings.iter().filter(|note| note.code == "sanitizer_unavailable").collect();
        assert_eq!(notes.len(), 1, "{:?}", attempt.findings);
        assert!(notes[0].message.starts_with("unverified: sanitizer unavailable"), "{}", notes[0].message);
    }
    Ok(())
}

/// Plays two attempts on a machine whose sanitizer gives up where this says so.
fn with_gaps(gives_up: impl Fn(&str) -> bool, tries: &[f64]) -> Result<simulator::Finished, Failure> {
    let script = Script::of(tries.iter().map(|speedup| right(*speedup)).collect::<Vec<_>>());
    let number = u32::try_from(tries.len())?;
    simulator::run(&facts::cuda_run_input(attempts(number)), |key, input| match input {
        StepInput::Sanitize { thorough, .. } if gives_up(key) => Ok(facts::unsanitized(*thorough)),
        _ => script.answer(key, input),
    })
}

#[test]
fn a_check_that_is_too_slow_is_given_up_for_the_rest_of_the_run() -> TestResult {
    let script = Script::of([right(1.5), right(1.2), right(1.9)]);
    let play = |rules: u32| {
        let input = RunInput { rules, ..facts::cuda_run_input(attempts(3)) };
        simulator::run(&input, |key, input| match input {
            StepInput::Sanitize { .. } => Ok(facts::too_slow_for_races(30_000)),
            _ => script.answer(key, input),
        })
    };
    let run = play(RULES)?;
    assert!(run.rungs(1).contains(&"sanitize") && !run.rungs(1).contains(&"sanitize_best"), "{:?}", run.rungs(1));
    assert!(!run.rungs(2).contains(&"sanitize"), "what could be looked at was clean: {:?}", run.rungs(2));
    let without = |key: &str| match run.input(key) {
        Some(StepInput::Sanitize { without, .. }) => Some(without.clone()),
        _ => None,
    };
    assert_eq!(without("subtask1/attempt1/sanitize"), Some(Vec::new()));
    assert_eq!(without("subtask1/attempt3/sanitize_best"), Some(vec![SanitizerTool::Racecheck]));
    for number in [0, 2] {
        let notes: Vec<_> = run.view.attempts[number].findings.iter().map(|note| note.code.as_str()).collect();
        assert!(notes.contains(&"sanitizer_unavailable"), "published as what it is: {notes:?}");
    }
    let older = play(2)?;
    assert!(older.rungs(1).contains(&"sanitize_best"), "a run goes on as it began: {:?}", older.rungs(1));
    Ok(())
}

#[test]
fn before_a_program_is_published_races_are_asked_for_by_its_own_time() -> TestResult {
    let script = Script::of([right(1.5)]);
    let run = simulator::run(&facts::cuda_run_input(attempts(1)), |key, input| match input {
        StepInput::Build { .. } => Ok(facts::built_with_shared_memory()),
        // It is expected to be too slow, and not begun.
        StepInput::Sanitize { .. } => Ok(facts::too_slow_for_races(0)),
        _ => script.answer(key, input),
    })?;
    let asked = |key: &str| match run.input(key) {
        Some(StepInput::Sanitize { without, shared_memory_call_ns, .. }) => {
            Some((without.clone(), *shared_memory_call_ns))
        }
        _ => None,
    };
    assert_eq!(asked("subtask1/attempt1/sanitize"), Some((Vec::new(), Some(1.25e6))), "as the reference takes");
    let looked = vec![SanitizerTool::Memcheck, SanitizerTool::Initcheck];
    assert_eq!(asked("subtask1/attempt1/sanitize_best"), Some((looked, Some(1.25e6 / 1.5))), "as it takes itself");
    assert_eq!(run.digest.best_attempt, Some(1));
    Ok(())
}

#[test]
fn a_check_that_could_not_be_carried_out_does_not_count_as_a_look() -> TestResult {
    let run = with_gaps(|key| key == "subtask1/attempt1/sanitize", &[1.5, 1.2])?;
    assert!(
        run.rungs(1).contains(&"sanitize_best"),
        "before it is published it gets a second look: {:?}",
        run.rungs(1)
    );
    let first = &run.view.attempts[0];
    assert_eq!(first.sanitize.as_ref().map(nightshift_protocol::profile::SanitizeReport::answer), Some(Answer::Pass));
    assert!(first.findings.iter().all(|finding| finding.code != "sanitizer_unavailable"), "{:?}", first.findings);
    assert!(!run.rungs(2).contains(&"sanitize"), "the first one was found clean in the end");
    Ok(())
}

#[test]
fn a_new_best_that_could_not_be_examined_is_published_as_unverified() -> TestResult {
    let run = with_gaps(|key| key.ends_with("sanitize_best"), &[1.5, 1.9])?;
    let report = run.view.attempts[1].sanitize.as_ref().ok_or("the new best was not examined")?;
    assert_eq!(run.digest.best_attempt, Some(2));
    assert!(report.unverified().is_some_and(|said| said.contains("45000 ms")), "{report:?}");
    Ok(())
}

#[test]
fn what_was_found_clean_stays_so_when_a_later_look_comes_to_nothing() -> TestResult {
    let tries = [advised(1.5, Some(Route::NextSubtask)), right(1.9)];
    let script = Script::of(tries).with_plans(&[&[None, None]]);
    let run = simulator::run(&facts::cuda_run_input(attempts(2)), |key, input| {
        if key.ends_with("sanitize_best") { Ok(facts::unsanitized(true)) } else { script.answer(key, input) }
    })?;
    let report = run.view.attempts[1].sanitize.as_ref().ok_or("it was not examined")?;
    let outcomes: Vec<_> = report.tools.iter().map(|run| run.outcome).collect();
    assert_eq!(outcomes, [SanitizerOutcome::Clean, SanitizerOutcome::Clean, SanitizerOutcome::Unavailable]);
    Ok(())
}

#[test]
fn a_sanitizer_that_never_answers_is_not_asked_for_ever() -> TestResult {
    // Each beats none but the first, so that only the look after the check is counted.
    let run = with_gaps(|_| true, &[1.9, 1.1, 1.1, 1.1, 1.1])?;
    let asked = (1..=5).filter(|number| run.rungs(*number).contains(&"sanitize")).count();
    assert_eq!(asked, 3);
    Ok(())
}

#[test]
fn a_program_on_a_processor_is_never_sanitized() -> TestResult {
    let run = Script::of([racy(1.5), racy(2.5)]).play(attempts(2))?;
    assert!(run.keys().iter().all(|key| !key.contains("sanitize")));
    assert!(run.view.attempts.iter().all(|attempt| attempt.sanitize.is_none()));
    Ok(())
}

#[test]
fn no_step_on_a_gpu_waits_for_a_profiler_or_a_sanitizer() {
    for (kind, device) in [
        (StepKind::Build, DeviceUse::None),
        (StepKind::Check, DeviceUse::Shared),
        (StepKind::Sanitize, DeviceUse::Shared),
        // Their worker takes the device alone while it times, and while a profiler is at it.
        (StepKind::Measure, DeviceUse::Shared),
        (StepKind::Profile, DeviceUse::Shared),
        (StepKind::PrepareTask, DeviceUse::Shared),
    ] {
        let needs = kind.needs(Target::Cuda);
        assert_eq!((needs.device, needs.target), (device, Some(Target::Cuda)), "{kind:?}");
        // The target itself stands for its compiler: a machine without one does not offer it.
        assert!(needs.tools.is_empty(), "{kind:?}: {:?}", needs.tools);
    }
}

#[test]
fn only_steps_with_a_device_ask_for_its_compute_capability() -> TestResult {
    use super::stored::StoredWorkflow;
    use nightshift_engine::event::Event;
    use nightshift_engine::workflow::Command;
    let mut input = facts::cuda_run_input(attempts(1));
    input.compute_capability = Some("9.0".parse()?);
    let script = Script::of([right(1.5)]);
    let mut state = StoredWorkflow.apply(None, &Event::RunCreated { input: serde_json::to_value(&input)? })?;
    let mut asked = Vec::new();
    while let Some(Command::Schedule(order)) = StoredWorkflow.decide(&state)?.into_iter().next() {
        let step: StepInput = serde_json::from_value(order.input.clone())?;
        assert_eq!(order.needs.compute_capability.is_some(), order.needs.device != DeviceUse::None, "{}", order.key);
        asked.push(order.needs.route());
        let output = serde_json::to_value(script.answer(&order.key, &step)?)?;
        state = StoredWorkflow.apply(Some(state), &Event::StepCompleted { key: order.key, output })?;
    }
    assert!(asked.contains(&"worker/cuda/shared?cc=9.0".to_owned()), "{asked:?}");
    assert!(asked.contains(&"worker/cuda/none".to_owned()), "{asked:?}");
    Ok(())
}

#[test]
fn the_sandbox_is_demanded_of_every_step_that_runs_the_candidate_on_a_gpu() -> TestResult {
    let mut input = facts::cuda_run_input(target(2.0));
    input.sandbox_required = true;
    let script = Script::of([right(2.5)]);
    let run = simulator::run(&input, |key, input| script.answer(key, input))?;
    let demanded = run.steps.iter().filter(|(_, input)| match input {
        StepInput::Build { sandbox_required, .. }
        | StepInput::Check { sandbox_required, .. }
        | StepInput::Sanitize { sandbox_required, .. }
        | StepInput::Measure { sandbox_required, .. }
        | StepInput::Profile { sandbox_required, .. } => *sandbox_required,
        _ => false,
    });
    assert_eq!(demanded.count(), 6);
    Ok(())
}
