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
        let itself = Self {
            kind: BaselineKind::Reference,
            median_ns: reference_median_ns,
            speedup: Interval { estimate: 1.0, low: 1.0, high: 1.0 },
        };
        let others = baselines.iter().filter_map(|baseline| {
            let measured = baseline.measurement.as_ref()?;
            Some(Self { kind: baseline.kind, median_ns: measured.candidate_median_ns, speedup: measured.speedup })
        });
        Some(others.filter(|other| other.speedup.estimate.is_finite()).fold(itself, |fastest, other| {
            if other.speedup.estimate > fastest.speedup.estimate { other } else { fastest }
        }))
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
    fn without_a_faster_way_the_reference_is_the_fastest_baseline() {
        let unmeasured = Baseline { kind: BaselineKind::Compile, measurement: None, reason: None };
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
