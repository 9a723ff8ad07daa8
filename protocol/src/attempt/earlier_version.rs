//! Versions of a program before the one that an attempt ended with.

use serde::{Deserialize, Serialize};

use super::agent_tool::AgentTool;
use super::failure::failure_reason;
use crate::artifact::ArtifactHash;
use crate::attempt_outcome::AttemptOutcome;
use crate::measurement::Measurement;
use crate::profile::Profile;
use crate::reports::{BuildReport, CheckReport};
use crate::verdict::Finding;

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
