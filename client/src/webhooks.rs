//! Webhooks and their deliveries.

use nightshift_protocol::api::{CreateWebhook, Delivery, Page, Webhook, WebhookCreated};
use nightshift_protocol::id::{DeliveryId, WebhookId};
use reqwest::Method;

use crate::error::ClientError;
use crate::transport::Client;

impl Client {
    /// Lists webhooks, newest first, without their secrets.
    pub async fn webhooks(&self) -> Result<Vec<Webhook>, ClientError> {
        let page: Page<Webhook> = self.get(self.url(&["webhooks"], &[])).await?;
        Ok(page.items)
    }

    /// Creates a webhook. Only this answer contains its secret.
    pub async fn create_webhook(&self, webhook: &CreateWebhook) -> Result<WebhookCreated, ClientError> {
        self.post(self.url(&["webhooks"], &[]), webhook).await
    }

    /// Deletes a webhook with its deliveries.
    pub async fn delete_webhook(&self, id: &WebhookId) -> Result<(), ClientError> {
        self.send(self.request(Method::DELETE, self.url(&["webhooks", id.as_str()], &[]))).await?;
        Ok(())
    }

    /// Lists the deliveries of a webhook, newest first.
    pub async fn deliveries(
        &self,
        id: &WebhookId,
        limit: Option<u32>,
        before: Option<&str>,
    ) -> Result<Page<Delivery>, ClientError> {
        let query = [("limit", limit.map(|limit| limit.to_string())), ("before", before.map(str::to_owned))];
        self.get(self.url(&["webhooks", id.as_str(), "deliveries"], &query)).await
    }

    /// Restarts a delivery from its first attempt.
    pub async fn repeat_delivery(&self, id: &DeliveryId) -> Result<Delivery, ClientError> {
        self.json(self.request(Method::POST, self.url(&["deliveries", id.as_str(), "repeat"], &[]))).await
    }
}
