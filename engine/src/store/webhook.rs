//! Webhooks and their deliveries. A delivery is durable before it is sent, and exists once
//! per subject.

use async_trait::async_trait;
use nightshift_protocol::api::{Delivery, Webhook, WebhookMessage};
use nightshift_protocol::id::{DeliveryId, WebhookId};
use nightshift_protocol::time::TimestampMs;

use super::{PageRequest, Placed, RunMark, StoreError};

/// A webhook with its signing secret.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookRecord {
    /// The view in lists.
    pub view: Webhook,
    /// The signing secret.
    pub secret: String,
}

impl std::fmt::Debug for WebhookRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebhookRecord").field("view", &self.view).finish_non_exhaustive()
    }
}

/// A delivery to enqueue.
#[derive(Debug, Clone, PartialEq)]
pub struct NewDelivery {
    /// Id for a new delivery.
    pub id: DeliveryId,
    /// The receiving webhook.
    pub webhook: WebhookId,
    /// The subject. Deliveries with the same subject are sent once.
    pub subject: String,
    /// The message.
    pub message: WebhookMessage,
}

/// The end of a delivery attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryEnd {
    /// The address accepted it.
    Delivered,
    /// It is tried again.
    Again {
        /// Time of the next attempt.
        at: TimestampMs,
        /// The problem.
        problem: String,
    },
    /// No further attempt is made.
    GivenUp {
        /// The problem.
        problem: String,
    },
}

/// Webhooks and their deliveries.
#[async_trait]
pub trait WebhookStore: Send + Sync {
    /// Lists webhooks, newest first.
    async fn list_webhooks(&self) -> Result<Vec<WebhookRecord>, StoreError>;

    /// Deletes a webhook with its deliveries.
    async fn delete_webhook(&self, id: &WebhookId) -> Result<(), StoreError>;

    /// Enqueues deliveries. Skips subjects that the webhook had before, and missing webhooks. Returns the number of new
    /// deliveries.
    async fn put_deliveries(&self, deliveries: Vec<NewDelivery>, at: TimestampMs) -> Result<u64, StoreError>;

    /// Returns webhooks with due deliveries.
    async fn due_webhooks(&self, at: TimestampMs) -> Result<Vec<WebhookId>, StoreError>;

    /// Leases the due deliveries of a webhook until `until`, oldest first, and increments their tries.
    async fn take_deliveries(
        &self,
        webhook: &WebhookId,
        at: TimestampMs,
        until: TimestampMs,
        limit: u32,
    ) -> Result<Vec<Delivery>, StoreError>;

    /// Records the end of this attempt. Does nothing if another caller has leased the delivery since.
    async fn end_delivery(&self, id: &DeliveryId, tries: u32, end: DeliveryEnd) -> Result<(), StoreError>;

    /// Lists the deliveries of a webhook, newest first.
    async fn list_deliveries(
        &self,
        webhook: &WebhookId,
        page: &PageRequest,
    ) -> Result<Vec<Placed<Delivery>>, StoreError>;

    /// Restarts a delivery from its first attempt.
    async fn repeat_delivery(&self, id: &DeliveryId, at: TimestampMs) -> Result<Delivery, StoreError>;

    /// Deletes ended deliveries that are older than `before`.
    async fn forget_deliveries(&self, before: TimestampMs) -> Result<u64, StoreError>;

    /// Returns runs that are unfinished or ended after this time, oldest first, from a cursor on.
    async fn runs_to_tell(
        &self,
        ended_after: TimestampMs,
        after: u64,
        limit: u32,
    ) -> Result<Vec<Placed<RunMark>>, StoreError>;
}
