//! Steps: as stored, how their tries end, and what becomes of their leases.

use nightshift_protocol::budget::{Amount, BudgetLine, Resource};
use nightshift_protocol::id::{RunId, StepId, WorkerId};
use nightshift_protocol::run::StepStatus;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::time::TimestampMs;
use serde_json::Value;

use crate::retry::RetryPolicy;

/// A step as stored.
#[derive(Debug, Clone, PartialEq)]
pub struct StepRecord {
    /// Id.
    pub id: StepId,
    /// Its run.
    pub run: RunId,
    /// Key within the run.
    pub key: String,
    /// Kind.
    pub kind: String,
    /// Route: the canonical text of its needs.
    pub route: String,
    /// Where it stands.
    pub status: StepStatus,
    /// The lease epoch; grows with every claim.
    pub epoch: u64,
    /// How often it was begun.
    pub tries: u32,
    /// How failures are treated.
    pub retry: RetryPolicy,
    /// How long one try may take, in milliseconds.
    pub timeout_ms: u64,
    /// Who carries it out, or did.
    pub worker: Option<WorkerId>,
    /// What it is given.
    pub input: Value,
    /// What it gave.
    pub output: Option<Value>,
    /// Why the last try failed.
    pub failure: Option<StepFailure>,
    /// When it was scheduled.
    pub scheduled_at: TimestampMs,
    /// When the last try began.
    pub started_at: Option<TimestampMs>,
    /// When it ended.
    pub finished_at: Option<TimestampMs>,
    /// Not before this moment, while it waits for a retry or for its campaign's window.
    pub not_before: Option<TimestampMs>,
    /// What the campaign lacks, while it waits for that.
    pub blocked_on: Option<Resource>,
    /// The device of the worker that the lease is for.
    pub device: Option<u32>,
    /// What is set aside when it becomes ready, and settled at the end of each try.
    pub reserve: Vec<Amount>,
}

/// How a try ended, decided.
#[derive(Debug, Clone, PartialEq)]
pub enum TryEnd {
    /// Commit this result.
    Completed {
        /// The result.
        output: Value,
    },
    /// Try again at this moment.
    Retry {
        /// The failure.
        failure: StepFailure,
        /// Not before.
        at: TimestampMs,
    },
    /// The step waits for something outside and goes on at this moment or when it is woken. The try does not count.
    Wait {
        /// What it waits for.
        failure: StepFailure,
        /// Not before.
        at: TimestampMs,
    },
    /// Give up.
    Failed {
        /// The failure.
        failure: StepFailure,
    },
    /// It was stopped as asked. When nobody asked, because its run is not being cancelled, the step is ready again.
    Cancelled,
}

/// A lease that ran out.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpiredLease {
    /// The step as it was.
    pub step: StepRecord,
    /// The epoch of the lease.
    pub epoch: u64,
}

/// Outcome of a heartbeat, per lease.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HeartbeatOutcome {
    /// Leases that are gone.
    pub lost: Vec<StepId>,
    /// Steps whose run is being cancelled.
    pub cancelled: Vec<StepId>,
}

/// Whether an amount could be set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reservation {
    /// It is set aside for the step.
    Granted,
    /// Parallel work has set aside what is left: it may come back.
    Wait(BudgetLine),
    /// The campaign cannot afford it.
    Exhausted(BudgetLine),
    /// The lease is gone.
    LeaseLost,
}
