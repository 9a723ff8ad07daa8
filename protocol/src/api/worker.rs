//! Workers: registration, lists, draining and quarantined devices.

use serde::{Deserialize, Serialize};

use crate::id::WorkerId;
use crate::machine::{Offers, Quarantine};
use crate::time::TimestampMs;

/// `POST /workers`: registers a worker process. A restarted process is a new worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RegisterWorker {
    /// Name for people.
    pub name: String,
    /// Whether it lives in the server's process: its leases are freed as soon as the server starts again. The server
    /// knows that by the token, and does not believe this field.
    pub embedded: bool,
    /// Its capabilities.
    pub offers: Offers,
    /// Its version.
    pub version: String,
}

/// Answer to `POST /workers`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkerRegistered {
    /// Its id from now on.
    pub worker: WorkerId,
    /// How long a lease lasts without a heartbeat, in milliseconds.
    pub lease_ms: u64,
    /// How often to send a heartbeat, in milliseconds.
    pub heartbeat_ms: u64,
}

/// A quarantined device: no step may use it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QuarantinedDevice {
    /// Its number, as offered.
    pub device: u32,
    /// Why.
    pub quarantine: Quarantine,
}

/// A quarantined device in a list, and the answer to `POST /devices/{device}/release`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QuarantineView {
    /// The driver's name of the device.
    pub device: String,
    /// Its number on its worker.
    pub number: u32,
    /// Its model.
    pub name: String,
    /// Its worker, which may be gone.
    pub worker: WorkerId,
    /// The worker's name for people.
    pub worker_name: String,
    /// What is wrong, and since when.
    pub quarantine: Quarantine,
    /// When an operator requested that it be tested and used again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released_at: Option<TimestampMs>,
    /// Who that was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released_by: Option<String>,
}

/// The last readings of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeviceReading {
    /// Its number, as offered.
    pub device: u32,
    /// Temperature in degrees Celsius, when the driver or the system tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_c: Option<u32>,
    /// How long steps used it within the last `over_ms`, in milliseconds.
    pub busy_ms: u64,
    /// Length of the window, in milliseconds: an hour, or less after the worker's start.
    pub over_ms: u64,
}

/// A worker in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkerView {
    /// Id.
    pub id: WorkerId,
    /// Name for people.
    pub name: String,
    /// Whether it runs in the server's process.
    pub embedded: bool,
    /// When the server last heard from it.
    pub last_seen_at: TimestampMs,
    /// Number of steps that it holds.
    pub leases: u64,
    /// Its capabilities.
    pub offers: Offers,
    /// Its version.
    pub version: String,
    /// Whether it takes no new steps and will stop.
    #[serde(default)]
    pub draining: bool,
    /// Whether the server has not heard from it for so long that it has most likely ended.
    #[serde(default)]
    pub silent: bool,
    /// Last readings of the devices that it reported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub readings: Vec<DeviceReading>,
    /// Time of these readings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_at: Option<TimestampMs>,
}

/// `POST /workers/{id}/drain`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Drain {
    /// Whether to drain it; false withdraws the request.
    pub draining: bool,
}
