//! The result of a measurement.

use nightshift_protocol::machine::{MachineFacts, SandboxReport};
use nightshift_protocol::measurement::{DeviceMeasurement, Interval, Measurement, TimePair, Verification};
use nightshift_protocol::task::TaskSpec;

use super::pairs::PairTimes;
use super::{CONFIDENCE, MeasureOptions};
use crate::statistics::{bootstrap_median, coefficient_of_variation, median};

/// Resamples of the interval.
const RESAMPLES: usize = 2_000;

/// What differs from process to process and not from call to call, as a share: where pages and tables happen to lie. No number of
/// pairs of windows of one pair of processes shows it.
const BETWEEN_PROCESSES_ON_HOST: f64 = 0.01;
const BETWEEN_PROCESSES_ON_DEVICE: f64 = 0.003;

/// The same of each call on a device, in nanoseconds.
const BETWEEN_PROCESSES_NS: f64 = 150.0;

/// What a measurement is made of.
pub(super) struct Report<'a> {
    pub(super) spec: &'a TaskSpec,
    pub(super) machine: &'a MachineFacts,
    pub(super) baseline_label: &'a str,
    pub(super) sandbox: &'a SandboxReport,
    pub(super) times: &'a PairTimes,
    pub(super) options: &'a MeasureOptions,
    pub(super) on_device: bool,
}

impl Report<'_> {
    /// Returns the measurement, without the time of its phases.
    pub(super) fn measurement(&self) -> Measurement {
        let times = self.times;
        let (candidate, baseline) = (times.counted_candidate_ns(), times.counted_baseline_ns());
        let own = bootstrap_median(&times.ratios(), CONFIDENCE, RESAMPLES);
        let precise = times.steady
            && candidate.len() >= self.options.min_pairs
            && own.relative_half_width() <= self.options.wanted_relative_half_width.max(0.01);
        let between = self.between_processes(median(&candidate).min(median(&baseline)));
        let speedup = Interval { low: own.low * (1.0 - between), high: own.high * (1.0 + between), ..own };
        let candidate_median_ns = median(&candidate);
        let by_second = |amount: f64| amount / (candidate_median_ns / 1e9);
        let events = median(&times.events_candidate_ns);
        Measurement {
            speedup,
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
                timed_calls: times.timed_calls,
                verified_calls: times.verified_calls,
                later_calls: times.later_calls,
                compared_share: 1.0,
            }),
            cost: Vec::new(),
        }
    }

    fn between_processes(&self, call_ns: f64) -> f64 {
        if self.on_device {
            BETWEEN_PROCESSES_ON_DEVICE + BETWEEN_PROCESSES_NS / call_ns.max(BETWEEN_PROCESSES_NS)
        } else {
            BETWEEN_PROCESSES_ON_HOST
        }
    }

    fn device(&self) -> DeviceMeasurement {
        let times = self.times;
        let pair = |candidate: &[f64], baseline: &[f64]| {
            let pair = TimePair { baseline_ns: median(baseline), candidate_ns: median(candidate) };
            (!candidate.is_empty() && pair.candidate_ns > 0.0).then_some(pair)
        };
        DeviceMeasurement {
            exclusive_ms: times.alone.as_secs_f64() * 1e3,
            calls_per_sample: Some(u32::try_from(times.calls).unwrap_or(u32::MAX)),
            lone: pair(&times.lone_candidate_ns, &times.lone_baseline_ns),
            device_time: pair(&times.events_candidate_ns, &times.events_baseline_ns),
            floor_ns: None,
            rejected_samples: times.rejected,
            rejected_because: times.rejected_because.clone(),
            conditions: times.conditions.clone(),
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times are positive and a cast saturates")]
fn whole(nanoseconds: f64) -> u64 {
    nanoseconds.round() as u64
}
