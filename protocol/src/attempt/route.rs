//! The bound of a program, the Verifier's diagnosis, and the route that follows from it.

use serde::{Deserialize, Serialize};

use crate::bound::Bound;

/// Where a run goes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Route {
    /// Mend the last attempt.
    Repair,
    /// Make the best attempt faster.
    Optimize,
    /// Go on with the next subtask.
    NextSubtask,
    /// Plan anew.
    Replan,
    /// End the run.
    Stop,
}

impl Route {
    /// The stored and printed name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Repair => "repair",
            Self::Optimize => "optimize",
            Self::NextSubtask => "next_subtask",
            Self::Replan => "replan",
            Self::Stop => "stop",
        }
    }
}

/// Who decided a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum DecidedBy {
    /// A rule of the strategy.
    Rule,
    /// The Verifier's diagnosis.
    Model,
}

/// A routing decision with its reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RouteDecision {
    /// Where to.
    pub route: Route,
    /// Who decided.
    pub decided_by: DecidedBy,
    /// Why, in one sentence.
    pub reason: String,
    /// Stable name of the rule, for example `target_reached`; none when the Verifier's advice was followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// What the Verifier advised, also where a rule decided otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<Route>,
}

/// The Verifier's diagnosis of a correct attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Diagnosis {
    /// What limits the program.
    pub bound: Bound,
    /// Exactly one critical issue.
    pub critical_issue: String,
    /// Exactly one modification.
    pub modification: String,
    /// Metrics that support it, as `name = value`, each of which the evidence holds.
    #[serde(default)]
    pub metrics: Vec<String>,
    /// Metrics that a script named and that the evidence lacks. The diagnosis of a live model has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unsupported: Vec<String>,
    /// Expected speedup of the modification over this attempt, for example 1.4.
    #[serde(default)]
    pub expected_gain: Option<f64>,
    /// Where the Verifier would go.
    pub route: Route,
    /// Why a modification that failed before is worth another try; none when it is a new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeat_reason: Option<String>,
}
