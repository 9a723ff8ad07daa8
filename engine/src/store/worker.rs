//! Workers, and their quarantined devices.

use nightshift_protocol::id::{ServerId, WorkerId};
use nightshift_protocol::time::TimestampMs;
use serde_json::Value;

/// A worker to register.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerRecord {
    /// Id; a restarted process has a new one.
    pub id: WorkerId,
    /// Name for people.
    pub name: String,
    /// Whether it runs in the server's process.
    pub embedded: bool,
    /// Its offers, as JSON.
    pub offers: Value,
    /// Its version.
    pub version: String,
    /// Time of the last contact.
    pub last_seen_at: TimestampMs,
    /// Number of its leases.
    pub leases: u64,
    /// The server lease of an embedded worker. Its leases end with it.
    pub server: Option<ServerId>,
    /// Whether it takes no new steps and is about to end.
    pub draining: bool,
}

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
