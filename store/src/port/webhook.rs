//! Webhooks.

use async_trait::async_trait;
use nightshift_engine::store::{
    DeliveryEnd, NewDelivery, PageRequest, Placed, RunMark, StoreError, WebhookRecord, WebhookStore,
};
use nightshift_protocol::api::Delivery;
use nightshift_protocol::id::{DeliveryId, WebhookId};
use nightshift_protocol::time::TimestampMs;

use crate::catalog::webhook::{self, delivery};
use crate::store::SqlStore;

#[async_trait]
impl WebhookStore for SqlStore {
    async fn list_webhooks(&self) -> Result<Vec<WebhookRecord>, StoreError> {
        read!(self, |connection| webhook::list(connection))
    }

    async fn delete_webhook(&self, id: &WebhookId) -> Result<(), StoreError> {
        let id = id.clone();
        transaction!(self, |tx, id| webhook::delete(tx, id))
    }

    async fn put_deliveries(&self, deliveries: Vec<NewDelivery>, at: TimestampMs) -> Result<u64, StoreError> {
        transaction!(self, |tx, deliveries, at| delivery::put(tx, deliveries, *at))
    }

    async fn due_webhooks(&self, at: TimestampMs) -> Result<Vec<WebhookId>, StoreError> {
        read!(self, |connection| delivery::due_webhooks(connection, at))
    }

    async fn take_deliveries(
        &self,
        webhook: &WebhookId,
        at: TimestampMs,
        until: TimestampMs,
        limit: u32,
    ) -> Result<Vec<Delivery>, StoreError> {
        let webhook = webhook.clone();
        transaction!(self, |tx, webhook, at, until, limit| delivery::take(tx, webhook, *at, *until, *limit))
    }

    async fn end_delivery(&self, id: &DeliveryId, tries: u32, end: DeliveryEnd) -> Result<(), StoreError> {
        let id = id.clone();
        transaction!(self, |tx, id, tries, end| delivery::end(tx, id, *tries, end))
    }

    async fn list_deliveries(
        &self,
        webhook: &WebhookId,
        page: &PageRequest,
    ) -> Result<Vec<Placed<Delivery>>, StoreError> {
        read!(self, |connection| delivery::list(connection, webhook, page))
    }

    async fn repeat_delivery(&self, id: &DeliveryId, at: TimestampMs) -> Result<Delivery, StoreError> {
        let id = id.clone();
        transaction!(self, |tx, id, at| delivery::repeat(tx, id, *at))
    }

    async fn forget_deliveries(&self, before: TimestampMs) -> Result<u64, StoreError> {
        transaction!(self, |tx, before| delivery::forget(tx, *before))
    }

    async fn runs_to_tell(
        &self,
        ended_after: TimestampMs,
        after: u64,
        limit: u32,
    ) -> Result<Vec<Placed<RunMark>>, StoreError> {
        read!(self, |connection| webhook::runs_to_tell(connection, ended_after, after, limit))
    }
}
