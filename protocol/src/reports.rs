//! Reports of builds and checks.

use serde::{Deserialize, Serialize};

use crate::artifact::ArtifactHash;
use crate::cuda_build::CudaBuild;
use crate::gpu_text::significant;
use crate::last_words::last_words;
use crate::machine::{SandboxReport, Toolchain};
use crate::measurement::{CompilerMessage, CompilerReport, CostPart};
use crate::verdict::{CheckCase, Finding, ProcessEnd};

/// What the checks found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CheckReport {
    /// How the candidate's process ended.
    pub end: ProcessEnd,
    /// Checked calls, as far as the process came.
    pub cases: Vec<CheckCase>,
    /// Counts of elements by normalized error, one more than the bounds.
    pub error_histogram: Vec<u64>,
    /// Whether two calls with equal inputs gave equal bits; none when it came not so far.
    pub deterministic: Option<bool>,
    /// Observations about compliance.
    pub findings: Vec<Finding>,
    /// The last lines that the program printed.
    pub printed: String,
    /// Where the time of the step went, in the order of its parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cost: Vec<CostPart>,
}

impl CheckReport {
    /// Why a program that did not come to its end broke down, in its own words: one line, cut, that steers no terminal. None
    /// where it ended well, printed nothing, or how it ended says the same.
    #[must_use]
    pub fn last_words(&self) -> Option<String> {
        if self.end == ProcessEnd::Finished {
            return None;
        }
        let said = last_words(&self.printed)?;
        (!self.end.describe().contains(&said)).then_some(said)
    }

    /// The checked call that comes closest to its limit, with the share of the allowed error that it uses.
    #[must_use]
    pub fn closest_to_limit(&self) -> Option<(&CheckCase, f64)> {
        let used = self.cases.iter().filter_map(|case| Some((case, case.used_error()?)));
        used.max_by(|(_, one), (_, other)| one.total_cmp(other))
    }

    /// How precise the program is, in a sentence with numbers.
    #[must_use]
    pub fn precision(&self) -> Option<String> {
        let (case, used) = self.closest_to_limit()?;
        let (worst, allowed) = (case.worst.as_ref()?.normalized_error?, case.allowed_error?);
        let of_reference = significant(case.reference_normalized_error);
        // The smaller one of the tolerance and a multiple of the reference's error counts.
        let why = if case.is_widened() {
            format!(
                "the whole tolerance, which is widened here, as the reference is off by {of_reference} times the task's own"
            )
        } else if allowed < 1.0 {
            format!("as the reference's own is {of_reference} times it")
        } else {
            format!("the whole tolerance; the reference's own is {of_reference} times it")
        };
        Some(format!(
            "It uses {} % of the allowed error: its largest is {} times the tolerance (shape `{}`, inputs `{}`), {} times is allowed, \
             {why}",
            significant(used * 100.0),
            significant(worst),
            case.shape,
            case.inputs,
            significant(allowed),
        ))
    }

    /// How the process ended, with its last words.
    #[must_use]
    pub fn ending(&self) -> String {
        let end = self.end.describe();
        self.last_words().map_or_else(|| end.clone(), |said| format!("{end}: {said}"))
    }
}

/// What a build gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BuildReport {
    /// The library; none when it did not compile.
    pub library: Option<ArtifactHash>,
    /// How the compiler ended.
    pub end: ProcessEnd,
    /// Messages, most important first, bounded.
    pub messages: Vec<CompilerMessage>,
    /// The compiler's whole output.
    pub log: ArtifactHash,
    /// Compiler, version and flags.
    pub toolchain: Toolchain,
    /// The address: blake3 over source, flags and toolchain.
    pub build_key: String,
    /// Whether it was answered from the cache.
    pub cached: bool,
    /// Wall time of the compiler in milliseconds; of the original build when cached.
    pub duration_ms: u64,
    /// What the compiler and the disassembly tell.
    pub report: CompilerReport,
    /// What nvcc and the disassembly of its kernels tell, on the `cuda` target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuda: Option<CudaBuild>,
    /// Isolation of the compiler.
    pub sandbox: SandboxReport,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_broke_down_has_last_words() {
        let call_failed = ProcessEnd::CallFailed { entry_point: "forward".to_owned(), status: 1 };
        let load_failed = ProcessEnd::LoadFailed { message: "ValueError: boom (line 3)".to_owned() };
        let report = |end: &ProcessEnd, printed: &str| CheckReport {
            end: end.clone(),
            cases: Vec::new(),
            error_histogram: Vec::new(),
            deterministic: None,
            findings: Vec::new(),
            printed: printed.to_owned(),
            cost: Vec::new(),
        };
        let raised = "  File \"candidate.py\", line 9, in forward\nValueError: boom\n";
        let ending = report(&call_failed, raised).ending();
        assert_eq!(ending, "`forward` returned the error status 1: ValueError: boom");
        assert_eq!(report(&call_failed, "").ending(), call_failed.describe());
        assert_eq!(report(&load_failed, raised).last_words(), None, "how it ended says so already");
        assert_eq!(report(&ProcessEnd::Finished, raised).last_words(), None, "nothing went wrong");
    }
}
