//! What the sanitizers saw.

use serde::{Deserialize, Serialize};

use super::is_zero;
use crate::artifact::ArtifactHash;
use crate::verdict::{Answer, Finding};

/// The checks of compute-sanitizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum SanitizerTool {
    /// Accesses outside of allocations, misaligned ones, and errors of the CUDA interfaces.
    Memcheck,
    /// Races in shared memory.
    Racecheck,
    /// Reads of uninitialized device memory.
    Initcheck,
}

impl SanitizerTool {
    /// The name that the tool itself uses.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Memcheck => "memcheck",
            Self::Racecheck => "racecheck",
            Self::Initcheck => "initcheck",
        }
    }
}

/// What the sanitizers saw.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SanitizeReport {
    /// One entry for each check that was wanted, also for those that could not be carried out.
    pub tools: Vec<SanitizerRun>,
    /// What was found, as observations about compliance.
    pub findings: Vec<Finding>,
    /// What the tools printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<ArtifactHash>,
}

impl SanitizeReport {
    /// `Fail` when a check found an error, `Pass` when every wanted check looked to the end and found none, else
    /// `Inconclusive`: a check that could not be carried out is no clean bill of health.
    #[must_use]
    pub fn answer(&self) -> Answer {
        let failed = self.tools.iter().any(|run| run.outcome == SanitizerOutcome::Errors);
        let clean = !self.tools.is_empty() && self.tools.iter().all(|run| run.outcome == SanitizerOutcome::Clean);
        match (failed, clean) {
            (true, _) => Answer::Fail,
            (false, true) => Answer::Pass,
            (false, false) => Answer::Inconclusive,
        }
    }

    /// What was not looked at, and why, in one sentence; none when every wanted check looked to the end.
    #[must_use]
    pub fn unverified(&self) -> Option<String> {
        if self.tools.is_empty() {
            return Some("unverified: sanitizer unavailable: no check ran".to_owned());
        }
        let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
        for run in self.tools.iter().filter(|run| run.outcome == SanitizerOutcome::Unavailable) {
            let reason = run.reason.as_deref().unwrap_or("no reason given");
            match reasons.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, tools)) => tools.push(run.tool.as_str()),
                None => reasons.push((reason, vec![run.tool.as_str()])),
            }
        }
        let said: Vec<String> =
            reasons.into_iter().map(|(reason, tools)| format!("{} ({reason})", tools.join(", "))).collect();
        (!said.is_empty()).then(|| format!("unverified: sanitizer unavailable: {}", said.join("; ")))
    }
}

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum SanitizerOutcome {
    /// It looked to the end and found nothing.
    Clean,
    /// It looked to the end and found nothing that is an error, but something that is worth a look.
    Warnings,
    /// It found errors.
    Errors,
    /// It could not look to the end.
    Unavailable,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SanitizerRun {
    /// Which.
    pub tool: SanitizerTool,
    /// How it ended.
    pub outcome: SanitizerOutcome,
    /// Stable code of why it gave no answer, for example `profile.tool_missing`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Why it could not look to the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What an operator does about that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// Errors that it counted.
    pub errors: u64,
    /// Warnings that it counted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub warnings: u64,
    /// What it found: equal ones are one entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub issues: Vec<SanitizerIssue>,
    /// Errors that are counted above but not among the entries.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub not_listed: u64,
    /// Wall time in milliseconds.
    pub wall_ms: u64,
}

/// One thing that a check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SanitizerIssue {
    /// What it is, in the tool's words without numbers: `Invalid __global__ write`, `Race between write and read`, ...
    pub kind: String,
    /// Whether the tool calls it an error; else it is a warning.
    pub is_error: bool,
    /// How often.
    pub count: u64,
    /// The kernel with its parameters, when there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// The source file, without folders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line in it, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Size of the access in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// The first address, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The first thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<[u32; 3]>,
    /// The block of that thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<[u32; 3]>,
    /// What else the tool said: where the nearest allocation lies, the other access of a race, the failed call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(outcome: SanitizerOutcome) -> SanitizerRun {
        SanitizerRun {
            tool: SanitizerTool::Memcheck,
            outcome,
            code: None,
            reason: None,
            remedy: None,
            errors: 0,
            warnings: 0,
            issues: Vec::new(),
            not_listed: 0,
            wall_ms: 1,
        }
    }

    #[test]
    fn a_check_that_could_not_look_is_no_clean_bill_of_health() {
        use SanitizerOutcome::{Clean, Errors, Unavailable, Warnings};
        for (outcomes, answer) in [
            (&[][..], Answer::Inconclusive),
            (&[Clean, Clean], Answer::Pass),
            (&[Clean, Unavailable], Answer::Inconclusive),
            (&[Clean, Warnings], Answer::Inconclusive),
            (&[Unavailable, Errors], Answer::Fail),
        ] {
            let tools = outcomes.iter().map(|outcome| run(*outcome)).collect();
            assert_eq!(SanitizeReport { tools, ..SanitizeReport::default() }.answer(), answer, "{outcomes:?}");
        }
    }

    #[test]
    fn what_was_not_looked_at_is_named_with_its_reason() {
        use SanitizerOutcome::{Clean, Errors, Unavailable, Warnings};
        let looked = [Clean, Warnings, Errors].map(run).to_vec();
        assert_eq!(SanitizeReport { tools: looked, ..SanitizeReport::default() }.unverified(), None);
        let because = |tool, reason: &str| SanitizerRun { tool, reason: Some(reason.to_owned()), ..run(Unavailable) };
        let tools = vec![
            run(Clean),
            because(SanitizerTool::Racecheck, "too slow"),
            because(SanitizerTool::Initcheck, "too slow"),
        ];
        let said = SanitizeReport { tools, ..SanitizeReport::default() }.unverified();
        assert_eq!(said.as_deref(), Some("unverified: sanitizer unavailable: racecheck, initcheck (too slow)"));
        assert!(SanitizeReport::default().unverified().is_some_and(|said| said.ends_with("no check ran")));
    }
}
