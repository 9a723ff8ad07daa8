//! Requests: open model calls that an outside agent takes and answers.

use std::time::{Duration, Instant};

use nightshift_protocol::api::{
    AnswerRequest, ExtendRequest, LeasedRequest, MAX_WAIT_MS, NextRequest, Page, ReleaseRequest, RequestAnswered,
    RequestDetail, RequestView,
};
use nightshift_protocol::id::{CampaignId, RequestId, RunId};
use reqwest::{Method, StatusCode};

use crate::error::ClientError;
use crate::transport::{Client, LONG_POLL_GRACE, long_poll};

impl Client {
    /// Lists requests that wait for an answer, newest first; with `all`, also the others.
    pub async fn requests(
        &self,
        campaign: Option<&CampaignId>,
        run: Option<&RunId>,
        all: bool,
        limit: Option<u32>,
        before: Option<&str>,
    ) -> Result<Page<RequestView>, ClientError> {
        let query = [
            ("campaign", campaign.map(ToString::to_string)),
            ("run", run.map(ToString::to_string)),
            ("all", all.then(|| "true".to_owned())),
            ("limit", limit.map(|limit| limit.to_string())),
            ("before", before.map(str::to_owned)),
        ];
        self.get(self.url(&["requests"], &query)).await
    }

    /// Returns one request with its question.
    pub async fn model_request(&self, id: &RequestId) -> Result<RequestDetail, ClientError> {
        self.get(self.url(&["requests", id.as_str()], &[])).await
    }

    /// Leases the oldest matching open request. If none is open, the server holds the call for up to `wish.wait_ms`.
    /// An empty answer that came early is returned after a pause.
    pub async fn next_request(&self, wish: &NextRequest) -> Result<Option<LeasedRequest>, ClientError> {
        let url = self.url(&["requests", "next"], &[]);
        let wait = Duration::from_millis(wish.wait_ms);
        let request = self.request(Method::POST, url).timeout(wait.saturating_add(LONG_POLL_GRACE)).json(wish);
        let is_empty = |answer: &(StatusCode, Vec<u8>)| answer.0 == StatusCode::NO_CONTENT;
        let (status, body) =
            long_poll(wait.min(Duration::from_millis(MAX_WAIT_MS)), is_empty, self.send(request)).await?;
        if status == StatusCode::NO_CONTENT {
            return Ok(None);
        }
        serde_json::from_slice(&body).map(Some).map_err(|error| ClientError::NotUnderstood {
            address: self.address(),
            status: status.as_u16(),
            reason: error.to_string(),
        })
    }

    /// Leases the next request within this time, with several calls if the server's limit is shorter or it answers early.
    pub async fn wait_for_request(
        &self,
        wish: &NextRequest,
        time: Duration,
    ) -> Result<Option<LeasedRequest>, ClientError> {
        let until = Instant::now() + time;
        loop {
            let left = u64::try_from(until.saturating_duration_since(Instant::now()).as_millis()).unwrap_or(u64::MAX);
            let wish = NextRequest { wait_ms: left.min(MAX_WAIT_MS), ..wish.clone() };
            let leased = self.next_request(&wish).await?;
            if leased.is_some() || Instant::now() >= until {
                return Ok(leased);
            }
        }
    }

    /// Answers a request under a lease. Repeating the same answer succeeds.
    pub async fn answer_request(&self, id: &RequestId, answer: &AnswerRequest) -> Result<RequestAnswered, ClientError> {
        self.post(self.url(&["requests", id.as_str(), "answer"], &[]), answer).await
    }

    /// Moves the end of a lease to `lease_s` seconds from now.
    pub async fn extend_request(&self, id: &RequestId, lease: &str, lease_s: u32) -> Result<RequestView, ClientError> {
        let wish = ExtendRequest { lease: lease.to_owned(), lease_s };
        self.post(self.url(&["requests", id.as_str(), "extend"], &[]), &wish).await
    }

    /// Releases a request to other agents.
    pub async fn release_request(&self, id: &RequestId, lease: &str) -> Result<(), ClientError> {
        let wish = ReleaseRequest { lease: lease.to_owned() };
        self.tell(self.url(&["requests", id.as_str(), "release"], &[]), &wish).await
    }
}
