//! The target of a run is meant over the fastest baseline, or over the reference where the campaign says so.

use nightshift_protocol::baseline::{Baseline, BaselineKind};
use nightshift_protocol::prepared::PreparedTask;
use nightshift_protocol::step::StepOutput;
use nightshift_protocol::target_baseline::TargetBaseline;
use nightshift_protocol::task::{PrecisionPolicy, TaskGoal};

use super::facts;
use super::script::{Script, right};
use super::simulator::{self, Failure, Finished};

/// Plays a run of two right programs, whose reference is twice as fast in a CUDA graph.
fn play(target_baseline: Option<TargetBaseline>) -> Result<Finished, Failure> {
    play_prepared(target_baseline, |_| ())
}

/// The same, with this change to what preparing returns.
fn play_prepared(
    target_baseline: Option<TargetBaseline>,
    change: impl Fn(&mut PreparedTask),
) -> Result<Finished, Failure> {
    let goal = TaskGoal { target_speedup: Some(1.5), target_baseline, max_attempts: Some(2), ..TaskGoal::default() };
    let goal = nightshift_optimizer::strategy::effective_goal("stitch", &TaskGoal::default(), &goal);
    let script = Script::of([right(2.5), right(4.0)]);
    simulator::run(&facts::run_input(goal), |key, input| match script.answer(key, input)? {
        StepOutput::TaskPrepared { mut prepared } => {
            let measured = |speedup| Some(Box::new(facts::measurement(speedup)));
            prepared.baselines = vec![
                Baseline { kind: BaselineKind::CudaGraph, measurement: measured(2.0), reason: None, is_fault: false },
                Baseline { kind: BaselineKind::Compile, measurement: measured(1.2), reason: None, is_fault: false },
            ];
            change(&mut prepared);
            Ok(StepOutput::TaskPrepared { prepared })
        }
        output => Ok(output),
    })
}

#[test]
fn a_target_is_meant_over_the_fastest_baseline() -> Result<(), Failure> {
    let run = play(None)?;
    assert_eq!((run.view.attempts.len(), run.stopped()), (2, "target_reached"), "2.5 is 1.25 over the CUDA graph");
    let fastest = run.digest.fastest_baseline.ok_or("no fastest baseline")?;
    assert_eq!(fastest.kind, BaselineKind::CudaGraph);
    let over = run.digest.best_speedup_over_fastest.ok_or("no speedup over it")?;
    assert!((over.estimate - 2.0).abs() < 1e-9, "{over:?}");
    let times = run.digest.best_times.ok_or("no measured times")?;
    let best = run.view.attempts.last().and_then(|attempt| attempt.published()).ok_or("not timed")?;
    let median_ns = (best.baseline_median_ns, best.candidate_median_ns);
    assert_eq!((times.reference_median_ns, times.attempt_median_ns), median_ns);
    let baselines: Vec<BaselineKind> = run.digest.baselines.iter().map(|baseline| baseline.kind).collect();
    assert_eq!(baselines, [BaselineKind::CudaGraph, BaselineKind::Compile], "every measured one, not only the fastest");
    assert_eq!(run.digest.precision, Some(PrecisionPolicy::Tf32), "the policy of the task");
    // Both measurements are uncertain, so that their ratio is more so.
    let best = run.digest.best_speedup.ok_or("no speedup")?;
    assert!(over.relative_half_width() > best.relative_half_width(), "{over:?} {best:?}");
    Ok(())
}

#[test]
fn baselines_of_another_kind_of_machine_are_compared_with_nothing() -> Result<(), Failure> {
    let another = "another".to_owned();
    let changes: [&dyn Fn(&mut PreparedTask); 2] =
        [&|prepared| prepared.machine.processor.clone_from(&another), &|prepared| {
            let timed = prepared.baselines.iter_mut().filter_map(|baseline| baseline.measurement.as_mut());
            timed.for_each(|measurement| measurement.baseline.clone_from(&another));
        }];
    for change in changes {
        let run = play_prepared(None, change)?;
        let ended = (run.view.attempts.len(), run.stopped());
        assert_eq!(ended, (2, "attempt_budget"), "4.0 over the reference is no target");
        assert_eq!(run.digest.best_speedup_over_fastest, None);
        assert!(run.digest.best_speedup.is_some());
    }
    Ok(())
}

#[test]
fn a_campaign_may_mean_the_reference() -> Result<(), Failure> {
    let run = play(Some(TargetBaseline::Reference))?;
    assert_eq!((run.view.attempts.len(), run.stopped()), (1, "target_reached"));
    Ok(())
}
