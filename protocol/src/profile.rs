//! Why a program is as fast as it is, and what the sanitizers saw: what profilers and sanitizers tell, in types.

mod kernel;
mod sanitizer;
mod timeline;

use serde::{Deserialize, Serialize};

pub use self::kernel::{KernelProfile, Stall};
pub use self::sanitizer::{SanitizeReport, SanitizerIssue, SanitizerOutcome, SanitizerRun, SanitizerTool};
pub use self::timeline::{ApiTime, CopyDirection, CopyTime, Gaps, KernelTime, Launches, StreamTime, Timeline, Times};
use crate::artifact::ArtifactHash;
use crate::bound::Bound;
use crate::measurement::CompilerReport;

/// Which arithmetic a peak is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Arithmetic {
    /// Single precision outside of the tensor cores.
    Fp32,
    /// 16-bit floats on the tensor cores.
    Tensor,
}

impl Arithmetic {
    /// Its name, for people and agents.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fp32 => "fp32 on CUDA cores",
            Self::Tensor => "16-bit floats on tensor cores",
        }
    }
}

/// What a profile says, and by which tools.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Profile {
    /// The tier, for example `compiler_report+analytic_roofline` or `nsys+ncu+compiler_report+analytic_roofline`.
    pub tier: String,
    /// What a better tier would have added, and why it was not available.
    pub missing: Vec<String>,
    /// Floating-point operations by compulsory byte, when the task says both.
    pub arithmetic_intensity: Option<f64>,
    /// Peak in floating-point operations per second: on `cpu` measured with one thread of this machine, on `cuda` the
    /// device's, as `peak_arithmetic` says. 0 when it is not known.
    pub peak_flops_per_s: f64,
    /// Which arithmetic that peak is of, on `cuda`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_arithmetic: Option<Arithmetic>,
    /// Peak of the memory in bytes per second: on `cpu` the copy bandwidth measured with one thread, on `cuda` what the
    /// device's memory clock and bus allow. 0 when it is not known.
    pub peak_bytes_per_s: f64,
    /// Share of the peak that bounds this program by the roofline, 0 to 1, when it can be computed. None for a program that is faster
    /// than its roof: it does not apply to it.
    pub roofline_share: Option<f64>,
    /// `memory`, `compute`, or `unknown`, by the roofline alone.
    pub roofline_bound: String,
    /// The compiler's report.
    pub compiler: CompilerReport,
    /// What bounds the whole program, by its timeline and its kernels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<BoundBy>,
    /// What ran when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Timeline>,
    /// The kernels that matter, by their share of the device's time, largest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<KernelProfile>,
    /// Each tool that was wanted: used, or why not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<TierReport>,
    /// The timeline as a trace that Perfetto and Chrome open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<ArtifactHash>,
}

/// What bounds something, and the numbers that say so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BoundBy {
    /// The bound; none when the evidence does not decide it.
    pub bound: Option<Bound>,
    /// The numbers, one sentence each, the decisive one first.
    pub evidence: Vec<String>,
}

/// What a tool is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum TierPurpose {
    /// What ran when.
    Timeline,
    /// What limits a kernel.
    Kernels,
    /// What the compiler made of the source.
    Code,
    /// How far from the peaks.
    Roofline,
}

/// One tool that was wanted for a profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TierReport {
    /// What for.
    pub purpose: TierPurpose,
    /// The tool: `nsys`, `cupti`, `ncu`, `compiler_report`, `analytic_roofline`.
    pub tool: String,
    /// Its version, when known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Whether its result is in the profile.
    pub used: bool,
    /// Stable code of why it is not, for example `profile.counters_not_permitted`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Why its result is not in the profile, or not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What an operator does to get it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// Wall time that it took, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_ms: Option<u64>,
}

impl Profile {
    /// Returns whether there is a roof for the program: its work and the peaks of the device are known.
    #[must_use]
    pub fn has_roof(&self) -> bool {
        self.arithmetic_intensity.is_some() && self.peak_bytes_per_s > 0.0 && self.peak_flops_per_s > 0.0
    }
}

/// A program may be so many times as fast as its roof allows: peaks are not known better.
const ROOFLINE_SLACK: f64 = 1.05;

/// Returns a program's share of the roofline as it is shown, 0 to 1. None for a program that is faster: its data stay in a cache, the
/// peak was measured during other work, or the task counts more work than is needed. That is no proof that it is at its limit.
#[must_use]
pub fn roofline_share(share: f64) -> Option<f64> {
    (0.0..=ROOFLINE_SLACK).contains(&share).then(|| share.min(1.0))
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_profile_of_old_is_still_read() {
        let stored = r#"{"tier":"compiler_report+analytic_roofline","missing":["x"],"arithmetic_intensity":0.5,
            "peak_flops_per_s":1e11,"peak_bytes_per_s":1e10,"roofline_share":null,"roofline_bound":"memory",
            "compiler":{"vectorized_loops":[],"missed_loops":[],"instructions":1,"wide_vector_instructions":0,
            "fma_instructions":0,"scalar_math_calls":[],"library_bytes":8}}"#;
        let profile: Profile = serde_json::from_str(stored).unwrap();
        assert_eq!(profile.roofline_bound, "memory");
        assert_eq!((profile.timeline.is_none(), profile.kernels.len(), profile.tiers.len()), (true, 0, 0));
        // And what has nothing new is written as it always was.
        let again = serde_json::to_value(&profile).unwrap();
        let before: serde_json::Value = serde_json::from_str(stored).unwrap();
        assert_eq!(again, before);
    }
}
