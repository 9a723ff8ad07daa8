//! Campaigns, ids, and the server's health.

use nightshift_protocol::api::{
    CampaignCreated, CampaignDetail, CampaignSummary, Control, ControlAction, Controlled, CreateCampaign, Health,
    IDEMPOTENCY_HEADER, IdMatches, Page,
};
use nightshift_protocol::id::CampaignId;
use reqwest::Method;

use crate::error::ClientError;
use crate::transport::Client;

impl Client {
    /// Whether the server is there, and what it is.
    pub async fn health(&self) -> Result<Health, ClientError> {
        self.get(self.url(&["health"], &[])).await
    }

    /// Creates a campaign. The same key with the same request finds the campaign that it created before.
    pub async fn create_campaign(
        &self,
        request: &CreateCampaign,
        idempotency_key: &str,
    ) -> Result<CampaignCreated, ClientError> {
        let url = self.url(&["campaigns"], &[]);
        self.json(self.request(Method::POST, url).header(IDEMPOTENCY_HEADER, idempotency_key).json(request)).await
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

    /// One campaign with its runs.
    pub async fn campaign(&self, id: &CampaignId) -> Result<CampaignDetail, ClientError> {
        self.get(self.url(&["campaigns", id.as_str()], &[])).await
    }

    /// Pauses, resumes or cancels every run of a campaign that is not over.
    pub async fn control_campaign(&self, id: &CampaignId, action: ControlAction) -> Result<Controlled, ClientError> {
        self.post(self.url(&["campaigns", id.as_str(), "control"], &[]), &Control { action }).await
    }

    /// Campaigns and runs whose id begins or ends with the text.
    pub async fn find_ids(&self, text: &str) -> Result<IdMatches, ClientError> {
        self.get(self.url(&["ids", text], &[])).await
    }
}
