//! Deleting what is no longer needed.

use async_trait::async_trait;
use nightshift_protocol::id::CampaignId;
use nightshift_protocol::time::TimestampMs;

use super::StoreError;

/// Outcome of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pruned {
    /// Number of deleted campaigns.
    pub campaigns: u64,
    /// Number of deleted rows.
    pub rows: u64,
    /// Number of deleted artifacts.
    pub artifacts: u64,
    /// True if more rows are left to delete.
    pub more: bool,
}

/// Deleting what is no longer needed.
#[async_trait]
pub trait RetentionStore: Send + Sync {
    /// Returns finished campaigns whose last run ended before `before`, oldest first.
    async fn campaigns_to_prune(&self, before: TimestampMs, limit: u32) -> Result<Vec<CampaignId>, StoreError>;

    /// Deletes a chunk of a finished campaign, at most about `limit` rows. Refuses an unfinished campaign.
    async fn prune_campaign(&self, id: &CampaignId, limit: u32) -> Result<Pruned, StoreError>;

    /// Deletes unreferenced artifacts that were stored before `before`.
    async fn prune_artifacts(&self, before: TimestampMs, limit: u32) -> Result<Pruned, StoreError>;

    /// Deletes objects of the object store that no artifact has: of deleted artifacts, and of uploads that were begun
    /// before `before` and never ended. Returns their number, at most `limit`.
    async fn collect_objects(&self, before: TimestampMs, limit: u32) -> Result<u64, StoreError>;
}
