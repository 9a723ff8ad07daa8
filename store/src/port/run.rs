//! Runs.

use async_trait::async_trait;
use nightshift_engine::event::EventRecord;
use nightshift_engine::store::{PageRequest, RunRecord, RunStore, StepRecord, StoreError};
use nightshift_protocol::id::{CampaignId, RunId};
use nightshift_protocol::run::RunStatus;

use crate::catalog::{event, run, step};
use crate::store::{Side, SqlStore};

#[async_trait]
impl RunStore for SqlStore {
    async fn list_runs(
        &self,
        campaign: Option<&CampaignId>,
        status: Option<RunStatus>,
        page: PageRequest,
    ) -> Result<Vec<RunRecord>, StoreError> {
        read!(self, |connection| run::list(connection, campaign, status, &page))
    }

    async fn load_run(&self, id: &RunId) -> Result<RunRecord, StoreError> {
        match &self.side {
            Side::Sqlite { .. } => read!(self, |connection| run::load(connection, id)),
            Side::Postgres { runs, .. } => runs.load(id).await,
        }
    }

    async fn run_status(&self, id: &RunId) -> Result<RunStatus, StoreError> {
        read!(self, |connection| run::status(connection, id))
    }

    async fn events_after(&self, run: &RunId, after: u64, limit: u32) -> Result<Vec<EventRecord>, StoreError> {
        read!(self, |connection| event::after(connection, run, after, limit))
    }

    async fn list_step_heads(&self, run: &RunId) -> Result<Vec<StepRecord>, StoreError> {
        read!(self, |connection| step::list_heads(connection, run))
    }
}
