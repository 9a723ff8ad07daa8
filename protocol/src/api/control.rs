//! What a person does to runs and campaigns: one by one, in bulk, and when they are long over.

use serde::{Deserialize, Serialize};

use crate::id::{CampaignId, RunId};
use crate::run::RunStatus;
use crate::signal::Signal;
use crate::time::TimestampMs;

/// What a person can do to a run or a campaign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ControlAction {
    /// Lease nothing new.
    Pause,
    /// Lease again.
    Resume,
    /// End it.
    Cancel,
}

/// `POST /runs/{id}/control`, `POST /campaigns/{id}/control`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Control {
    /// What to do.
    pub action: ControlAction,
}

/// `POST /runs/{id}/priority`, `POST /campaigns/{id}/priority`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SetPriority {
    /// From [`crate::campaign::MIN_PRIORITY`] to [`crate::campaign::MAX_PRIORITY`].
    pub priority: i32,
}

/// Which runs a bulk call is about: those that fit everything that is given. Nothing given fits every unfinished run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RunFilter {
    /// Of this campaign.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub campaign: Option<CampaignId>,
    /// Of this status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<RunStatus>,
    /// Of this task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Created before this moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_before: Option<TimestampMs>,
}

/// What a bulk call does to each run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum BulkAction {
    /// Lease nothing new.
    Pause,
    /// Lease again.
    Resume,
    /// End them.
    Cancel,
    /// Begin again from failed steps.
    Retry,
    /// Change the head start.
    Prioritize {
        /// See [`SetPriority`].
        priority: i32,
    },
    /// Tell them something.
    Signal {
        /// What.
        signal: Signal,
    },
}

/// `POST /runs/bulk`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Bulk {
    /// Which.
    pub filter: RunFilter,
    /// What.
    pub action: BulkAction,
    /// Only say which runs it would be.
    #[serde(default)]
    pub dry_run: bool,
}

/// Answer to a bulk call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BulkDone {
    /// Runs that it was done to, with their status now.
    pub done: Vec<(RunId, RunStatus)>,
    /// Runs that refused, with code and message.
    pub refused: Vec<(RunId, String, String)>,
    /// Whether there are more that fit: call again.
    pub more: bool,
}

/// `POST /prune` (admin): deletes finished campaigns whose last run ended long ago, and artifacts that nothing names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Prune {
    /// How long ago, in milliseconds.
    pub older_than_ms: u64,
    /// Only say what it would be.
    #[serde(default)]
    pub dry_run: bool,
}

/// Answer to `POST /prune`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PruneDone {
    /// Campaigns that were deleted, or would be.
    pub campaigns: Vec<CampaignId>,
    /// Rows that were deleted.
    pub rows: u64,
    /// Artifacts that were deleted.
    pub artifacts: u64,
    /// Whether more is to be deleted: call again.
    pub more: bool,
}

/// Answer to a control call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Controlled {
    /// The runs and where they stand now. Runs that were already over are left out.
    pub runs: Vec<(RunId, RunStatus)>,
}

/// `POST /runs/{id}/retry`: begin again from failed steps.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Retry {
    /// Only this step; all failed ones without it.
    pub step_key: Option<String>,
}
