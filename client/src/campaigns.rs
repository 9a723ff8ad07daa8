//! Campaigns, their archives, ids, and the server's health.

use std::time::Duration;

use nightshift_protocol::api::{
    CampaignCreated, CampaignDetail, CampaignPage, CampaignQuery, CampaignResults, CampaignSummary, Control,
    ControlAction, Controlled, CreateCampaign, Health, IdMatches, Page, SetLimits, SetPriority,
};
use nightshift_protocol::id::CampaignId;
use reqwest::Method;
use reqwest::header::CONTENT_TYPE;

use crate::download::Download;
use crate::error::ClientError;
use crate::transport::Client;

/// Timeout of the transfer of an archive.
const ARCHIVE_TIMEOUT: Duration = Duration::from_mins(30);

impl Client {
    /// Returns the health and version of the server.
    pub async fn health(&self) -> Result<Health, ClientError> {
        self.get(self.url(&["health"], &[])).await
    }

    /// Checks that the server is ready for work. The error contains the reason.
    pub async fn ready(&self) -> Result<(), ClientError> {
        self.send(self.request(Method::GET, self.url(&["ready"], &[]))).await?;
        Ok(())
    }

    /// Creates a campaign. Repeating the same request with the same key returns the first campaign.
    pub async fn create_campaign(
        &self,
        request: &CreateCampaign,
        idempotency_key: &str,
    ) -> Result<CampaignCreated, ClientError> {
        let url = self.url(&["campaigns"], &[]);
        self.create(url, request, idempotency_key).await
    }

    /// Lists campaigns, newest first, by default in a page of the server's size. `before` is the cursor of the previous
    /// page.
    pub async fn campaigns(
        &self,
        limit: Option<u32>,
        before: Option<&str>,
    ) -> Result<Page<CampaignSummary>, ClientError> {
        let query = [("limit", limit.map(|limit| limit.to_string())), ("before", before.map(str::to_owned))];
        self.get(self.url(&["campaigns"], &query)).await
    }

    /// Lists campaigns that match a filter, sorted, with the total number.
    pub async fn campaign_page(&self, query: &CampaignQuery) -> Result<CampaignPage, ClientError> {
        let pairs: Vec<_> = query.to_pairs().into_iter().map(|(name, value)| (name, Some(value))).collect();
        self.get(self.url(&["campaigns"], &pairs)).await
    }

    /// Returns the results of a campaign over all of its attempts. Attempts in the given range of places are listed
    /// individually.
    pub async fn campaign_results(
        &self,
        id: &CampaignId,
        (from, to): (Option<u64>, Option<u64>),
    ) -> Result<CampaignResults, ClientError> {
        let query = [("from", from.map(|from| from.to_string())), ("to", to.map(|to| to.to_string()))];
        self.get(self.url(&["campaigns", id.as_str(), "results"], &query)).await
    }

    /// Returns one campaign with its runs.
    pub async fn campaign(&self, id: &CampaignId) -> Result<CampaignDetail, ClientError> {
        self.get(self.url(&["campaigns", id.as_str()], &[])).await
    }

    /// Pauses, resumes or cancels every unfinished run of a campaign.
    pub async fn control_campaign(&self, id: &CampaignId, action: ControlAction) -> Result<Controlled, ClientError> {
        self.post(self.url(&["campaigns", id.as_str(), "control"], &[]), &Control { action }).await
    }

    /// Changes the given ones of budget, schedule and weight of a campaign.
    pub async fn set_campaign_limits(
        &self,
        id: &CampaignId,
        limits: &SetLimits,
    ) -> Result<CampaignDetail, ClientError> {
        self.post(self.url(&["campaigns", id.as_str(), "limits"], &[]), limits).await
    }

    /// Changes the priority of the steps of all runs of a campaign.
    pub async fn set_campaign_priority(&self, id: &CampaignId, priority: i32) -> Result<(), ClientError> {
        self.tell(self.url(&["campaigns", id.as_str(), "priority"], &[]), &SetPriority { priority }).await
    }

    /// Streams a campaign as one archive file. [`Self::import_campaign`] rebuilds it, on this server or another.
    pub async fn campaign_archive(&self, id: &CampaignId) -> Result<Download, ClientError> {
        let url = self.url(&["campaigns", id.as_str(), "archive"], &[]);
        Ok(Download::new(self.open(self.request(Method::GET, url).timeout(ARCHIVE_TIMEOUT)).await?))
    }

    /// Stores a campaign from the bytes of its archive. An existing campaign stays unchanged.
    pub async fn import_campaign(&self, archive: Vec<u8>) -> Result<CampaignCreated, ClientError> {
        let request = self
            .request(Method::POST, self.url(&["import"], &[]))
            .timeout(ARCHIVE_TIMEOUT)
            .header(CONTENT_TYPE, "application/octet-stream")
            .body(archive);
        self.json(request).await
    }

    /// Returns campaigns and runs whose id begins or ends with the text.
    pub async fn find_ids(&self, text: &str) -> Result<IdMatches, ClientError> {
        self.get(self.url(&["ids", text], &[])).await
    }
}
