//! Summaries for observers.

use async_trait::async_trait;
use nightshift_engine::store::{
    CampaignMark, CampaignRecord, CampaignSum, ReadingRecord, RunMark, RunStamp, StoreError, WatchStore, WorkerMark,
};
use nightshift_protocol::id::{CampaignId, RunId};

use crate::catalog::{campaign, reading, watch, worker};
use crate::store::SqlStore;

#[async_trait]
impl WatchStore for SqlStore {
    async fn run_marks(&self, runs: &[RunId]) -> Result<Vec<RunMark>, StoreError> {
        read!(self, |connection| watch::marks(connection, runs))
    }

    async fn run_stamps(&self, limit: u32) -> Result<Vec<RunStamp>, StoreError> {
        read!(self, |connection| watch::stamps(connection, limit))
    }

    async fn campaign_marks(&self) -> Result<Vec<CampaignMark>, StoreError> {
        read!(self, |connection| watch::campaigns(connection))
    }

    async fn campaigns_of(&self, campaigns: &[CampaignId]) -> Result<Vec<CampaignRecord>, StoreError> {
        read!(self, |connection| campaign::of_ids(connection, campaigns))
    }

    async fn campaign_sums(&self, campaigns: &[CampaignId]) -> Result<Vec<CampaignSum>, StoreError> {
        read!(self, |connection| watch::sums(connection, campaigns))
    }

    async fn worker_marks(&self, limit: u32) -> Result<Vec<WorkerMark>, StoreError> {
        read!(self, |connection| worker::marks(connection, limit))
    }

    async fn put_readings(&self, readings: Vec<ReadingRecord>) -> Result<(), StoreError> {
        if readings.is_empty() {
            return Ok(());
        }
        transaction!(self, |tx, readings| reading::put(tx, readings))
    }

    async fn list_readings(&self) -> Result<Vec<ReadingRecord>, StoreError> {
        read!(self, |connection| reading::list(connection))
    }
}
