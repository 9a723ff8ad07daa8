//! The port to the index of attempts, one line per method.

use std::ops::RangeInclusive;

use async_trait::async_trait;
use nightshift_engine::store::{StepRecord, StoreError};
use nightshift_protocol::api::{
    AttemptFilter, AttemptPage, AttemptPoints, AttemptQuery, AttemptRow, CampaignResults, ModelBoard, PointsQuery,
    SearchPage, SearchQuery, TaskBoard,
};
use nightshift_protocol::id::{CampaignId, RunId};

use crate::attempt::columns::Key;
use crate::attempt::document;
use crate::attempt::tagged::Tagged;
use crate::attempt::{
    AttemptIndex, CampaignBest, DocumentKey, IndexedRun, RunChanges, boards, list, points, results, rows, sums, write,
};
use crate::catalog::{run, step};
use crate::search::find;
use crate::store::SqlStore;

#[async_trait]
impl AttemptIndex for SqlStore {
    async fn runs_behind(&self, form: u32, from: i64, limit: u32) -> Result<Vec<RunId>, StoreError> {
        read!(self, |connection| write::behind(connection, form, from, limit))
    }

    async fn oldest_unfinished_run(&self) -> Result<i64, StoreError> {
        read!(self, |connection| write::oldest_unfinished(connection))
    }

    async fn changes_of(&self, run: &RunId, revision: u64) -> Result<RunChanges, StoreError> {
        let (run, state) = read!(self, |connection| run::load_changed(connection, run, revision))?;
        Ok(RunChanges { run, state })
    }

    async fn steps_in(&self, run: &RunId, folder: &str) -> Result<Vec<StepRecord>, StoreError> {
        read!(self, |connection| step::list_heads_in(connection, run, folder))
    }

    async fn documents_of(&self, run: &RunId, attempt: Option<u32>) -> Result<Vec<DocumentKey>, StoreError> {
        read!(self, |connection| document::keys(connection, run, attempt))
    }

    async fn put_index(&self, runs: Vec<IndexedRun>) -> Result<(), StoreError> {
        transaction!(self, |tx, runs| write::put(tx, runs))
    }

    async fn list_attempts(&self, query: &AttemptQuery) -> Result<AttemptPage, StoreError> {
        let asked = query.clone();
        let tagged = read!(self, |connection| Tagged::of(connection, &query.filter))?;
        let found = self.look(move |columns| list::find(columns, &asked, tagged)).await?;
        let found = found.map_err(|failure| self.store_error(failure))?;
        let items = read!(self, |connection| rows::by_keys(connection, &found.keys))?;
        Ok(AttemptPage { items, next: found.next, total: found.total, facets: found.facets })
    }

    async fn attempt_points(&self, query: &PointsQuery) -> Result<AttemptPoints, StoreError> {
        let tagged = read!(self, |connection| Tagged::of(connection, &query.filter))?;
        let query = query.clone();
        self.look(move |columns| points::pack(columns, &query, tagged)).await
    }

    async fn attempt_at(&self, run_key: u32, number: u32) -> Result<AttemptRow, StoreError> {
        read!(self, |connection| rows::at(connection, run_key, number))
    }

    async fn task_boards(&self, filter: &AttemptFilter) -> Result<Vec<TaskBoard>, StoreError> {
        let tagged = read!(self, |connection| Tagged::of(connection, filter))?;
        let filter = filter.clone();
        let found = self.look(move |columns| boards::tasks(columns, &filter, tagged)).await?;
        let found = found.map_err(|failure| self.store_error(failure))?;
        let keys: Vec<Key> = found.iter().filter_map(|task| task.best.as_ref()).map(|(key, _)| *key).collect();
        let best = read!(self, |connection| rows::by_keys(connection, &keys))?;
        Ok(boards::with_rows(found, best))
    }

    async fn model_boards(&self, filter: &AttemptFilter) -> Result<Vec<ModelBoard>, StoreError> {
        let tagged = read!(self, |connection| Tagged::of(connection, filter))?;
        let filter = filter.clone();
        self.look(move |columns| boards::models(columns, &filter, tagged)).await
    }

    async fn campaign_results(
        &self,
        campaign: &CampaignId,
        runs: u64,
        places: RangeInclusive<u64>,
    ) -> Result<CampaignResults, StoreError> {
        let campaign = campaign.clone();
        let found = self.look(move |columns| results::of_campaign(columns, &campaign, runs, &places)).await?;
        found.map_err(|failure| self.store_error(failure))
    }

    async fn campaign_bests(&self, campaigns: &[CampaignId]) -> Result<Vec<CampaignBest>, StoreError> {
        let campaigns = campaigns.to_vec();
        self.look(move |columns| sums::of_campaigns(columns, &campaigns)).await
    }

    async fn search(&self, query: &SearchQuery) -> Result<SearchPage, StoreError> {
        read!(self, |connection| find::page(connection, query))
    }
}
