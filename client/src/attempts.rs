//! Attempts of all runs, the leaderboards, and the search.

use nightshift_protocol::api::{
    AttemptFilter, AttemptPage, AttemptPoints, AttemptQuery, AttemptRow, ModelBoard, Page, PointsQuery, SearchPage,
    SearchQuery, TaskBoard,
};
use reqwest::Method;

use crate::error::ClientError;
use crate::transport::Client;

impl Client {
    /// Returns a page of attempts, with the number of matches.
    pub async fn attempts(&self, query: &AttemptQuery) -> Result<AttemptPage, ClientError> {
        self.get(self.url(&["attempts"], &optional(query.to_pairs()))).await
    }

    /// Returns attempts as points of a scatter plot.
    pub async fn attempt_points(&self, query: &PointsQuery) -> Result<AttemptPoints, ClientError> {
        let url = self.url(&["attempts", "points"], &optional(query.to_pairs()));
        let (status, bytes) = self.send(self.request(Method::GET, url)).await?;
        AttemptPoints::from_bytes(bytes).map_err(|error| ClientError::NotUnderstood {
            address: self.address(),
            status: status.as_u16(),
            reason: error.to_string(),
        })
    }

    /// Returns the attempt of a point.
    pub async fn attempt_at(&self, run_key: u32, number: u32) -> Result<AttemptRow, ClientError> {
        self.get(self.url(&["attempts", "at", &run_key.to_string(), &number.to_string()], &[])).await
    }

    /// Returns tasks by device with their best attempts. The filter selects the attempts that count.
    pub async fn task_boards(&self, filter: &AttemptFilter) -> Result<Vec<TaskBoard>, ClientError> {
        let page: Page<TaskBoard> = self.get(self.url(&["tasks"], &optional(filter.to_pairs()))).await?;
        Ok(page.items)
    }

    /// Returns models by strategy. The filter selects the attempts that count.
    pub async fn model_boards(&self, filter: &AttemptFilter) -> Result<Vec<ModelBoard>, ClientError> {
        let page: Page<ModelBoard> = self.get(self.url(&["models"], &optional(filter.to_pairs()))).await?;
        Ok(page.items)
    }

    /// Finds texts with these words, the newest first.
    pub async fn search(&self, query: &SearchQuery) -> Result<SearchPage, ClientError> {
        self.get(self.url(&["search"], &optional(query.to_pairs()))).await
    }
}

fn optional(pairs: Vec<(&'static str, String)>) -> Vec<(&'static str, Option<String>)> {
    pairs.into_iter().map(|(name, value)| (name, Some(value))).collect()
}
