//! Turns of an agent session: in each, the Coder names one tool, and the tool's result is what it reads next.

use serde::{Deserialize, Serialize};

use super::Attempt;
use super::agent_tool::AgentTool;
use super::derived_verdict::derived_verdict;
use super::earlier_version::EarlierVersion;
use crate::artifact::ArtifactHash;
use crate::tunable::Tunable;
use crate::verdict::Finding;

/// A turn of an agent session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AgentTurn {
    /// Number within the run, from 1.
    pub number: u32,
    /// What the Coder used; none while the turn is open, and where its reply could not be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<AgentTool>,
    /// What it wrote about it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// The attempt that is diagnosed or read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The turn whose program is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<u32>,
    /// The program that the tool is used on, or that was read: edits of a later turn start from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<ArtifactHash>,
    /// Why the reply could not be used, or why the tool gave no result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The reply; none where the rules submitted a program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<ArtifactHash>,
    /// The result as the Coder read it; none until the next turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<ArtifactHash>,
    /// Idempotency keys of the replies to this turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
}

impl AgentTurn {
    /// A turn that waits for its reply.
    #[must_use]
    pub fn open(number: u32) -> Self {
        Self {
            number,
            tool: None,
            note: String::new(),
            attempt: None,
            turn: None,
            source: None,
            problem: None,
            reply: None,
            result: None,
            keys: Vec::new(),
        }
    }
}

/// What a reply of an agent session asks for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TurnReply {
    /// The tool; none where the reply could not be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<AgentTool>,
    /// What the Coder wrote about it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// The attempt that is to be diagnosed or read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The turn whose program is to be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<u32>,
    /// The program that the tool is to be used on, or that is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<ArtifactHash>,
    /// Findings of the screening.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// The constants that the program declares as tunable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tunables: Vec<Tunable>,
    /// Why the reply could not be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The result of the turn before, as it was shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<ArtifactHash>,
    /// Idempotency keys of the replies to the turn, also of those that could not be used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
}

impl TurnReply {
    /// A reply that names a tool and nothing else.
    #[must_use]
    pub fn of(tool: AgentTool) -> Self {
        Self {
            tool: Some(tool),
            note: String::new(),
            attempt: None,
            turn: None,
            source: None,
            findings: Vec::new(),
            tunables: Vec::new(),
            problem: None,
            shown: None,
            keys: Vec::new(),
        }
    }
}

/// A turn of an agent session: what the Coder is asked with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionRequest {
    /// Number of the turn within the run, from 1.
    pub turn: u32,
    /// Whether it is the first one of its attempt.
    pub opens_attempt: bool,
    /// Every turn before, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub turns: Vec<AgentTurn>,
    /// What the last of them gave; none in the first turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Box<Attempt>>,
    /// The best attempt so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<Box<Attempt>>,
    /// Turns that are left, this one included.
    pub turns_left: u32,
    /// Submissions that are left.
    pub submissions_left: u32,
    /// The programs of the run: what can be read, and which attempts can be diagnosed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<SessionProgram>,
}

/// The rest of an agent session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionLeft {
    /// Turns, the open one included.
    pub turns: u32,
    /// Submissions.
    pub submissions: u32,
}

/// A program of a session that can be read again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionProgram {
    /// The attempt that was submitted with it; none for a version that was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The turn that brought it.
    pub turn: u32,
    /// The program.
    pub source: ArtifactHash,
}

impl EarlierVersion {
    /// Returns the version as if it were what the attempt is.
    #[must_use]
    pub fn as_attempt(&self, of: &Attempt) -> Attempt {
        let (build, check, measurement) = (self.build.as_ref(), self.check.as_ref(), self.measurement.as_ref());
        Attempt {
            parent: of.parent,
            outcome: self.outcome,
            verdict: derived_verdict(self.outcome, &self.findings, build, check, measurement),
            source: Some(self.source.clone()),
            findings: self.findings.clone(),
            build: self.build.clone(),
            check: self.check.clone(),
            measurement: self.measurement.clone(),
            profile: self.profile.clone(),
            ..Attempt::new(of.number, of.plan_version, of.subtask, of.stage)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_stored_by_its_name() {
        for tool in AgentTool::ALL {
            assert_eq!(AgentTool::parse(tool.as_str()), Some(tool));
            assert_eq!(serde_json::to_value(tool).ok(), Some(serde_json::json!(tool.as_str())));
        }
    }
}
