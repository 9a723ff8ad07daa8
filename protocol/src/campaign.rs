//! A campaign: a set of tasks, a strategy, a model and limits.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::artifact::ArtifactHash;
use crate::budget::BudgetCaps;
use crate::capability::{ComputeCapability, Label};
use crate::models::ModelPlan;
pub use crate::models::{DEFAULT_AGENT, EXTERNAL, ModelChoice};
use crate::schedule::Schedule;
use crate::signal::Gate;
use crate::task::{PrecisionPolicy, TaskGoal};

/// Schema version of [`CampaignSpec`].
pub const CAMPAIGN_SCHEMA: u32 = 1;

/// A task of a campaign.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CampaignTask {
    /// The task's name.
    pub name: String,
    /// The bundle.
    pub bundle: ArtifactHash,
    /// A JSON object from step key (slashes as dots, turn after the last dot) to reply, for the scripted provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scripted_replies: Option<ArtifactHash>,
}

/// What a client asks for when it creates a campaign.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CampaignSpec {
    /// Schema version: 1.
    pub schema: u32,
    /// Name for people.
    pub name: String,
    /// Where replies come from.
    pub model: ModelChoice,
    /// Models of single roles, and models that stand in.
    #[serde(default, skip_serializing_if = "ModelPlan::is_empty")]
    pub models: ModelPlan,
    /// What prompts are given beside the run's own history.
    #[serde(default, skip_serializing_if = "KnowledgeUse::is_default")]
    pub knowledge: KnowledgeUse,
    /// Whether the replies of its scripts come from an untrusted source: their programs are then run as those of a live
    /// model.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub untrusted_replies: bool,
    /// Strategy: `stitch`.
    pub strategy: String,
    /// Values that override the tasks' own.
    #[serde(default)]
    pub goal: TaskGoal,
    /// Whether code of a live model may run without a file and network sandbox.
    #[serde(default)]
    pub allow_unsandboxed: bool,
    /// What it may use up.
    #[serde(default)]
    pub budget: BudgetCaps,
    /// When it may work; always without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Schedule>,
    /// Which steps go first: from [`MIN_PRIORITY`] to [`MAX_PRIORITY`]. A low priority never starves a campaign.
    #[serde(default)]
    pub priority: i32,
    /// Share of machines and agents beside other campaigns, from 1 to [`MAX_WEIGHT`].
    #[serde(default = "default_weight")]
    pub weight: u32,
    /// Where its runs wait for a person.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub gates: BTreeSet<Gate>,
    /// Labels that a machine has to carry to do its work.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub labels: BTreeSet<Label>,
    /// The tasks.
    pub tasks: Vec<CampaignTask>,
}

/// What prompts are given beside the run's own history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct KnowledgeUse {
    /// Notes about how programs become faster.
    #[serde(default = "wanted")]
    pub notes: bool,
    /// What other runs learned. A campaign without it neither reads nor leaves lessons.
    #[serde(default = "wanted")]
    pub lessons: bool,
}

impl KnowledgeUse {
    /// Neither notes nor lessons.
    pub const NONE: Self = Self { notes: false, lessons: false };

    /// Whether it is what a campaign gets that does not speak of it.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for KnowledgeUse {
    fn default() -> Self {
        Self { notes: true, lessons: true }
    }
}

fn wanted() -> bool {
    true
}

/// Lowest priority.
pub const MIN_PRIORITY: i32 = -100;
/// Highest priority.
pub const MAX_PRIORITY: i32 = 100;
/// Largest weight.
pub const MAX_WEIGHT: u32 = 100;

fn default_weight() -> u32 {
    1
}

/// What a run is created with: the input of its workflow, stored in its first event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunInput {
    /// Schema version: 1.
    pub schema: u32,
    /// The task's name.
    pub task_name: String,
    /// The task's bundle.
    pub task: ArtifactHash,
    /// Hardware target.
    pub target: crate::task::Target,
    /// Where replies come from.
    pub model: ModelChoice,
    /// Models of single roles, and models that stand in.
    #[serde(default, skip_serializing_if = "ModelPlan::is_empty")]
    pub models: ModelPlan,
    /// What prompts are given beside the run's own history.
    #[serde(default, skip_serializing_if = "KnowledgeUse::is_default")]
    pub knowledge: KnowledgeUse,
    /// Replies for the scripted provider, see [`CampaignTask::scripted_replies`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scripted_replies: Option<ArtifactHash>,
    /// Strategy: `stitch`.
    pub strategy: String,
    /// The task's goal with the campaign's values over it.
    pub goal: TaskGoal,
    /// Version of the rules by which results become decisions: a run is decided to its end by those that it began with.
    #[serde(default = "first_rules", skip_serializing_if = "is_first_rules")]
    pub rules: u32,
    /// Refuse to run candidates without a file and network sandbox.
    pub sandbox_required: bool,
    /// Where the run waits for a person.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub gates: BTreeSet<Gate>,
    /// Labels that a machine has to carry to do its work.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub labels: BTreeSet<Label>,
    /// Least compute capability of the device, as the task asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_capability: Option<ComputeCapability>,
    /// Least memory of the device in bytes, where the task's tensors are large.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_memory_bytes: Option<u64>,
    /// Whether a machine needs `PyTorch` for the steps that run programs: the reference is a model of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub torch: bool,
    /// The task's precision policy; none of runs from before it was kept here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<PrecisionPolicy>,
}

/// The rules of runs that say nothing of them: they were begun before there were others.
const fn first_rules() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_first_rules(rules: &u32) -> bool {
    *rules == first_rules()
}
