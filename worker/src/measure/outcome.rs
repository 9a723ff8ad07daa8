//! The result of a measurement, made of times that were taken on whatever target.

use nightshift_protocol::machine::{MachineFacts, SandboxReport};
use nightshift_protocol::measurement::{Interval, Measurement};
use nightshift_protocol::task::TaskSpec;

use super::samples::{float, inside};
use super::{CONFIDENCE, whole};
use crate::runner::CallTime;
use crate::statistics::{coefficient_of_variation, median};

/// What was measured.
pub(super) struct Outcome<'a> {
    pub(super) speedup: Interval,
    /// Whether the interval is as narrow as it was wanted.
    pub(super) precise: bool,
    /// The candidate's calls, as the clocks showed them.
    pub(super) calls: &'a [CallTime],
    /// Times of the candidate in nanoseconds, with what its clock did not show.
    pub(super) candidate_ns: &'a [f64],
    /// Times of the baseline in nanoseconds.
    pub(super) baseline_ns: &'a [f64],
    /// Isolation of the candidate.
    pub(super) sandbox: &'a SandboxReport,
}

impl Outcome<'_> {
    /// The result, without what only a device has.
    pub(super) fn measurement(&self, spec: &TaskSpec, baseline_label: &str, machine: &MachineFacts) -> Measurement {
        let candidate_median_ns = median(self.candidate_ns);
        let by_second = |amount: f64| amount / (candidate_median_ns / 1e9);
        let outside_to_inside: Vec<f64> =
            self.calls.iter().map(|time| float(time.outside_ns) / inside(*time)).collect();
        Measurement {
            speedup: self.speedup,
            confidence: CONFIDENCE,
            baseline_median_ns: median(self.baseline_ns),
            candidate_median_ns,
            baseline_cv: coefficient_of_variation(self.baseline_ns),
            candidate_cv: coefficient_of_variation(self.candidate_ns),
            baseline_samples_ns: self.baseline_ns.iter().map(|time| whole(*time)).collect(),
            candidate_samples_ns: self.candidate_ns.iter().map(|time| whole(*time)).collect(),
            outside_to_inside_time: median(&outside_to_inside),
            achieved_flops_per_s: spec.flops.map(by_second),
            achieved_bytes_per_s: spec.bytes.map(by_second),
            precise: self.precise,
            baseline: baseline_label.to_owned(),
            sandbox: self.sandbox.clone(),
            machine: machine.clone(),
            device: None,
            cost: Vec::new(),
        }
    }
}
