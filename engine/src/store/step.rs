//! Steps: stored records, ends of tries, and leases.

use nightshift_protocol::budget::{Amount, Resource};
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
    /// The status.
    pub status: StepStatus,
    /// The lease epoch; grows with every claim.
    pub epoch: u64,
    /// Number of tries that began.
    pub tries: u32,
    /// Retry policy.
    pub retry: RetryPolicy,
    /// Timeout of one try, in milliseconds.
    pub timeout_ms: u64,
    /// The worker of the current or last try.
    pub worker: Option<WorkerId>,
    /// The input.
    pub input: Value,
    /// The output of a completed step.
    pub output: Option<Value>,
    /// The failure of the last try.
    pub failure: Option<StepFailure>,
    /// Scheduling time.
    pub scheduled_at: TimestampMs,
    /// Start of the last try.
    pub started_at: Option<TimestampMs>,
    /// End of the step.
    pub finished_at: Option<TimestampMs>,
    /// Earliest start, while it waits for a retry or for its campaign's window.
    pub not_before: Option<TimestampMs>,
    /// The resource that the step is blocked on.
    pub blocked_on: Option<Resource>,
    /// The leased device of the worker.
    pub device: Option<u32>,
    /// Amounts that are reserved when the step becomes ready, and settled at the end of each try.
    pub reserve: Vec<Amount>,
}

/// The decided end of a try.
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
        /// Earliest start.
        at: TimestampMs,
    },
    /// The step waits for an outside event. It continues at this time, or when it is woken. The try does not count.
    Wait {
        /// The reason for waiting.
        failure: StepFailure,
        /// Latest continuation.
        at: TimestampMs,
    },
    /// Give up.
    Failed {
        /// The failure.
        failure: StepFailure,
    },
    /// The try was stopped. If its run is not being cancelled, the step becomes ready again.
    Cancelled,
}
