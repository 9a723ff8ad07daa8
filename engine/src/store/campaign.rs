//! Campaigns: records for creating, reading, archiving and deleting them.

use nightshift_protocol::api::RunCounts;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::budget::BudgetCaps;
use nightshift_protocol::id::{CampaignId, RunId, ServerId};
use nightshift_protocol::schedule::Schedule;
use nightshift_protocol::time::TimestampMs;
use serde_json::Value;

/// A campaign to create with its runs.
#[derive(Debug, Clone)]
pub struct NewCampaign {
    /// Its id.
    pub id: CampaignId,
    /// Name for people.
    pub name: String,
    /// The request, as JSON.
    pub spec: Value,
    /// Creation time.
    pub at: TimestampMs,
    /// The client's idempotency key with the digest of its request.
    pub idempotency: Option<(String, String)>,
    /// Caps of its budget.
    pub budget: BudgetCaps,
    /// When its steps may run.
    pub schedule: Option<Schedule>,
    /// Priority of its steps.
    pub priority: i32,
    /// Share relative to other campaigns, from 1.
    pub weight: u32,
    /// The server that owns its runs from the start, if any.
    pub owner: Option<ServerId>,
    /// Its runs. The log of each begins with `RunCreated`.
    pub runs: Vec<NewRun>,
}

/// A run to create.
#[derive(Debug, Clone)]
pub struct NewRun {
    /// Its id.
    pub id: RunId,
    /// The workflow's input, for `RunCreated`.
    pub input: Value,
    /// What lists show before the first decision.
    pub digest: Value,
}

/// Outcome of creating a campaign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatedCampaign {
    /// The campaign: the new one, or the one that was created with the same key.
    pub id: CampaignId,
    /// Its runs, in the order of the tasks.
    pub runs: Vec<RunId>,
    /// Whether it existed before.
    pub existed: bool,
}

/// A campaign as stored.
#[derive(Debug, Clone, PartialEq)]
pub struct CampaignRecord {
    /// Id.
    pub id: CampaignId,
    /// Name for people.
    pub name: String,
    /// The request, as JSON.
    pub spec: Value,
    /// When it was created.
    pub created_at: TimestampMs,
    /// When its steps may run.
    pub schedule: Option<Schedule>,
    /// Priority of its steps.
    pub priority: i32,
    /// Share relative to other campaigns.
    pub weight: u32,
    /// Its runs by status.
    pub runs: RunCounts,
}

/// A campaign with all of its data except the bytes of its artifacts.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct CampaignArchive {
    /// Rows in an order in which they can be stored: `{ "table": …, … }`.
    pub rows: Vec<Value>,
    /// Artifacts that the rows reference.
    pub artifacts: Vec<ArtifactHash>,
}

/// Outcome of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pruned {
    /// Number of deleted campaigns.
    pub campaigns: u64,
    /// Number of deleted rows.
    pub rows: u64,
    /// Number of deleted artifacts.
    pub artifacts: u64,
    /// Whether more rows are left to delete.
    pub more: bool,
}
