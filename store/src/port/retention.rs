//! Deleting what is no longer needed.

use async_trait::async_trait;
use nightshift_engine::store::{Pruned, RetentionStore, StoreError};
use nightshift_protocol::id::CampaignId;
use nightshift_protocol::time::TimestampMs;

use crate::catalog::prune;
use crate::store::SqlStore;

#[async_trait]
impl RetentionStore for SqlStore {
    async fn campaigns_to_prune(&self, before: TimestampMs, limit: u32) -> Result<Vec<CampaignId>, StoreError> {
        read!(self, |connection| prune::finished(connection, before, limit))
    }

    async fn prune_campaign(&self, id: &CampaignId, limit: u32) -> Result<Pruned, StoreError> {
        let id = id.clone();
        transaction!(self, |tx, id, limit| prune::campaign(tx, id, *limit))
    }

    async fn prune_artifacts(&self, before: TimestampMs, limit: u32) -> Result<Pruned, StoreError> {
        let mut pruned = transaction!(self, |tx, before, limit| prune::artifacts(tx, *before, *limit))?;
        match self.delete_objects(before, limit).await {
            Ok(deleted) => pruned.more |= deleted >= u64::from(limit.max(1)),
            // The rows are deleted, and the next round deletes the objects.
            Err(error) => tracing::warn!(error = %error, "objects of deleted artifacts could not be deleted yet"),
        }
        Ok(pruned)
    }

    async fn collect_objects(&self, before: TimestampMs, limit: u32) -> Result<u64, StoreError> {
        self.delete_objects(before, limit).await
    }
}
