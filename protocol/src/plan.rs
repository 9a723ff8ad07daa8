//! Plans: what the Planner writes, in versions.

use serde::{Deserialize, Serialize};

use crate::model_call::ModelCallSummary;

/// A tensor at the border of a subtask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TensorContract {
    /// Name.
    pub name: String,
    /// Element type, for example `f32`.
    pub dtype: String,
    /// Extents by name or number, outermost first.
    pub shape: Vec<String>,
    /// Layout, for example `row_major`.
    pub layout: String,
}

/// What a subtask takes and gives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Contract {
    /// Tensors in.
    pub inputs: Vec<TensorContract>,
    /// Tensors out.
    pub outputs: Vec<TensorContract>,
}

/// One item of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Subtask {
    /// One line.
    pub title: String,
    /// Operators of the task that it covers, by name.
    pub scope: Vec<String>,
    /// What is fused with what, and where fusion ends.
    pub fusion_boundary: String,
    /// Its border.
    #[serde(default)]
    pub contract: Contract,
    /// Methods to try, best first.
    #[serde(default)]
    pub methods: Vec<String>,
    /// `memory`, `compute`, `latency`, `launch` or `host`.
    #[serde(default)]
    pub expected_bottleneck: String,
    /// What may go wrong.
    #[serde(default)]
    pub risk: String,
    /// Speedup of the whole program at which this subtask counts as done; none leaves it to the strategy.
    #[serde(default)]
    pub target_speedup: Option<f64>,
    /// Share of the reference's time that its scope takes, 0 to 1, by the profile or as the Planner estimates it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_share: Option<f64>,
    /// How many times faster its scope is expected to become.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_gain: Option<f64>,
    /// Computed, never read from a reply: what the subtask can give and what it rests on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<SubtaskLimits>,
}

/// What a subtask can give, by Amdahl's law and by the roofline. Speedups are those of the whole program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SubtaskLimits {
    /// Where the time share comes from: `profile`, or `estimate` of the Planner.
    pub share_from: String,
    /// The speedup when the scope becomes as much faster as expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_speedup: Option<f64>,
    /// The speedup when the scope takes no time at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amdahl_speedup: Option<f64>,
    /// The speedup of a program that reaches the machine's peaks: no target lies above it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roofline_speedup: Option<f64>,
    /// Which roof that is: `memory` or `compute`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub roofline_by: String,
    /// The target that the plan had, where the roofline held it down: a script was written for another machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted_target: Option<f64>,
}

/// A plan, as the Planner writes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Plan {
    /// In a few sentences.
    pub summary: String,
    /// In order of expected gain.
    pub subtasks: Vec<Subtask>,
    /// What may become wrong.
    #[serde(default)]
    pub correctness_risks: Vec<String>,
}

/// A version of the plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PlanVersion {
    /// Version, from 1.
    pub version: u32,
    /// Why it was made anew; none for the first.
    pub reason: Option<String>,
    /// The plan.
    pub plan: Plan,
    /// Model calls made for it.
    pub calls: Vec<ModelCallSummary>,
}
