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

/// Longest time that an archive may be on its way.
const ARCHIVE_TIMEOUT: Duration = Duration::from_mins(30);

impl Client {
    /// Whether the server is there, and what it is.
    pub async fn health(&self) -> Result<Health, ClientError> {
        self.get(self.url(&["health"], &[])).await
    }

    /// Whether the server is ready for work; an error with the reason when it is not.
    pub async fn ready(&self) -> Result<(), ClientError> {
        self.send(self.request(Method::GET, self.url(&["ready"], &[]))).await?;
        Ok(())
    }

    /// Creates a campaign. The same key with the same request finds the campaign that it created before.
    pub async fn create_campaign(
        &self,
        request: &CreateCampaign,
        idempotency_key: &str,
    ) -> Result<CampaignCreated, ClientError> {
        let url = self.url(&["campaigns"], &[]);
        self.create(url, request, idempotency_key).await
    }

    /// Campaigns, newest first; without a limit, a page of the server's own size. `before` is the cursor of the page before.
    pub async fn campaigns(
        &self,
        limit: Option<u32>,
        before: Option<&str>,
    ) -> Result<Page<CampaignSummary>, ClientError> {
        let query = [("limit", limit.map(|limit| limit.to_string())), ("before", before.map(str::to_owned))];
        self.get(self.url(&["campaigns"], &query)).await
    }

    /// Campaigns that fit a filter, sorted, with how many there are.
    pub async fn campaign_page(&self, query: &CampaignQuery) -> Result<CampaignPage, ClientError> {
        let pairs: Vec<_> = query.to_pairs().into_iter().map(|(name, value)| (name, Some(value))).collect();
        self.get(self.url(&["campaigns"], &pairs)).await
    }

    /// What came out of a campaign, over all of its attempts; one by one, those from one place to another.
    pub async fn campaign_results(
        &self,
        id: &CampaignId,
        (from, to): (Option<u64>, Option<u64>),
    ) -> Result<CampaignResults, ClientError> {
        let query = [("from", from.map(|from| from.to_string())), ("to", to.map(|to| to.to_string()))];
        self.get(self.url(&["campaigns", id.as_str(), "results"], &query)).await
    }

    /// One campaign with its runs.
    pub async fn campaign(&self, id: &CampaignId) -> Result<CampaignDetail, ClientError> {
        self.get(self.url(&["campaigns", id.as_str()], &[])).await
    }

    /// Pauses, resumes or cancels every run of a campaign that is not over.
    pub async fn control_campaign(&self, id: &CampaignId, action: ControlAction) -> Result<Controlled, ClientError> {
        self.post(self.url(&["campaigns", id.as_str(), "control"], &[]), &Control { action }).await
    }

    /// Changes budget, schedule or weight of a campaign: what is given; the rest stays.
    pub async fn set_campaign_limits(
        &self,
        id: &CampaignId,
        limits: &SetLimits,
    ) -> Result<CampaignDetail, ClientError> {
        self.post(self.url(&["campaigns", id.as_str(), "limits"], &[]), limits).await
    }

    /// Changes the head start of the steps of all runs of a campaign.
    pub async fn set_campaign_priority(&self, id: &CampaignId, priority: i32) -> Result<(), ClientError> {
        self.tell(self.url(&["campaigns", id.as_str(), "priority"], &[]), &SetPriority { priority }).await
    }

    /// A campaign as one archive file, as it comes. It is rebuilt by [`Self::import_campaign`], here or elsewhere.
    pub async fn campaign_archive(&self, id: &CampaignId) -> Result<Download, ClientError> {
        let url = self.url(&["campaigns", id.as_str(), "archive"], &[]);
        Ok(Download::new(self.open(self.request(Method::GET, url).timeout(ARCHIVE_TIMEOUT)).await?))
    }

    /// Stores a campaign from the bytes of its archive. One that is there already stays as it is.
    pub async fn import_campaign(&self, archive: Vec<u8>) -> Result<CampaignCreated, ClientError> {
        let request = self
            .request(Method::POST, self.url(&["import"], &[]))
            .timeout(ARCHIVE_TIMEOUT)
            .header(CONTENT_TYPE, "application/octet-stream")
            .body(archive);
        self.json(request).await
    }

    /// Campaigns and runs whose id begins or ends with the text.
    pub async fn find_ids(&self, text: &str) -> Result<IdMatches, ClientError> {
        self.get(self.url(&["ids", text], &[])).await
    }
}
