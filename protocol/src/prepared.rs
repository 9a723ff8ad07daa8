//! A prepared task: its reference, built and examined, with the other baselines.

use serde::{Deserialize, Serialize};

use crate::artifact::ArtifactHash;
use crate::baseline::{Baseline, BaselineKind, BaselineSpeedup, FastestBaseline};
use crate::machine::MachineFacts;
use crate::measurement::{CostPart, Interval, Measurement};
use crate::profile::Profile;
use crate::reports::BuildReport;
use crate::target_baseline::TargetBaseline;
use crate::verdict::Finding;

/// The reference, built and examined.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PreparedTask {
    /// The reference as it is timed.
    pub reference: BuildReport,
    /// Its library.
    pub reference_library: ArtifactHash,
    /// The reference in double precision: the truth.
    pub truth_library: ArtifactHash,
    /// Median time of one call of the reference at the default shape, in nanoseconds.
    pub baseline_median_ns: f64,
    /// Largest normalized error of the reference against the truth.
    pub reference_normalized_error: f64,
    /// Observations about the task's quality.
    pub warnings: Vec<Finding>,
    /// The machine it was prepared on.
    pub machine: MachineFacts,
    /// The system profile of the reference, on the `cuda` target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Box<Profile>>,
    /// Other ways to run the reference, beside the one that programs are compared with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub baselines: Vec<Baseline>,
    /// Where the time of preparing went.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cost: Vec<CostPart>,
}

impl PreparedTask {
    /// Returns the fastest way to run the reference that was measured; nothing where no other way was measured and there are some.
    #[must_use]
    pub fn fastest_baseline(&self) -> Option<FastestBaseline> {
        FastestBaseline::of(self.baseline_median_ns, &self.baselines)
    }

    /// Returns the baseline that a target is meant over; nothing where that is the reference.
    #[must_use]
    pub fn target_baseline(&self, target: TargetBaseline) -> Option<FastestBaseline> {
        let is_other = |fastest: &FastestBaseline| fastest.kind != BaselineKind::Reference;
        self.fastest_baseline().filter(is_other).filter(|_| target == TargetBaseline::Fastest)
    }

    /// Returns every other way to run the reference that was measured.
    #[must_use]
    pub fn measured_baselines(&self) -> Vec<BaselineSpeedup> {
        let measured = self.baselines.iter().filter_map(|baseline| {
            let speedup = baseline.measurement.as_ref()?.speedup.estimate;
            Some(BaselineSpeedup { kind: baseline.kind, speedup })
        });
        measured.collect()
    }

    /// Returns whether a program was measured where the baselines would take the same time. Otherwise it is unknown which of them is
    /// fastest there, and by how much. Without other baselines there is nothing to compare with.
    #[must_use]
    pub fn is_comparable(&self, measured: &Measurement) -> bool {
        self.difference(measured).is_none()
    }

    /// Returns the first difference between where the baselines and where a program was measured, as words that follow "measured": the
    /// device, the processor, which launches of short kernels wait for, or the version of `PyTorch`, which decides the kernels.
    #[must_use]
    pub fn difference(&self, measured: &Measurement) -> Option<String> {
        let (theirs, ours) = (&self.machine, &measured.machine);
        if self.baselines.is_empty() {
            return None;
        }
        let mut timed = self.baselines.iter().filter_map(|baseline| baseline.measurement.as_deref());
        let reference = timed.next().map_or(&measured.baseline, |baseline| &baseline.baseline);
        let places = [
            ("on", theirs.device_name(), ours.device_name()),
            ("on a host with", &theirs.processor, &ours.processor),
            ("against", reference, &measured.baseline),
        ];
        let (word, theirs, ours) = places.into_iter().find(|(_, theirs, ours)| theirs != ours)?;
        Some(format!("{word} {theirs}, the program {word} {ours}"))
    }

    /// Returns the speedup of a measured program over the fastest baseline, from its speedup over the reference. Nothing where that
    /// baseline is not known or not comparable.
    #[must_use]
    pub fn over_fastest(&self, measured: &Measurement) -> Option<Interval> {
        Some(self.fastest_baseline().filter(|_| self.is_comparable(measured))?.speedup_of(measured.speedup))
    }
}
