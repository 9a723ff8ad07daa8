//! Campaigns: records for creating, reading, archiving and deleting them.

use async_trait::async_trait;
use nightshift_protocol::api::RunCounts;
use nightshift_protocol::budget::BudgetCaps;
use nightshift_protocol::id::{CampaignId, RunId, ServerId};
use nightshift_protocol::schedule::Schedule;
use nightshift_protocol::time::TimestampMs;
use serde_json::Value;

use super::{PageRequest, StoreError};

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

/// Campaigns: creating, reading, and changing their settings.
#[async_trait]
pub trait CampaignStore: Send + Sync {
    /// Creates a campaign with its runs, or finds the one that was created with the same idempotency key.
    async fn create_campaign(&self, new: NewCampaign) -> Result<CreatedCampaign, StoreError>;

    /// Lists campaigns, newest first.
    async fn list_campaigns(&self, page: PageRequest) -> Result<Vec<CampaignRecord>, StoreError>;

    /// Loads one campaign.
    async fn load_campaign(&self, id: &CampaignId) -> Result<CampaignRecord, StoreError>;

    /// Changes when a campaign may work. Steps that are ready or wait for a window are admitted again.
    async fn set_schedule(
        &self,
        campaign: &CampaignId,
        schedule: Option<Schedule>,
        at: TimestampMs,
    ) -> Result<(), StoreError>;

    /// Changes the campaign's share relative to other campaigns.
    async fn set_weight(&self, campaign: &CampaignId, weight: u32, at: TimestampMs) -> Result<(), StoreError>;

    /// Finds campaigns and runs whose id or its digits begin with the text, or whose id ends with it. Returns at most
    /// `limit` of each.
    async fn find_ids(&self, text: &str, limit: u32) -> Result<(Vec<CampaignId>, Vec<RunId>), StoreError>;
}
