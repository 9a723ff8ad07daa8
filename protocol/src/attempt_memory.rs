//! What a run remembers of its attempts: what was asked for and what it brought, which errors came again, what is best.

use serde::{Deserialize, Serialize};

use crate::artifact::ArtifactHash;
use crate::attempt_outcome::AttemptOutcome;
use crate::measurement::Interval;

/// The one change that the author of an attempt was asked for. A repair of the attempt carries it on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Modification {
    /// The change.
    pub text: String,
    /// The attempt that it is to be made on.
    pub from: u32,
    /// The attempt whose diagnosis advised it.
    pub diagnosed_on: u32,
    /// Expected speedup over that attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_gain: Option<f64>,
    /// An earlier attempt that made the same change and failed with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeats: Option<u32>,
    /// Why it is asked for again nevertheless.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
}

/// What a modification brought, beside what was expected of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Gain {
    /// The attempt that it is counted from.
    pub over: u32,
    /// Expected speedup over that attempt; none without an expectation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<f64>,
    /// Speedup over that attempt, from both published speedups over the baseline.
    pub measured: f64,
}

/// The Verifier's advice on an attempt that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Correction {
    /// Exactly one cause.
    pub critical_issue: String,
    /// Why it matters.
    pub why_it_matters: String,
    /// The smallest change that mends it.
    pub minimal_fix: String,
}

/// One of several attempts of a round, which are written at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Candidate {
    /// Its number within the round, from 1.
    pub number: u32,
    /// How many there are.
    pub of: u32,
    /// The first attempt of a group whose members are given the very same prompt; none where each is told which one it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
}

/// What earlier attempts have shown, bounded in size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AttemptMemory {
    /// The best correct attempt. Never left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<PinnedBest>,
    /// Changes that were tried, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tried: Vec<TriedModification>,
    /// Changes that were advised and never asked for, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub untried: Vec<UntriedModification>,
    /// Errors, those that came most often first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<ErrorCluster>,
    /// Entries that did not fit.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u32,
}

impl AttemptMemory {
    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.best.is_none()
            && self.tried.is_empty()
            && self.untried.is_empty()
            && self.errors.is_empty()
            && self.left_out == 0
    }
}

/// The best correct attempt.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PinnedBest {
    /// Its number.
    pub attempt: u32,
    /// Its published speedup.
    pub speedup: Interval,
}

/// A change that was tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TriedModification {
    /// The change.
    pub text: String,
    /// The last attempt that made it: repairs included.
    pub attempt: u32,
    /// What became of that attempt.
    pub outcome: AttemptOutcome,
    /// The gain that was expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<f64>,
    /// The gain that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<f64>,
    /// Whether it is known not to help: it ended in a failure, or brought less than counts as a gain and did not become the best
    /// program.
    pub failed: bool,
}

/// A change that a diagnosis advised and that no attempt was asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UntriedModification {
    /// The change.
    pub text: String,
    /// The attempt whose diagnosis advised it.
    pub attempt: u32,
    /// Expected speedup over that attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_gain: Option<f64>,
    /// A later attempt that may have made it: it was asked for a method of the plan, or for a change of its author's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub may_be_made_by: Option<u32>,
}

/// A correct program that is nearly as fast as the one to start from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NearAttempt {
    /// Its number.
    pub attempt: u32,
    /// Its program.
    pub source: ArtifactHash,
    /// Its published speedup.
    pub speedup: Interval,
}

/// Errors that are the same but for numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ErrorCluster {
    /// Short hash of kind and normalized message.
    pub fingerprint: String,
    /// How the attempts failed.
    pub outcome: AttemptOutcome,
    /// The message of the newest of them.
    pub message: String,
    /// The attempts, oldest first.
    pub attempts: Vec<u32>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
pub(crate) fn is_zero(count: &u32) -> bool {
    *count == 0
}
