//! Campaigns: created, listed, shown, and given other limits.

use serde::{Deserialize, Serialize};

use super::handover::HandoverDetail;
use super::run::{RunCounts, RunSummary};
use crate::budget::{BudgetCaps, BudgetLine};
use crate::campaign::CampaignSpec;
use crate::id::{CampaignId, RunId};
use crate::schedule::Schedule;
use crate::target::Target;
use crate::time::TimestampMs;

/// `POST /campaigns`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreateCampaign {
    /// What is asked for.
    pub spec: CampaignSpec,
}

/// Answer to `POST /campaigns`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CampaignCreated {
    /// The campaign.
    pub campaign: CampaignId,
    /// Its runs, in the order of the tasks.
    pub runs: Vec<RunId>,
    /// Whether the same idempotency key had created it before.
    pub existed: bool,
}

/// A campaign in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CampaignSummary {
    /// Id.
    pub id: CampaignId,
    /// Name for people.
    pub name: String,
    /// `scripted`, or `endpoint/model`.
    pub model: String,
    /// Whether replies were written beforehand.
    pub scripted: bool,
    /// When it was created.
    pub created_at: TimestampMs,
    /// Runs by status.
    pub runs: RunCounts,
    /// When it may work; always without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Schedule>,
    /// Head start of its steps.
    #[serde(default)]
    pub priority: i32,
    /// Share beside other campaigns.
    #[serde(default)]
    pub weight: u32,
    /// When the last run ended; none while one goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<TimestampMs>,
    /// What it has used up of money, in US dollars: model calls whose price is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// Attempts with a model call whose price is not known.
    #[serde(default)]
    pub unpriced_attempts: u64,
    /// The speedup of its fastest right program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_speedup: Option<f64>,
    /// The highest speedup of the best right program of a run over the fastest baseline of its task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_speedup_over_fastest: Option<f64>,
    /// Geometric mean of the speedups of the best right programs of its runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub geometric_mean: Option<f64>,
    /// The same over the fastest baselines of their tasks, where those are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub geometric_mean_over_fastest: Option<f64>,
    /// How many runs have a best right program: those that `geometric_mean` is over.
    #[serde(default)]
    pub solved: u64,
    /// How many of these have a known fastest baseline: those that `geometric_mean_over_fastest` is over.
    #[serde(default)]
    pub solved_over_fastest: u64,
    /// The hand-over that has it now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handover: Option<HandoverDetail>,
    /// Hardware targets of its runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<Target>,
}

/// A campaign with its runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CampaignDetail {
    /// The campaign.
    pub summary: CampaignSummary,
    /// What was asked for.
    pub spec: CampaignSpec,
    /// Its runs.
    pub runs: Vec<RunSummary>,
    /// Where its budget stands: one line per resource.
    #[serde(default)]
    pub budget: Vec<BudgetLine>,
}

/// `POST /campaigns/{id}/limits`: changes what is given, leaves the rest.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SetLimits {
    /// All caps, those that stay too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetCaps>,
    /// A new schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Schedule>,
    /// Whether the schedule is taken away.
    #[serde(default)]
    pub no_schedule: bool,
    /// A new weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
}
