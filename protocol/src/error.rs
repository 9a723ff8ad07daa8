//! The one shape of an API error, and the stable codes.

use serde::{Deserialize, Serialize};

/// Media type of an error answer (RFC 9457).
pub const PROBLEM_CONTENT_TYPE: &str = "application/problem+json";
/// Prefix of the problem types; the code follows.
const PROBLEM_TYPE_PREFIX: &str = "urn:nightshift:error:";

/// An error answer of the API: problem details (RFC 9457), with the error of [`ApiErrorBody`] as a further member.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Problem {
    /// Identifies the problem: `urn:nightshift:error:` and the code.
    #[serde(rename = "type")]
    pub problem_type: String,
    /// The code in words; the same for every error of this code.
    pub title: String,
    /// The HTTP status of the answer.
    pub status: u16,
    /// One sentence for a person: what is wrong and what to do.
    pub detail: String,
    /// The stable code, documented in `docs/reference/errors.md`; for example `run.not_found`.
    pub code: String,
    /// The error as [`ApiErrorBody`] has it, with its details. Clients of earlier releases read only this member.
    pub error: ApiError,
}

impl Problem {
    /// Returns the problem details of an error that is answered with this HTTP status.
    #[must_use]
    pub fn new(status: u16, error: ApiError) -> Self {
        Self {
            problem_type: format!("{PROBLEM_TYPE_PREFIX}{}", error.code),
            title: error.code.replace(['.', '_'], " "),
            status,
            detail: error.message.clone(),
            code: error.code.clone(),
            error,
        }
    }
}

/// An error of the API or of a command, as `{"error": {...}}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ApiErrorBody {
    /// The error itself.
    pub error: ApiError,
}

/// An error of the API or of a command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[error("{message}")]
pub struct ApiError {
    /// Stable, documented in `docs/reference/errors.md`; for example `run.not_found`.
    pub code: String,
    /// One sentence for a person: what is wrong and what to do.
    pub message: String,
    /// Facts for programs.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub details: serde_json::Value,
}

impl ApiError {
    /// An error without details.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), details: serde_json::Value::Null }
    }
}

/// Exit codes of the `nightshift` binary, documented in `docs/reference/cli.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitCode {
    /// Everything that was asked for happened.
    Ok = 0,
    /// An error of ours, or one without a class of its own.
    Internal = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// Something that was named does not exist, or the prefix fits several.
    NotFound = 3,
    /// A task, a file or another input is not valid.
    InvalidInput = 4,
    /// The store refuses: locked, read-only, full or corrupt.
    Store = 5,
    /// Something outside is missing or unreachable: compiler, model endpoint, server, port, sandbox.
    Environment = 6,
    /// The campaign ended, but at least one run failed or found no correct candidate.
    Incomplete = 7,
    /// `verify`: right, and not faster than what it was compared with.
    NotFaster = 10,
    /// `verify`: it does not build, does not come to its end, or its results are wrong.
    Wrong = 11,
    /// `verify`: refused by the screening, or a rule of the contract was broken.
    Rejected = 12,
    /// `verify`: nothing can be said about it, because the machine or the reference failed.
    NotJudged = 13,
    /// Ended by a signal, after everything was checkpointed.
    Interrupted = 130,
}

impl ExitCode {
    /// The exit code that belongs to an error code, by its first segment, and by the whole where that says more.
    #[must_use]
    pub fn for_error_code(code: &str) -> Self {
        let (area, rest) = code.split_once('.').unwrap_or((code, ""));
        match (area, rest) {
            (_, "not_found" | "ambiguous") => Self::NotFound,
            ("command", "interrupted") => Self::Interrupted,
            ("usage" | "config", _) => Self::Usage,
            ("store", _) => Self::Store,
            // With an expired token what is missing is a right, as with `auth.*`; other codes of tokens are about input.
            // A coding agent is a program outside of this one.
            ("agent", "not_started" | "no_turn")
            | ("token", "expired" | "revoked")
            | ("server" | "model" | "toolchain" | "sandbox" | "worker" | "gpu" | "auth" | "access", _) => {
                Self::Environment
            }
            (
                "task" | "request" | "answer" | "campaign" | "archive" | "handover" | "token" | "signal" | "note"
                | "tag" | "pin" | "view" | "share" | "webhook" | "results" | "attempt",
                _,
            )
            | ("run", "over") => Self::InvalidInput,
            _ => Self::Internal,
        }
    }
}
