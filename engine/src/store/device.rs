//! Quarantined devices of workers.

use async_trait::async_trait;
use nightshift_protocol::id::WorkerId;
use nightshift_protocol::time::TimestampMs;
use serde_json::Value;

use super::StoreError;

/// A quarantined device of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuarantineRecord {
    /// The driver's name of the device.
    pub device: String,
    /// Its worker, which may be deleted.
    pub worker: WorkerId,
    /// The worker's name for people.
    pub worker_name: String,
    /// The device's number on that worker.
    pub number: u32,
    /// Its model.
    pub device_name: String,
    /// Number of the incident, which distinguishes it from earlier ones of the same worker.
    pub incident: u64,
    /// Stable code.
    pub code: String,
    /// The observed problem.
    pub reason: String,
    /// Time at which the server learned of it.
    pub since: TimestampMs,
    /// Time of the request for its release.
    pub released_at: Option<TimestampMs>,
    /// Name of the caller that requested the release.
    pub released_by: Option<String>,
}

/// Quarantined devices.
#[async_trait]
pub trait DeviceStore: Send + Sync {
    /// Stores a worker's report about its devices: the offers, the quarantined devices, and the driver's names of
    /// healthy devices.
    ///
    /// A known quarantine keeps its start and its release.
    async fn set_quarantine(
        &self,
        worker: &WorkerId,
        offers: Value,
        quarantined: Vec<QuarantineRecord>,
        well: Vec<String>,
    ) -> Result<(), StoreError>;

    /// Lists quarantined devices, newest first.
    async fn list_quarantine(&self) -> Result<Vec<QuarantineRecord>, StoreError>;

    /// Records a request to release a device from quarantine. Remaining entries of a deleted worker are deleted.
    async fn release_device(
        &self,
        device: &str,
        by: Option<&str>,
        at: TimestampMs,
    ) -> Result<QuarantineRecord, StoreError>;
}
