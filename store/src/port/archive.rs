//! Whole campaigns.

use std::sync::Arc;

use async_trait::async_trait;
use nightshift_engine::store::{ArchiveStore, CampaignArchive, CreatedCampaign, RowSink, StoreError};
use nightshift_protocol::id::CampaignId;
use nightshift_protocol::time::TimestampMs;

use crate::catalog::archive;
use crate::store::SqlStore;

#[async_trait]
impl ArchiveStore for SqlStore {
    async fn export_rows(&self, id: &CampaignId, sink: Arc<dyn RowSink>) -> Result<(), StoreError> {
        let id = id.clone();
        self.read_one_moment(move |connection| Box::pin(async move { archive::export(connection, &id, &*sink).await }))
            .await
    }

    async fn import_campaign(&self, archive: CampaignArchive, at: TimestampMs) -> Result<CreatedCampaign, StoreError> {
        transaction!(self, |tx, archive, at| archive::import(tx, archive, *at))
    }
}
