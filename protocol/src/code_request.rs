//! What the Coder is asked for.

use serde::{Deserialize, Serialize};

use crate::attempt::{Attempt, SessionRequest, Stage};
use crate::attempt_memory::{AttemptMemory, Candidate, Modification, NearAttempt};
use crate::plan::PlanVersion;

/// Why the Coder is called again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CodeRequest {
    /// Why it writes.
    pub stage: Stage,
    /// The plan in force.
    pub plan: PlanVersion,
    /// Subtask of the plan, from 1.
    pub subtask: u32,
    /// The attempt to start from.
    pub parent: Option<Box<Attempt>>,
    /// The one change that is asked for; none for the first program of a subtask and where nothing was advised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modification: Option<Modification>,
    /// The method of the subtask that is to be carried out, from 1; none where a modification is asked for, where candidates of
    /// a round share the methods, and where every method was tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<u32>,
    /// The newest program, where it is right, nearly as fast as the one to start from, and another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near: Option<NearAttempt>,
    /// Which candidate of its round it is; none when attempts follow one another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate: Option<Candidate>,
    /// Which fix turn of its attempt it is, from 1; 0 for the first program. In a fix turn, the attempt to start from is the
    /// attempt itself, with the version that failed.
    #[serde(default, skip_serializing_if = "is_first_program")]
    pub fix_turn: u32,
    /// The turn of an agent session that it is; none where the Coder has no tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Box<SessionRequest>>,
    /// Earlier attempts in one line each, oldest first, bounded.
    pub history: Vec<String>,
    /// What they have shown, bounded.
    #[serde(default, skip_serializing_if = "AttemptMemory::is_empty")]
    pub memory: AttemptMemory,
    /// What people advised, newest first, bounded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hints: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_first_program(fix_turn: &u32) -> bool {
    *fix_turn == 0
}
