//! Campaigns: to be created, as stored, as an archive, and deleted.

use nightshift_protocol::api::RunCounts;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::budget::BudgetCaps;
use nightshift_protocol::id::{CampaignId, RunId, ServerId};
use nightshift_protocol::schedule::Schedule;
use nightshift_protocol::time::TimestampMs;
use serde_json::Value;

/// A campaign to be created with its runs.
#[derive(Debug, Clone)]
pub struct NewCampaign {
    /// Its id.
    pub id: CampaignId,
    /// Name for people.
    pub name: String,
    /// The request, as JSON.
    pub spec: Value,
    /// When.
    pub at: TimestampMs,
    /// The client's key, with the digest of its request.
    pub idempotency: Option<(String, String)>,
    /// What it may use up.
    pub budget: BudgetCaps,
    /// When it may work.
    pub schedule: Option<Schedule>,
    /// Head start of its steps.
    pub priority: i32,
    /// Share beside other campaigns, from 1.
    pub weight: u32,
    /// The server that owns its runs from the start; none for nobody.
    pub owner: Option<ServerId>,
    /// Its runs: each begins with `RunCreated`.
    pub runs: Vec<NewRun>,
}

/// A run to be created.
#[derive(Debug, Clone)]
pub struct NewRun {
    /// Its id.
    pub id: RunId,
    /// The workflow's input, for `RunCreated`.
    pub input: Value,
    /// What lists show before the first decision.
    pub digest: Value,
}

/// What creating a campaign gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatedCampaign {
    /// The campaign: the new one, or the one that the key created before.
    pub id: CampaignId,
    /// Its runs, in order.
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
    /// When it may work.
    pub schedule: Option<Schedule>,
    /// Head start of its steps.
    pub priority: i32,
    /// Share beside other campaigns.
    pub weight: u32,
    /// Its runs by status.
    pub runs: RunCounts,
}

/// A campaign with everything that belongs to it but the bytes of its artifacts.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct CampaignArchive {
    /// One row per entry, in an order in which they can be stored: `{ "table": …, … }`.
    pub rows: Vec<Value>,
    /// Artifacts that the rows name.
    pub artifacts: Vec<ArtifactHash>,
}

/// What was deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pruned {
    /// Campaigns that are gone.
    pub campaigns: u64,
    /// Rows that are gone.
    pub rows: u64,
    /// Artifacts that are gone.
    pub artifacts: u64,
    /// Whether more is to be deleted.
    pub more: bool,
}
