//! Workers, and their devices on which nothing may run.

use nightshift_protocol::id::{ServerId, WorkerId};
use nightshift_protocol::time::TimestampMs;
use serde_json::Value;

/// A worker to be known.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerRecord {
    /// Id; a restarted process has a new one.
    pub id: WorkerId,
    /// Name for people.
    pub name: String,
    /// Whether it lives in the server's process.
    pub embedded: bool,
    /// What it can do, as JSON.
    pub offers: Value,
    /// Its version.
    pub version: String,
    /// When it was last heard of.
    pub last_seen_at: TimestampMs,
    /// Steps in its hands.
    pub leases: u64,
    /// The server life that it lives in, for an embedded one: its leases end with that life.
    pub server: Option<ServerId>,
    /// Whether it takes nothing new and will end.
    pub draining: bool,
}

/// A device of a worker on which nothing may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuarantineRecord {
    /// The driver's name of the device.
    pub device: String,
    /// Its worker, which may be gone.
    pub worker: WorkerId,
    /// The worker's name for people.
    pub worker_name: String,
    /// The device's number on that worker.
    pub number: u32,
    /// Its model.
    pub device_name: String,
    /// Tells it from earlier ones of the same worker.
    pub incident: u64,
    /// Stable code.
    pub code: String,
    /// What was seen.
    pub reason: String,
    /// When the server heard of it.
    pub since: TimestampMs,
    /// When somebody asked for it to be tried again.
    pub released_at: Option<TimestampMs>,
    /// Who that was.
    pub released_by: Option<String>,
}
