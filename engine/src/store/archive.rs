//! Rows of a campaign during an export.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::id::CampaignId;
use nightshift_protocol::time::TimestampMs;
use serde_json::Value;

use super::{CreatedCampaign, StoreError};

/// Receives the rows of a campaign in chunks: `{ "table": …, … }`, in an order in which they can be stored.
#[async_trait]
pub trait RowSink: Send + Sync {
    /// Receives the next rows. The store waits for it within a transaction, so it should only write them down.
    async fn take(&self, rows: Vec<Value>) -> Result<(), StoreError>;
}

/// Collects all rows in memory, for campaigns that fit there.
#[derive(Debug, Default)]
pub struct CollectedRows(Mutex<Vec<Value>>);

impl CollectedRows {
    /// Returns the archive of the received rows.
    pub fn archive(&self) -> Result<CampaignArchive, StoreError> {
        let rows = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let mut artifacts = ArtifactNames::default();
        for row in &rows {
            artifacts.note(row);
        }
        Ok(CampaignArchive { rows, artifacts: artifacts.into_hashes()? })
    }
}

#[async_trait]
impl RowSink for CollectedRows {
    async fn take(&self, mut rows: Vec<Value>) -> Result<(), StoreError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).append(&mut rows);
        Ok(())
    }
}

/// Collects the artifacts that rows reference.
#[derive(Debug, Default)]
pub struct ArtifactNames(BTreeSet<String>);

impl ArtifactNames {
    /// Adds the artifact of a row, if it references one.
    pub fn note(&mut self, row: &Value) {
        if row["table"] == "artifact_use"
            && let Some(hash) = row["hash"].as_str()
        {
            self.0.insert(hash.to_owned());
        }
    }

    /// Returns the hashes, each once, sorted.
    pub fn into_hashes(self) -> Result<Vec<ArtifactHash>, StoreError> {
        let unreadable = |error| StoreError::Corrupt(format!("the hash of an artifact cannot be read: {error}"));
        self.0.into_iter().map(|hash| hash.parse().map_err(unreadable)).collect()
    }
}

/// A campaign with all of its data except the bytes of its artifacts.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct CampaignArchive {
    /// Rows in an order in which they can be stored: `{ "table": …, … }`.
    pub rows: Vec<Value>,
    /// Artifacts that the rows reference.
    pub artifacts: Vec<ArtifactHash>,
}

/// Whole campaigns, to take them away and to bring them in.
#[async_trait]
pub trait ArchiveStore: Send + Sync {
    /// Writes all rows of a campaign to `sink`, as a consistent snapshot.
    async fn export_rows(&self, id: &CampaignId, sink: Arc<dyn RowSink>) -> Result<(), StoreError>;

    /// Returns a whole campaign in memory.
    async fn export_campaign(&self, id: &CampaignId) -> Result<CampaignArchive, StoreError> {
        let rows = Arc::new(CollectedRows::default());
        self.export_rows(id, rows.clone()).await?;
        rows.archive()
    }

    /// Stores an archive whose artifacts are stored already. Unfinished runs are imported as paused.
    ///
    /// An identical campaign of the same id is left unchanged (`existed`). A different one is refused.
    async fn import_campaign(&self, archive: CampaignArchive, at: TimestampMs) -> Result<CreatedCampaign, StoreError>;
}
