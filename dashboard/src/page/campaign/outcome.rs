//! Results of the runs of a campaign: times, and speedups over both baselines.

use std::collections::HashMap;

use futures::future::join_all;
use nightshift_client::Client;
use nightshift_protocol::api::{BestTimes, CampaignDetail, RunDetail, RunSummary};
use nightshift_protocol::baseline::{BaselineKind, BaselineSpeedup, FastestBaseline};
use nightshift_protocol::id::RunId;
use nightshift_protocol::measurement::Interval;
use nightshift_protocol::speedups::Speedups;

/// Maximum number of attempts of a campaign whose runs are read as a whole, where the summary has no measured times because the run ended
/// before summaries had them: a run with all of its attempts is large.
const MAX_READ_ATTEMPTS: u64 = 120;

/// The result of a run.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Outcome {
    /// The run.
    pub(super) run: RunId,
    /// The task.
    pub(super) task: String,
    /// The best attempt.
    pub(super) best: Option<u32>,
    /// Time of one call of the reference, in nanoseconds.
    pub(super) reference_ns: Option<f64>,
    /// Time of one call of the best attempt, in nanoseconds.
    pub(super) best_ns: Option<f64>,
    /// Both times were computed from speedups, because the measured ones are not known.
    pub(super) is_computed: bool,
    /// True if the task is not prepared yet, so that its baselines are not known.
    pub(super) is_unprepared: bool,
    /// The fastest baseline.
    pub(super) fastest: Option<FastestBaseline>,
    /// Speedup of the best attempt over the reference.
    pub(super) over_reference: Option<Interval>,
    /// Speedup of the best attempt over the fastest baseline.
    pub(super) over_fastest: Option<Interval>,
    /// Other baselines that were measured, as speedups over the reference.
    pub(super) baselines: Vec<BaselineSpeedup>,
    /// Share of the roofline that the best attempt reaches.
    pub(super) roofline_share: Option<f64>,
}

impl Outcome {
    /// Returns what a run came to: by its summary, and by the whole run where it was read.
    pub(super) fn of(run: &RunSummary, whole: Option<&RunDetail>) -> Self {
        let digest = &run.digest;
        let prepared = whole.and_then(|whole| whole.view.prepared.as_ref());
        let attempts = whole.map(|whole| whole.view.attempts.as_slice()).unwrap_or_default();
        let best = digest.best_attempt.and_then(|number| attempts.iter().find(|attempt| attempt.number == number));
        let times = digest.best_times.or_else(|| {
            let (best, published) = (best?, best?.published()?);
            Some(BestTimes {
                reference_median_ns: published.baseline_median_ns,
                attempt_median_ns: published.candidate_median_ns,
                roofline_share: best.roofline_share(),
            })
        });
        let fastest = digest
            .fastest_baseline
            .or_else(|| prepared.and_then(nightshift_protocol::step::PreparedTask::fastest_baseline));
        let over_reference = digest.best_speedup;
        let over_fastest = digest.best_speedup_over_fastest.or_else(|| prepared?.over_fastest(best?.published()?));
        let computed_reference = fastest.map(|fastest| fastest.median_ns * fastest.speedup.estimate);
        let computed_best = computed_reference.zip(over_reference).map(|(ns, speedup)| ns / speedup.estimate);
        let mut baselines = digest.baselines.clone();
        if let Some(prepared) = prepared.filter(|_| baselines.is_empty()) {
            baselines = prepared.measured_baselines();
        }
        if baselines.is_empty() {
            let others = fastest.filter(|fastest| fastest.kind != BaselineKind::Reference);
            let named =
                |fastest: FastestBaseline| BaselineSpeedup { kind: fastest.kind, speedup: fastest.speedup.estimate };
            baselines.extend(others.map(named));
        }
        Self {
            run: run.id.clone(),
            task: digest.task.clone(),
            best: digest.best_attempt,
            reference_ns: times.map(|times| times.reference_median_ns).or(computed_reference),
            best_ns: times.map(|times| times.attempt_median_ns).or(computed_best),
            is_computed: times.is_none(),
            is_unprepared: fastest.is_none() && digest.attempts == 0 && !run.status.is_final(),
            fastest,
            over_reference,
            over_fastest,
            baselines,
            roofline_share: times.and_then(|times| times.roofline_share),
        }
    }

    /// Returns the speedup over the reference that the roofline allows.
    pub(super) fn roofline(&self) -> Option<f64> {
        let share = self.roofline_share.filter(|share| *share > 0.0)?;
        Some(self.over_reference?.estimate / share)
    }
}

/// Returns what each run came to, in the order of the campaign. Reads runs as a whole where their summaries have no measured
/// times, unless they have too many attempts.
pub(super) async fn read(client: &Client, detail: &CampaignDetail) -> Vec<Outcome> {
    let mut untimed: Vec<&RunSummary> = detail.runs.iter().collect();
    untimed.retain(|run| run.digest.best_attempt.is_some() && run.digest.best_times.is_none());
    if untimed.iter().map(|run| u64::from(run.digest.attempts)).sum::<u64>() > MAX_READ_ATTEMPTS {
        untimed.clear();
    }
    // A run that cannot be read is shown by its summary.
    let read = join_all(untimed.into_iter().map(|run| client.run(&run.id))).await;
    let wholes: HashMap<RunId, RunDetail> =
        read.into_iter().flatten().map(|whole| (whole.summary.id.clone(), whole)).collect();
    detail.runs.iter().map(|run| Outcome::of(run, wholes.get(&run.id))).collect()
}

/// Collects the speedups over the reference.
pub(super) fn over_reference(outcomes: &[Outcome]) -> Speedups {
    Speedups::collect(outcomes.iter().map(|outcome| (outcome.over_reference, outcome.over_reference)))
}

/// Collects the speedups over the fastest baseline, of tasks whose fastest baseline is known, solved or not.
pub(super) fn over_fastest(outcomes: &[Outcome]) -> Speedups {
    let known = outcomes.iter().filter(|outcome| outcome.fastest.is_some());
    Speedups::collect(known.map(|outcome| (outcome.over_reference, outcome.over_fastest)))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::page::sample::Sample;

    /// A task with this speedup over the reference, and with a fastest baseline that is this much faster than the reference.
    pub(in crate::page::campaign) fn outcome(task: &str, speedup: Option<f64>, fastest: Option<f64>) -> Outcome {
        let exactly = |estimate: f64| Interval { estimate, low: estimate * 0.99, high: estimate * 1.01 };
        let fastest = fastest.map(|times| FastestBaseline {
            kind: BaselineKind::Compile,
            median_ns: 1_000.0 / times,
            speedup: exactly(times),
            incomplete: None,
            process_pairs: None,
        });
        Outcome {
            run: format!("run_{}", "0".repeat(32)).parse().unwrap_or_else(|error| panic!("{error:?}")),
            task: task.to_owned(),
            best: speedup.map(|_| 3),
            reference_ns: Some(1_000.0),
            best_ns: speedup.map(|speedup| 1_000.0 / speedup),
            is_computed: false,
            is_unprepared: false,
            fastest,
            over_reference: speedup.map(exactly),
            over_fastest: fastest.zip(speedup).map(|(fastest, speedup)| fastest.speedup_of(exactly(speedup))),
            baselines: fastest
                .iter()
                .map(|fastest| BaselineSpeedup { kind: fastest.kind, speedup: fastest.speedup.estimate })
                .collect(),
            roofline_share: speedup.map(|_| 0.5),
        }
    }

    #[test]
    fn means_and_shares_are_over_both_baselines() {
        let outcomes = [
            outcome("a", Some(8.0), Some(2.0)),
            outcome("b", Some(2.0), Some(2.0)),
            outcome("c", None, Some(1.0)),
            outcome("d", Some(0.5), Some(1.0)),
        ];
        let (reference, fastest) = (over_reference(&outcomes), over_fastest(&outcomes));
        let close = |value: Option<f64>, expected: f64| value.is_some_and(|value| (value - expected).abs() < 1e-9);
        assert!(close(reference.geometric_mean(), 2.0));
        assert!(close(fastest.geometric_mean(), 2.0_f64.powf(1.0 / 3.0)));
        assert_eq!((reference.fast_p(1.0), fastest.fast_p(1.0)), (Some(0.5), Some(0.25)));
        assert_eq!((reference.fast_p(0.0), reference.fast_p(8.0)), (Some(0.75), Some(0.0)));
        assert_eq!(reference.steps(), [(0.0, 0.75), (0.5, 0.5), (2.0, 0.25), (8.0, 0.0)]);
        assert_eq!(reference.solved(), 3);
    }

    #[test]
    fn a_task_without_a_fastest_baseline_does_not_count_over_it() {
        let outcomes = [outcome("a", Some(8.0), Some(2.0)), outcome("b", Some(2.0), None), outcome("c", None, None)];
        let fastest = over_fastest(&outcomes);
        assert_eq!((fastest.tasks, fastest.solved()), (1, 1), "solved or not");
        assert_eq!(Speedups::default().geometric_mean(), None);
        assert_eq!(Speedups::default().fast_p(1.0), None);
    }

    #[test]
    fn a_run_that_is_read_gives_measured_times_and_its_roofline() {
        let sample = Sample::read();
        let whole = Outcome::of(&sample.detail.summary, Some(&sample.detail));
        let best = sample.detail.view.attempts.iter().find(|attempt| Some(attempt.number) == whole.best);
        let published = best.and_then(|best| best.published()).map(|m| (m.baseline_median_ns, m.candidate_median_ns));
        assert_eq!(whole.reference_ns.zip(whole.best_ns), published);
        assert!(!whole.is_computed && whole.roofline_share.is_some() && whole.roofline().is_some());
        let mut summary = sample.detail.summary.clone();
        summary.digest.best_times = None;
        let summary = Outcome::of(&summary, None);
        assert!(summary.is_computed && summary.roofline_share.is_none());
        assert_eq!(summary.over_reference, whole.over_reference);
    }

    #[test]
    fn a_summary_with_times_needs_no_reading_however_many_attempts_there_are() {
        let mut summary = Sample::read().detail.summary;
        let times = BestTimes { reference_median_ns: 900.0, attempt_median_ns: 300.0, roofline_share: Some(0.5) };
        summary.digest.best_times = Some(times);
        summary.digest.attempts = 5_000;
        summary.digest.baselines = vec![
            BaselineSpeedup { kind: BaselineKind::CudaGraph, speedup: 1.5 },
            BaselineSpeedup { kind: BaselineKind::Compile, speedup: 1.25 },
        ];
        let outcome = Outcome::of(&summary, None);
        assert!(!outcome.is_computed);
        assert_eq!((outcome.reference_ns, outcome.best_ns), (Some(900.0), Some(300.0)));
        assert_eq!((outcome.roofline_share, outcome.baselines), (Some(0.5), summary.digest.baselines));
    }
}
