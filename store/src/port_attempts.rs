//! The port to the index of attempts, one line per method.

use async_trait::async_trait;
use nightshift_engine::store::StoreError;
use nightshift_protocol::api::{
    AttemptFilter, AttemptPage, AttemptPoints, AttemptQuery, AttemptRow, CampaignResults, ModelBoard, PointsQuery,
    SearchPage, SearchQuery, TaskBoard,
};
use nightshift_protocol::id::{CampaignId, RunId};

use crate::attempt::columns::Key;
use crate::attempt::{AttemptIndex, DocumentKey, IndexedRun, boards, list, points, results, rows, write};
use crate::search::{document, find};
use crate::store::SqlStore;

#[async_trait]
impl AttemptIndex for SqlStore {
    async fn runs_behind(&self, form: u32, limit: u32) -> Result<Vec<RunId>, StoreError> {
        read!(self, |connection| write::behind(connection, form, limit))
    }

    async fn documents_of(&self, run: &RunId) -> Result<Vec<DocumentKey>, StoreError> {
        read!(self, |connection| document::of_run(connection, run))
    }

    async fn put_index(&self, runs: Vec<IndexedRun>) -> Result<(), StoreError> {
        write!(self, |transaction, runs| write::put(transaction, runs))
    }

    async fn list_attempts(&self, query: &AttemptQuery) -> Result<AttemptPage, StoreError> {
        let asked = query.clone();
        let found =
            self.look(move |columns| list::find(columns, &asked)).await?.map_err(|failure| self.tell(failure))?;
        let items = read!(self, |connection| rows::by_keys(connection, &found.keys))?;
        Ok(AttemptPage { items, next: found.next, total: found.total, facets: found.facets })
    }

    async fn attempt_points(&self, query: &PointsQuery) -> Result<AttemptPoints, StoreError> {
        let query = query.clone();
        self.look(move |columns| points::pack(columns, &query)).await
    }

    async fn attempt_at(&self, run_key: u32, number: u32) -> Result<AttemptRow, StoreError> {
        read!(self, |connection| rows::at(connection, run_key, number))
    }

    async fn task_boards(&self, filter: &AttemptFilter) -> Result<Vec<TaskBoard>, StoreError> {
        let filter = filter.clone();
        let found =
            self.look(move |columns| boards::tasks(columns, &filter)).await?.map_err(|failure| self.tell(failure))?;
        let keys: Vec<Key> = found.iter().filter_map(|task| task.best.as_ref()).map(|(key, _)| *key).collect();
        let best = read!(self, |connection| rows::by_keys(connection, &keys))?;
        Ok(boards::with_rows(found, best))
    }

    async fn model_boards(&self, filter: &AttemptFilter) -> Result<Vec<ModelBoard>, StoreError> {
        let filter = filter.clone();
        self.look(move |columns| boards::models(columns, &filter)).await
    }

    async fn campaign_results(&self, campaign: &CampaignId, runs: u64) -> Result<CampaignResults, StoreError> {
        let campaign = campaign.clone();
        let found = self.look(move |columns| results::of_campaign(columns, &campaign, runs)).await?;
        found.map_err(|failure| self.tell(failure))
    }

    async fn search(&self, query: &SearchQuery) -> Result<SearchPage, StoreError> {
        read!(self, |connection| find::page(connection, query))
    }
}
