//! Hot changes: claims, reports and decisions, which are committed together.

use nightshift_protocol::budget::Amount;
use nightshift_protocol::id::{StepId, WorkerId};
use nightshift_protocol::time::TimestampMs;

use super::run::{Advance, Advanced};
use super::step::{StepRecord, TryEnd};

/// A claim.
#[derive(Debug, Clone)]
pub struct ClaimRequest {
    /// Who.
    pub worker: WorkerId,
    /// Routes of steps without a device; together at most `cpu_slots` steps.
    pub routes: Vec<String>,
    /// Free slots for steps without a device.
    pub cpu_slots: u32,
    /// Devices on which something can begin.
    pub devices: Vec<DeviceLane>,
    /// When.
    pub at: TimestampMs,
    /// Until when without a heartbeat.
    pub expires_at: TimestampMs,
}

/// What can begin on one device: the step that ranks first decides. When it needs the device alone, it is the only one;
/// else steps that share, up to the first one that needs it alone, so that nobody waits behind a stream of sharers.
#[derive(Debug, Clone)]
pub struct DeviceLane {
    /// The device's number on its machine.
    pub device: u32,
    /// Routes of steps that need it alone; empty while another step is on it.
    pub exclusive: Vec<String>,
    /// Routes of steps that share it.
    pub shared: Vec<String>,
    /// Free places for sharing steps.
    pub shared_slots: u32,
}

/// One hot change. Changes that are committed together are applied in their order; each is atomic and stands alone.
#[derive(Debug, Clone)]
pub enum Change {
    /// See [`super::Store::report`].
    Report(Report),
    /// See [`super::Store::advance`].
    Advance(Box<Advance>),
    /// See [`super::Store::claim`].
    Claim(ClaimRequest),
}

/// The end of a try, as its worker tells it.
#[derive(Debug, Clone)]
pub struct Report {
    /// The step.
    pub step: StepId,
    /// The lease epoch under which it was done.
    pub epoch: u64,
    /// How it ended.
    pub end: TryEnd,
    /// What the try used up of the step's own reservation.
    pub used: Vec<Amount>,
    /// When.
    pub at: TimestampMs,
}

/// What became of a [`Change`].
#[derive(Debug, Clone)]
pub enum Changed {
    /// Of a report.
    Reported(Reported),
    /// Of a decision.
    Advanced(Advanced),
    /// Of a claim.
    Claimed(Vec<StepRecord>),
}

/// What became of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reported {
    /// It is committed, now or by an earlier copy of the same report.
    Committed,
    /// The lease is gone; nothing was changed.
    LeaseLost,
}
