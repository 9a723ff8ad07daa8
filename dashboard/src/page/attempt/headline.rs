//! Facts that several parts of the pages show. Each is computed here alone, so that it has the same value everywhere.

use nightshift_protocol::api::RunDetail;
use nightshift_protocol::attempt::{Attempt, AttemptOutcome};
use nightshift_protocol::baseline::FastestBaseline;
use nightshift_protocol::measurement::{Interval, Measurement};
use nightshift_protocol::profile::Timeline;

use crate::chart::float_u64;
use crate::format::words;

/// The outcome of an attempt without a result whose run is over.
pub(crate) const NOT_FINISHED: &str = "not finished";

/// The bound of an attempt, with the source of that statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BoundOf {
    /// The bound; `not decided` where the profile does not decide it.
    pub(crate) name: &'static str,
    /// The source: counters, a timeline, the roofline or a diagnosis.
    pub(crate) source: &'static str,
}

/// Returns the outcome of an attempt in words. An attempt that was pending when its run ended is not finished.
pub(crate) fn outcome_of(detail: &RunDetail, attempt: &Attempt) -> String {
    if attempt.outcome == AttemptOutcome::Pending && detail.summary.status.is_final() {
        return NOT_FINISHED.to_owned();
    }
    words(attempt.outcome.as_str())
}

/// Returns what limits an attempt: by its profile, else by the roofline, else by the Verifier's diagnosis.
pub(crate) fn bound_of(attempt: &Attempt) -> Option<BoundOf> {
    let profile = attempt.profile.as_ref();
    if let Some(by) = profile.and_then(|profile| profile.bound.as_ref()) {
        let is_counted = profile.is_some_and(|profile| !profile.kernels.is_empty());
        let source = if is_counted { "timeline and hardware counters" } else { "timeline, no hardware counters" };
        return Some(BoundOf { name: by.bound.map_or("not decided", |bound| bound.as_str()), source });
    }
    let by_roof = profile.and_then(|profile| match profile.roofline_bound.as_str() {
        "memory" => Some("memory"),
        "compute" => Some("compute"),
        _ => None,
    });
    if let Some(name) = by_roof {
        return Some(BoundOf { name, source: "roofline alone, no counters" });
    }
    let diagnosis = attempt.diagnosis.as_ref()?;
    Some(BoundOf { name: diagnosis.bound.as_str(), source: "the Verifier's diagnosis, no profile" })
}

/// Returns the time of one call in which the device works, in nanoseconds: what would remain if launches took no time.
pub(crate) fn device_ns(timeline: &Timeline) -> Option<f64> {
    let is_known = timeline.calls > 0 && timeline.busy_ns > 0;
    is_known.then(|| float_u64(timeline.busy_ns) / f64::from(timeline.calls))
}

/// Returns the share of a call in which the device does nothing, 0 to 1. A profiler slows the host down, and without it the
/// caches are cold: the lower one of both shares counts.
pub(crate) fn idle_share(attempt: &Attempt, timeline: &Timeline) -> Option<f64> {
    let busy_ns = device_ns(timeline)?;
    // The evidence of the profile refers to the published measurement, too.
    let median_ns = attempt.published().map(|measurement| measurement.candidate_median_ns);
    let median_ns = median_ns.filter(|median| median.is_finite() && *median > 0.0);
    let without_tool = median_ns.map(|median| (1.0 - busy_ns / median).clamp(0.0, 1.0));
    Some(without_tool.map_or(timeline.host_share, |share| share.min(timeline.host_share)))
}

/// Returns the fastest way to run the reference that was measured; none before the task is prepared.
pub(crate) fn fastest_baseline(detail: &RunDetail) -> Option<FastestBaseline> {
    detail.view.prepared.as_ref().and_then(nightshift_protocol::step::PreparedTask::fastest_baseline)
}

/// Returns an attempt's published speedup over the fastest baseline.
pub(crate) fn speedup_over_fastest(detail: &RunDetail, attempt: &Attempt) -> Option<Interval> {
    detail.view.prepared.as_ref()?.over_fastest(attempt.published()?)
}

/// Returns the device that a measurement was taken on.
pub(crate) fn device_name(measurement: &Measurement) -> String {
    measurement.machine.device_name().to_owned()
}

/// Returns the ratio of reference time to candidate time of each pair of calls on equal inputs.
pub(crate) fn paired_ratios(measurement: &Measurement) -> Vec<f64> {
    let pairs = measurement.baseline_samples_ns.iter().zip(&measurement.candidate_samples_ns);
    pairs
        .filter(|(_, candidate)| **candidate > 0)
        .map(|(reference, candidate)| float_u64(*reference) / float_u64(*candidate))
        .collect()
}

#[cfg(test)]
mod tests {
    use nightshift_protocol::profile::BoundBy;

    use super::*;
    use crate::page::sample::Sample;

    fn fourth() -> Attempt {
        Sample::read().detail.view.attempts.swap_remove(3)
    }

    #[test]
    fn counters_decide_the_bound_before_the_roofline_and_the_diagnosis() {
        let mut attempt = fourth();
        assert_eq!(bound_of(&attempt).map(|bound| bound.name), Some("launch"));
        if let Some(profile) = &mut attempt.profile {
            profile.bound = Some(BoundBy::default());
        }
        assert_eq!(bound_of(&attempt).map(|bound| bound.name), Some("not decided"));
        if let Some(profile) = &mut attempt.profile {
            profile.bound = None;
        }
        assert_eq!(bound_of(&attempt).map(|bound| bound.source), Some("roofline alone, no counters"));
        attempt.profile = None;
        let diagnosed = attempt.diagnosis.as_ref().map(|diagnosis| diagnosis.bound.as_str());
        assert_eq!(bound_of(&attempt).map(|bound| bound.name), diagnosed);
        attempt.diagnosis = None;
        assert_eq!(bound_of(&attempt), None);
    }

    #[test]
    fn without_a_profile_the_share_of_the_roofline_comes_from_the_floor() {
        let mut attempt = fourth();
        let profiled = attempt.profile.as_ref().and_then(|profile| profile.roofline_share);
        assert_eq!(attempt.roofline_share(), profiled);
        attempt.profile = None;
        let published =
            attempt.published().map(|m| (m.candidate_median_ns, m.device.as_ref().and_then(|d| d.floor_ns)));
        let expected = published.and_then(|(median, floor)| Some(floor? / median));
        assert_eq!(attempt.roofline_share(), expected);
    }

    #[test]
    fn pairs_are_divided_sample_by_sample() {
        let mut attempt = fourth();
        let measurement = attempt.measurement.as_mut().unwrap_or_else(|| panic!("it was timed"));
        measurement.baseline_samples_ns = vec![300, 100, 50];
        measurement.candidate_samples_ns = vec![100, 0, 100];
        assert_eq!(paired_ratios(measurement), [3.0, 0.5]);
    }
}
