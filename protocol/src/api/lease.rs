//! Steps in the hands of workers: claims, heartbeats and reports.

use serde::{Deserialize, Serialize};

use super::worker::{DeviceReading, QuarantinedDevice};
use crate::id::{RunId, StepId, WorkerId};
use crate::step::{StepFailure, StepInput, StepOutput};

/// `POST /workers/{id}/claim`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Claim {
    /// Free capacity of the worker. The server knows from its registration which steps fit.
    pub free: FreeSlots,
    /// How long to wait for work, in milliseconds.
    pub wait_ms: u64,
}

/// Free capacity of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FreeSlots {
    /// Steps without a device.
    pub cpu: u32,
    /// Devices on which a step can begin.
    pub devices: Vec<FreeDevice>,
}

impl FreeSlots {
    /// Returns whether no step can begin.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cpu == 0 && self.devices.iter().all(|device| !device.exclusive && device.shared == 0)
    }
}

/// Free capacity of one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FreeDevice {
    /// The device's number, as offered.
    pub index: u32,
    /// Whether no step uses it, so that a step can use it exclusively.
    pub exclusive: bool,
    /// Number of further steps that can share it.
    pub shared: u32,
}

/// A step in a worker's hands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LeasedStep {
    /// The step.
    pub step: StepId,
    /// Fencing token: every report must carry it.
    pub epoch: u64,
    /// Its run.
    pub run: RunId,
    /// Key within the run.
    pub key: String,
    /// The route that it was claimed on.
    pub route: String,
    /// Its input.
    pub input: StepInput,
    /// How long the whole step may take, in milliseconds.
    pub timeout_ms: u64,
    /// The device that it is for; none when it needs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<u32>,
    /// Where it belongs in the run's trace (W3C `traceparent`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

/// Answer to a claim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Claimed {
    /// Steps; empty when there was nothing within the waiting time.
    pub steps: Vec<LeasedStep>,
    /// Whether the worker has to stop: it gets no further steps.
    #[serde(default)]
    pub draining: bool,
    /// How long the server held the claim before it leased the steps, in milliseconds, rounded down. Their leases count
    /// from the claim plus this: an answer may have been on its way for long.
    #[serde(default)]
    pub held_ms: u64,
}

/// `POST /workers/{id}/heartbeat`: one for all leases of the worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Heartbeat {
    /// Leased steps with their epochs.
    pub leases: Vec<(StepId, u64)>,
    /// All devices on which nothing may run, when there are some or when that changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantined: Option<Vec<QuarantinedDevice>>,
    /// Whether the worker stops: it sends no further heartbeats and reports.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leaving: bool,
    /// Readings of its devices, sent every few seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readings: Option<Vec<DeviceReading>>,
}

/// Answer to a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HeartbeatReply {
    /// Lost leases: kill the work, because the server will not accept its result.
    pub lost: Vec<StepId>,
    /// Cancelled steps: kill the work and report `cancelled`.
    pub cancelled: Vec<StepId>,
    /// Quarantined devices that an operator released: test them, and use those that pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub released: Vec<u32>,
}

/// How a worker's try ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum TryOutcome {
    /// It has a result.
    Completed {
        /// The result.
        output: Box<StepOutput>,
    },
    /// It could not be carried out.
    Failed {
        /// Why.
        failure: StepFailure,
    },
    /// It was stopped, as the heartbeat's reply asked.
    Cancelled,
}

/// `POST /steps/{id}/report`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Report {
    /// Who reports.
    pub worker: WorkerId,
    /// The fencing token.
    pub epoch: u64,
    /// How it ended.
    pub result: TryOutcome,
    /// Free capacity after the report. The answer contains ready steps for it, without waiting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free: Option<FreeSlots>,
}

/// Answer to a report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReportReply {
    /// The outcome of the report.
    pub result: ReportResult,
    /// Further steps for what is free.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<LeasedStep>,
}

/// The outcome of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ReportResult {
    /// It is committed, now or by an earlier copy of the same report.
    Committed,
    /// The lease is gone; the result was dropped.
    LeaseLost,
}
