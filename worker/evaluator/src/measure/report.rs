//! The result of a measurement.

use std::time::Duration;

use nightshift_protocol::machine::{MachineFacts, SandboxReport};
use nightshift_protocol::measurement::{DeviceMeasurement, Measurement, TimePair, Verification};
use nightshift_protocol::task::TaskSpec;

use super::pair_times::PairTimes;
use super::process_pairs::ProcessPairs;
use super::{CONFIDENCE, MeasureOptions};
use crate::statistics::{coefficient_of_variation, median};

/// The parts of a measurement.
pub(super) struct Report<'a> {
    pub(super) spec: &'a TaskSpec,
    pub(super) machine: &'a MachineFacts,
    pub(super) baseline_label: &'a str,
    pub(super) sandbox: &'a SandboxReport,
    pub(super) all: &'a ProcessPairs,
    pub(super) options: &'a MeasureOptions,
    pub(super) on_device: bool,
    pub(super) reserved_cores: usize,
}

impl Report<'_> {
    /// Returns the measurement, without the time of its phases.
    pub(super) fn measurement(&self) -> Measurement {
        let all = self.all;
        let (candidate, baseline) =
            (all.concat(PairTimes::counted_candidate_ns), all.concat(PairTimes::counted_baseline_ns));
        let speedup = all.speedup();
        let precise = all.pairs().len() >= self.options.process_pairs
            && all.pairs().iter().all(|pair| pair.steady)
            && candidate.len() >= self.options.min_windows
            && speedup.relative_half_width() <= self.options.wanted_relative_half_width;
        let candidate_median_ns = median(&candidate);
        let by_second = |amount: f64| amount / (candidate_median_ns / 1e9);
        let events = median(&all.concat(|pair| pair.events_candidate_ns.clone()));
        let sum = |of: fn(&PairTimes) -> u64| all.pairs().iter().map(of).sum::<u64>();
        Measurement {
            speedup,
            process_pair_speedups: all.speedups(),
            precision: self.spec.precision,
            confidence: CONFIDENCE,
            baseline_median_ns: median(&baseline),
            candidate_median_ns,
            baseline_cv: coefficient_of_variation(&baseline),
            candidate_cv: coefficient_of_variation(&candidate),
            baseline_samples_ns: baseline.iter().map(|time| whole(*time)).collect(),
            candidate_samples_ns: candidate.iter().map(|time| whole(*time)).collect(),
            outside_to_inside_time: if events > 0.0 { candidate_median_ns / events } else { 1.0 },
            achieved_flops_per_s: self.spec.flops.map(by_second),
            achieved_bytes_per_s: self.spec.bytes.map(by_second),
            precise,
            baseline: self.baseline_label.to_owned(),
            sandbox: self.sandbox.clone(),
            machine: self.machine.clone(),
            device: self.on_device.then(|| Box::new(self.device())),
            verification: Some(Verification {
                timed_calls: sum(|pair| pair.timed_calls),
                verified_calls: sum(|pair| pair.verified_calls),
                later_calls: sum(|pair| pair.later_calls),
                compared_share: 1.0,
            }),
            cost: Vec::new(),
        }
    }

    fn device(&self) -> DeviceMeasurement {
        let (all, pairs) = (self.all, self.all.pairs());
        let pair = |candidate: &[f64], baseline: &[f64]| {
            let pair = TimePair { baseline_ns: median(baseline), candidate_ns: median(candidate) };
            (!candidate.is_empty() && pair.candidate_ns > 0.0).then_some(pair)
        };
        let mut rejected_because: Vec<String> = Vec::new();
        for reason in pairs.iter().flat_map(|pair| &pair.rejected_because) {
            if !rejected_because.contains(reason) {
                rejected_because.push(reason.clone());
            }
        }
        DeviceMeasurement {
            exclusive_ms: pairs.iter().map(|pair| pair.alone).sum::<Duration>().as_secs_f64() * 1e3,
            calls_per_sample: pairs.first().map(|pair| u32::try_from(pair.calls).unwrap_or(u32::MAX)),
            lone: pair(
                &all.concat(|pair| pair.lone_candidate_ns.clone()),
                &all.concat(|pair| pair.lone_baseline_ns.clone()),
            ),
            device_time: pair(
                &all.concat(|pair| pair.events_candidate_ns.clone()),
                &all.concat(|pair| pair.events_baseline_ns.clone()),
            ),
            reserved_cores: u32::try_from(self.reserved_cores).ok(),
            floor_ns: None,
            shared_core_samples: pairs.iter().fold(0, |sum, pair| sum.saturating_add(pair.on_shared_core)),
            rejected_samples: pairs.iter().fold(0, |sum, pair| sum.saturating_add(pair.rejected)),
            rejected_because,
            conditions: pairs.first().and_then(|pair| pair.conditions.clone()),
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times are positive and a cast saturates")]
fn whole(nanoseconds: f64) -> u64 {
    nanoseconds.round() as u64
}
