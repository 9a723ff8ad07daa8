//! The part of the port about addresses that are told what happens: who they are, and what they are told. What is to be
//! told is durable before it is sent, once for each subject.

use async_trait::async_trait;
use nightshift_protocol::api::{Delivery, Webhook, WebhookMessage};
use nightshift_protocol::id::{DeliveryId, WebhookId};
use nightshift_protocol::time::TimestampMs;

use super::{PageRequest, Placed, RunMark, StoreError};

/// A webhook with what signs its deliveries.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookRecord {
    /// As in a list.
    pub view: Webhook,
    /// What signs.
    pub secret: String,
}

impl std::fmt::Debug for WebhookRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebhookRecord").field("view", &self.view).finish_non_exhaustive()
    }
}

/// Something to be told.
#[derive(Debug, Clone, PartialEq)]
pub struct NewDelivery {
    /// Its id, if it is new.
    pub id: DeliveryId,
    /// To whom.
    pub webhook: WebhookId,
    /// What it is about: the same is told once.
    pub subject: String,
    /// What is told.
    pub message: WebhookMessage,
}

/// How a try ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryEnd {
    /// The address took it.
    Delivered,
    /// It is tried again.
    Again {
        /// When.
        at: TimestampMs,
        /// What went wrong.
        problem: String,
    },
    /// It is tried no more.
    GivenUp {
        /// What went wrong.
        problem: String,
    },
}

/// Webhooks and their deliveries.
#[async_trait]
pub trait WebhookStore: Send + Sync {
    /// Webhooks, newest first.
    async fn list_webhooks(&self) -> Result<Vec<WebhookRecord>, StoreError>;

    /// Deletes a webhook with its deliveries.
    async fn delete_webhook(&self, id: &WebhookId) -> Result<(), StoreError>;

    /// Keeps what is to be told; leaves out what the webhook was told, and webhooks that are gone. Gives how many are new.
    async fn put_deliveries(&self, deliveries: Vec<NewDelivery>, at: TimestampMs) -> Result<u64, StoreError>;

    /// Webhooks that have deliveries which are due.
    async fn due_webhooks(&self, at: TimestampMs) -> Result<Vec<WebhookId>, StoreError>;

    /// Takes deliveries of a webhook that are due, oldest first, and keeps them from others until `until`: their tries
    /// count one more.
    async fn take_deliveries(
        &self,
        webhook: &WebhookId,
        at: TimestampMs,
        until: TimestampMs,
        limit: u32,
    ) -> Result<Vec<Delivery>, StoreError>;

    /// Notes how this try of a delivery ended; one that was taken by somebody else meanwhile is left alone.
    async fn end_delivery(&self, id: &DeliveryId, tries: u32, end: DeliveryEnd) -> Result<(), StoreError>;

    /// Deliveries of a webhook, newest first.
    async fn list_deliveries(
        &self,
        webhook: &WebhookId,
        page: &PageRequest,
    ) -> Result<Vec<Placed<Delivery>>, StoreError>;

    /// Has a delivery tried anew, from its first try.
    async fn repeat_delivery(&self, id: &DeliveryId, at: TimestampMs) -> Result<Delivery, StoreError>;

    /// Deletes deliveries that are over and older than this.
    async fn forget_deliveries(&self, before: TimestampMs) -> Result<u64, StoreError>;

    /// Runs that are not over or ended after this moment, oldest first, from a place on.
    async fn runs_to_tell(
        &self,
        ended_after: TimestampMs,
        after: u64,
        limit: u32,
    ) -> Result<Vec<Placed<RunMark>>, StoreError>;
}
