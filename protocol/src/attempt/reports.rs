//! Reports of builds and checks, and versions of a program that failed before.

use serde::{Deserialize, Serialize};

use super::{AgentTool, AttemptOutcome, failure_reason};
use crate::artifact::ArtifactHash;
use crate::cuda_build::CudaBuild;
use crate::gpu_text::significant;
use crate::last_words::last_words;
use crate::machine::{SandboxReport, Toolchain};
use crate::measurement::{CompilerMessage, CompilerReport, CostPart, Measurement, Profile};
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
        Some(format!(
            "It uses {} % of the allowed error: its largest is {} times the tolerance (shape `{}`, inputs `{}`), {} times is allowed, \
             the reference's own is {}",
            significant(used * 100.0),
            significant(worst),
            case.shape,
            case.inputs,
            significant(allowed),
            significant(case.reference_normalized_error)
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

/// A version of an attempt's program: one that failed before it was run and that a fix turn replaced, or one that an agent tried
/// out without submitting it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EarlierVersion {
    /// Its source.
    pub source: ArtifactHash,
    /// How it failed: `compile_failed` or `not_compliant`; of an agent session also every other outcome, and `pending` where it
    /// was built or checked and nothing else was asked for.
    pub outcome: AttemptOutcome,
    /// Findings of the screening, and of the tools that were used on it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// The build; none where the screening refused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<BuildReport>,
    /// The turn of the agent session that brought it; none for a version of a fix turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<u32>,
    /// The tool that the agent used on it; none for a version of a fix turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<AgentTool>,
    /// The checks, where it came so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<CheckReport>,
    /// The measurement, without its samples, where it came so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measurement: Option<Measurement>,
    /// The profile, where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
}

impl EarlierVersion {
    /// A version of this source that failed before it was built.
    #[must_use]
    pub fn new(source: ArtifactHash, outcome: AttemptOutcome, findings: Vec<Finding>) -> Self {
        Self {
            source,
            outcome,
            findings,
            build: None,
            turn: None,
            tool: None,
            check: None,
            measurement: None,
            profile: None,
        }
    }

    /// Returns why it failed: the first cause, in one line. Texts of compilers in it are as they came.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        failure_reason(self.outcome, &self.findings, self.build.as_ref(), self.check.as_ref(), None)
    }

    /// Returns what became of it, in one word: its outcome, or how far it came where nothing else was asked for.
    #[must_use]
    pub fn result(&self) -> &'static str {
        match (self.outcome, &self.check) {
            (AttemptOutcome::Pending, Some(_)) => "right",
            (AttemptOutcome::Pending, None) => "built",
            (outcome, _) => outcome.as_str(),
        }
    }
}
