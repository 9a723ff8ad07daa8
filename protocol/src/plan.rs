//! Plans: what the Planner writes, in versions.

use serde::{Deserialize, Serialize};

use crate::model_call::ModelCallSummary;

/// A tensor at the border of a subtask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
pub struct Contract {
    /// Tensors in.
    pub inputs: Vec<TensorContract>,
    /// Tensors out.
    pub outputs: Vec<TensorContract>,
}

/// One item of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
}

/// A plan, as the Planner writes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
