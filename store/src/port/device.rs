//! Quarantined devices.

use async_trait::async_trait;
use nightshift_engine::store::{DeviceStore, QuarantineRecord, StoreError};
use nightshift_protocol::id::WorkerId;
use nightshift_protocol::time::TimestampMs;

use crate::catalog::quarantine;
use crate::store::SqlStore;

#[async_trait]
impl DeviceStore for SqlStore {
    async fn set_quarantine(
        &self,
        worker: &WorkerId,
        offers: serde_json::Value,
        quarantined: Vec<QuarantineRecord>,
        well: Vec<String>,
    ) -> Result<(), StoreError> {
        let worker = worker.clone();
        transaction!(self, |tx, worker, offers, quarantined, well| quarantine::set(
            tx,
            worker,
            offers,
            quarantined,
            well
        ))
    }

    async fn list_quarantine(&self) -> Result<Vec<QuarantineRecord>, StoreError> {
        read!(self, |connection| quarantine::list(connection))
    }

    async fn release_device(
        &self,
        device: &str,
        by: Option<&str>,
        at: TimestampMs,
    ) -> Result<QuarantineRecord, StoreError> {
        let (device, by) = (device.to_owned(), by.map(str::to_owned));
        transaction!(self, |tx, device, by, at| quarantine::release(tx, device, by.as_deref(), *at))
    }
}
