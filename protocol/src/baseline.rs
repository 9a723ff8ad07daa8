//! Ways to run what a task asks for without a new program, and the fastest of them.

use serde::{Deserialize, Serialize};

use crate::measurement::{Interval, Measurement};

/// A way to run what a task asks for without a new program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum BaselineKind {
    /// The reference as it is given; of a `PyTorch` task this is the model in eager mode.
    #[serde(rename = "reference")]
    Reference,
    /// The model in eager mode, recorded once as a CUDA graph and replayed.
    #[serde(rename = "cuda_graph")]
    CudaGraph,
    /// `torch.compile` in its default mode.
    #[serde(rename = "torch.compile")]
    Compile,
    /// `torch.compile` with `mode="reduce-overhead"`.
    #[serde(rename = "torch.compile:reduce-overhead")]
    CompileReduceOverhead,
    /// `torch.compile` with `mode="max-autotune"`.
    #[serde(rename = "torch.compile:max-autotune")]
    CompileMaxAutotune,
    /// A program of the task that calls a library, `library.cu`.
    #[serde(rename = "library")]
    Library,
}

impl BaselineKind {
    /// Every further way to run a model of `PyTorch`, in the order in which they are measured.
    pub const OF_TORCH: [Self; 4] =
        [Self::CudaGraph, Self::Compile, Self::CompileReduceOverhead, Self::CompileMaxAutotune];

    /// Every way that can be measured in addition to the reference.
    pub const MEASURED: [Self; 5] =
        [Self::CudaGraph, Self::Compile, Self::CompileReduceOverhead, Self::CompileMaxAutotune, Self::Library];

    /// Returns the name in files and options.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reference => "reference",
            Self::CudaGraph => "cuda_graph",
            Self::Compile => "torch.compile",
            Self::CompileReduceOverhead => "torch.compile:reduce-overhead",
            Self::CompileMaxAutotune => "torch.compile:max-autotune",
            Self::Library => "library",
        }
    }

    /// Returns the name for people.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Reference => "reference",
            Self::CudaGraph => "CUDA graph",
            Self::Compile => "torch.compile",
            Self::CompileReduceOverhead => "torch.compile, reduce-overhead",
            Self::CompileMaxAutotune => "torch.compile, max-autotune",
            Self::Library => "library",
        }
    }

    /// The `mode` of `torch.compile`; none for what is not compiled.
    #[must_use]
    pub fn compile_mode(self) -> Option<&'static str> {
        match self {
            Self::Compile => Some("default"),
            Self::CompileReduceOverhead => Some("reduce-overhead"),
            Self::CompileMaxAutotune => Some("max-autotune"),
            Self::Reference | Self::CudaGraph | Self::Library => None,
        }
    }
}

/// Another way to run a reference, measured by the protocol of programs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Baseline {
    /// Which one.
    #[serde(rename = "name")]
    pub kind: BaselineKind,
    /// It in the place of a program, the reference in the place of the baseline; none when it could not be measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measurement: Option<Box<Measurement>>,
    /// Why it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// True if a fault of the machine kept it from being measured: it may be the fastest.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_fault: bool,
}

/// The fastest way to run a reference.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FastestBaseline {
    /// Which one.
    pub kind: BaselineKind,
    /// Median time of one call, in nanoseconds.
    pub median_ns: f64,
    /// Its speedup over the reference: 1 for the reference itself.
    pub speedup: Interval,
    /// How many ways were measured, where a fault of the machine left others unmeasured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<MeasuredWays>,
    /// How many pairs of processes it was measured with. Intervals of one pair do not show what differs between processes. None for
    /// the reference, which is measured with each program, and where it was not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_pairs: Option<u32>,
}

/// How many of the ways to run a reference were measured, the reference itself among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MeasuredWays {
    /// Those that were measured.
    pub measured: u32,
    /// Those, and the ones that a fault of the machine left unmeasured.
    pub all: u32,
}

/// A measured way to run a reference other than the reference itself, as summaries give it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BaselineSpeedup {
    /// Which one.
    pub kind: BaselineKind,
    /// Its speedup over the reference.
    pub speedup: f64,
}

impl FastestBaseline {
    /// Returns the fastest of a reference and other ways to run it. A way counts as faster where its estimate is above 1. Returns
    /// nothing where there are other ways and none was measured.
    #[must_use]
    pub fn of(reference_median_ns: f64, baselines: &[Baseline]) -> Option<Self> {
        if !baselines.is_empty() && baselines.iter().all(|baseline| baseline.measurement.is_none()) {
            return None;
        }
        let count = |ways: usize| u32::try_from(ways).unwrap_or(u32::MAX);
        let measured = 1 + baselines.iter().filter(|baseline| baseline.measurement.is_some()).count();
        let faults = baselines.iter().filter(|baseline| baseline.is_fault).count();
        let ways = MeasuredWays { measured: count(measured), all: count(measured + faults) };
        let itself = Self {
            kind: BaselineKind::Reference,
            median_ns: reference_median_ns,
            speedup: Interval { estimate: 1.0, low: 1.0, high: 1.0 },
            incomplete: (faults > 0).then_some(ways),
            process_pairs: None,
        };
        let others = baselines.iter().filter_map(|baseline| {
            let measured = baseline.measurement.as_ref()?;
            Some(Self {
                kind: baseline.kind,
                median_ns: measured.candidate_median_ns,
                speedup: measured.speedup,
                process_pairs: Some(count(measured.process_pair_speedups.len())).filter(|pairs| *pairs > 0),
                ..itself
            })
        });
        Some(others.filter(|other| other.speedup.estimate.is_finite()).fold(itself, |fastest, other| {
            if other.speedup.estimate > fastest.speedup.estimate { other } else { fastest }
        }))
    }

    /// Returns the name for people, with what limits it as the fastest baseline: `torch.compile (one process pair; fastest of 3 of 5
    /// measured)`.
    #[must_use]
    pub fn label_with_limits(&self) -> String {
        let one_pair = self.process_pairs.filter(|pairs| *pairs == 1).map(|_| "one process pair".to_owned());
        let incomplete = self.incomplete.map(|of| format!("fastest of {} of {} measured", of.measured, of.all));
        let limits: Vec<String> = one_pair.into_iter().chain(incomplete).collect();
        let limits = if limits.is_empty() { String::new() } else { format!(" ({})", limits.join("; ")) };
        format!("{}{limits}", self.kind.label())
    }

    /// A program's speedup over this baseline, from its speedup over the reference.
    #[must_use]
    pub fn speedup_of(&self, over_reference: Interval) -> Interval {
        over_reference.over(self.speedup)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_the_names_that_were_stored_before_there_were_several() {
        let stored: Baseline = serde_json::from_str(r#"{"name": "torch.compile", "reason": "no compiler"}"#).unwrap();
        assert_eq!(stored.kind, BaselineKind::Compile);
        for kind in BaselineKind::MEASURED {
            let text = serde_json::to_value(kind).unwrap();
            assert_eq!(text, kind.as_str());
            assert_eq!(serde_json::from_value::<BaselineKind>(text).unwrap(), kind);
        }
    }

    #[test]
    fn the_fastest_baseline_says_what_a_fault_left_unmeasured_and_that_it_had_one_pair_of_processes() {
        let interval = serde_json::json!({"estimate": 2.0, "low": 1.9, "high": 2.1});
        let sandbox = serde_json::json!({"means": [], "isolates_files": true, "isolates_network": true});
        let measured = |pairs: &[f64]| {
            let measurement = serde_json::json!({
                "speedup": interval, "process_pair_speedups": pairs, "confidence": 0.95, "baseline_median_ns": 5.0,
                "candidate_median_ns": 2.5, "baseline_cv": 0.0, "candidate_cv": 0.0, "baseline_samples_ns": [],
                "candidate_samples_ns": [], "outside_to_inside_time": 1.0, "precise": true, "baseline": "", "sandbox": sandbox,
                "machine": {"host": "", "os": "", "processor": "", "cores": 1, "features": [], "memory_bytes": 0, "sandbox": sandbox},
            });
            let named = serde_json::json!({"name": "torch.compile", "measurement": measurement});
            serde_json::from_value::<Baseline>(named).unwrap()
        };
        let missing = |is_fault| Baseline {
            kind: BaselineKind::CompileMaxAutotune,
            measurement: None,
            reason: Some("timed out".to_owned()),
            is_fault,
        };
        let label = |baselines: &[Baseline]| FastestBaseline::of(5.0, baselines).unwrap().label_with_limits();
        assert_eq!(label(&[measured(&[2.0, 2.0, 2.0]), missing(false)]), "torch.compile");
        assert_eq!(label(&[measured(&[2.0]), missing(false)]), "torch.compile (one process pair)");
        let both = label(&[measured(&[2.0]), missing(true)]);
        assert_eq!(both, "torch.compile (one process pair; fastest of 2 of 3 measured)");
        let stored =
            r#"{"kind": "torch.compile", "median_ns": 2.5, "speedup": {"estimate": 2.0, "low": 1.9, "high": 2.1}}"#;
        assert_eq!(
            serde_json::from_str::<FastestBaseline>(stored).unwrap().label_with_limits(),
            "torch.compile",
            "of an earlier release"
        );
    }

    #[test]
    fn without_a_faster_way_the_reference_is_the_fastest_baseline() {
        let unmeasured = Baseline { kind: BaselineKind::Compile, measurement: None, reason: None, is_fault: false };
        assert_eq!(FastestBaseline::of(5.0, &[unmeasured]), None, "nothing is known of the other way");
        let fastest = FastestBaseline::of(5.0, &[]).unwrap();
        assert_eq!((fastest.kind, fastest.median_ns), (BaselineKind::Reference, 5.0));
        let over_reference = Interval { estimate: 3.0, low: 2.8, high: 3.1 };
        let over_fastest = fastest.speedup_of(over_reference);
        let is_close = |one: f64, other: f64| (one - other).abs() < 1e-9;
        assert!(
            is_close(over_fastest.estimate, 3.0) && is_close(over_fastest.low, 2.8) && is_close(over_fastest.high, 3.1)
        );
    }
}
