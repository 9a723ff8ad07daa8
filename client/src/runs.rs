//! Runs, their logs and their steps.

use std::time::Duration;

use nightshift_protocol::api::{
    Bulk, BulkDone, Control, ControlAction, Controlled, EventsPage, IDEMPOTENCY_HEADER, MAX_WAIT_MS, Page, Retrieval,
    Retry, RunDetail, RunSummary, SetPriority, StepView,
};
use nightshift_protocol::id::{CampaignId, RunId};
use nightshift_protocol::run::RunStatus;
use nightshift_protocol::signal::Signal;
use reqwest::Method;

use crate::error::ClientError;
use crate::transport::{Client, LONG_POLL_GRACE, long_poll};

impl Client {
    /// Lists runs, newest first, optionally of one campaign or one status. `before` is the cursor of the previous page.
    pub async fn runs(
        &self,
        campaign: Option<&CampaignId>,
        status: Option<RunStatus>,
        limit: Option<u32>,
        before: Option<&str>,
    ) -> Result<Page<RunSummary>, ClientError> {
        let query = [
            ("campaign", campaign.map(ToString::to_string)),
            ("status", status.map(|status| status.as_str().to_owned())),
            ("limit", limit.map(|limit| limit.to_string())),
            ("before", before.map(str::to_owned)),
        ];
        self.get(self.url(&["runs"], &query)).await
    }

    /// Returns all details of one run.
    pub async fn run(&self, id: &RunId) -> Result<RunDetail, ClientError> {
        self.get(self.url(&["runs", id.as_str()], &[])).await
    }

    /// Returns the notes and lessons that the model calls of a run or of one of its attempts received, by step.
    pub async fn retrievals(
        &self,
        id: &RunId,
        attempt: Option<u32>,
        limit: Option<u32>,
        before: Option<&str>,
    ) -> Result<Page<Retrieval>, ClientError> {
        let query = [
            ("attempt", attempt.map(|attempt| attempt.to_string())),
            ("limit", limit.map(|limit| limit.to_string())),
            ("before", before.map(str::to_owned)),
        ];
        self.get(self.url(&["runs", id.as_str(), "retrievals"], &query)).await
    }

    /// Returns the run's log after this position. If it has no new events, the server holds the call for up to
    /// `wait_ms` (at most [`MAX_WAIT_MS`]). An empty answer that came early is returned after a pause.
    pub async fn run_events(&self, id: &RunId, after: u64, wait_ms: u64) -> Result<EventsPage, ClientError> {
        let wait_ms = wait_ms.min(MAX_WAIT_MS);
        let wait = Duration::from_millis(wait_ms);
        let query = [("after", Some(after.to_string())), ("wait_ms", Some(wait_ms.to_string()))];
        let url = self.url(&["runs", id.as_str(), "events"], &query);
        let poll = self.json(self.request(Method::GET, url).timeout(wait + LONG_POLL_GRACE));
        long_poll(wait, |page: &EventsPage| page.events.is_empty() && !page.status.is_final(), poll).await
    }

    /// Lists the run's steps in the order of their scheduling.
    pub async fn run_steps(&self, id: &RunId) -> Result<Vec<StepView>, ClientError> {
        let page: Page<StepView> = self.get(self.url(&["runs", id.as_str(), "steps"], &[])).await?;
        Ok(page.items)
    }

    /// Pauses, resumes or cancels a run.
    pub async fn control_run(&self, id: &RunId, action: ControlAction) -> Result<Controlled, ClientError> {
        self.post(self.url(&["runs", id.as_str(), "control"], &[]), &Control { action }).await
    }

    /// Schedules the failed steps of a failed run again, or one of them.
    pub async fn retry_run(&self, id: &RunId, step_key: Option<&str>) -> Result<Controlled, ClientError> {
        let retry = Retry { step_key: step_key.map(str::to_owned) };
        self.post(self.url(&["runs", id.as_str(), "retry"], &[]), &retry).await
    }

    /// Sends a signal to a run: a hint, or an answer to a gate. Repeating the same signal with the same key has no
    /// effect.
    pub async fn signal_run(&self, id: &RunId, signal: &Signal, idempotency_key: &str) -> Result<(), ClientError> {
        let url = self.url(&["runs", id.as_str(), "signals"], &[]);
        let request = self.request(Method::POST, url).header(IDEMPOTENCY_HEADER, idempotency_key).json(signal);
        self.send(request).await?;
        Ok(())
    }

    /// Changes the priority of a run's steps.
    pub async fn set_run_priority(&self, id: &RunId, priority: i32) -> Result<(), ClientError> {
        self.tell(self.url(&["runs", id.as_str(), "priority"], &[]), &SetPriority { priority }).await
    }

    /// Applies one action to every run that matches a filter. If the answer says that more are left, call again with
    /// the same key, so that no run gets the same signal twice.
    pub async fn bulk(&self, bulk: &Bulk, idempotency_key: &str) -> Result<BulkDone, ClientError> {
        self.create(self.url(&["runs", "bulk"], &[]), bulk, idempotency_key).await
    }
}
