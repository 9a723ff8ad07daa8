//! The rows of a working set, one type per noun, as a transaction changes them.

use nightshift_engine::retry::RetryPolicy;
use nightshift_protocol::budget::{Amount, BudgetLine, Resource};
use nightshift_protocol::id::{RunId, StepId};
use nightshift_protocol::run::{RunStatus, StepStatus};
use nightshift_protocol::schedule::Schedule;
use nightshift_protocol::time::TimestampMs;

/// An unfinished run. A finished run has no leases, so the hot path never changes it.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) id: i64,
    pub(crate) public_id: RunId,
    pub(crate) campaign_id: i64,
    pub(crate) status: RunStatus,
    pub(crate) priority: i64,
    /// Public id of the server lease that owns it.
    pub(crate) owner: Option<String>,
    pub(crate) owner_epoch: i64,
    pub(crate) revision: i64,
    pub(crate) last_seq: i64,
    pub(crate) wake_seq: i64,
    pub(crate) folded_seq: i64,
    pub(crate) failure: Option<String>,
    pub(crate) finished_at: Option<i64>,
    /// Status and end as they are stored.
    pub(crate) stored_standing: (RunStatus, Option<i64>),
    /// The texts of a decision, written with it.
    pub(crate) decided: Option<Decided>,
    /// Whether it has to be written.
    pub(crate) changed: bool,
}

/// The texts of a decision.
#[derive(Debug)]
pub(crate) struct Decided {
    /// None leaves the state unchanged.
    pub(crate) state: Option<DecidedState>,
    pub(crate) digest: String,
    pub(crate) awaits: Option<String>,
}

/// The texts of a state: its head, and the changed parts.
#[derive(Debug)]
pub(crate) struct DecidedState {
    pub(crate) head: String,
    pub(crate) parts: Vec<DecidedPart>,
}

/// The text of a part of a state, with its position.
#[derive(Debug)]
pub(crate) struct DecidedPart {
    pub(crate) field: String,
    pub(crate) number: u32,
    pub(crate) value: String,
}

/// A step.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) id: i64,
    pub(crate) public_id: StepId,
    pub(crate) run_id: i64,
    pub(crate) campaign_id: i64,
    pub(crate) key: String,
    pub(crate) route_id: i64,
    pub(crate) status: StepStatus,
    pub(crate) epoch: i64,
    pub(crate) tries: i64,
    pub(crate) timeout_ms: u64,
    pub(crate) cost_ms: u64,
    /// Amounts to reserve when it becomes ready.
    pub(crate) reserve: Vec<Amount>,
    /// Public id of the worker of its current or last try.
    pub(crate) worker: Option<String>,
    pub(crate) output_seq: Option<i64>,
    pub(crate) failure: Option<String>,
    pub(crate) started_at: Option<i64>,
    pub(crate) finished_at: Option<i64>,
    pub(crate) reported_epoch: Option<i64>,
    pub(crate) reported_digest: Option<Vec<u8>>,
    /// Its place, as stored and as changed.
    pub(crate) place_before: Place,
    pub(crate) place: Place,
    /// Its reservations, as stored and as changed.
    pub(crate) reserved_before: Vec<Amount>,
    pub(crate) reserved: Vec<Amount>,
    /// Set for a step that is not stored yet.
    pub(crate) fresh: Option<Fresh>,
    /// Set for a step that a claim may lease.
    pub(crate) details: Option<Details>,
    /// Whether its own row has to be written. Its place is compared instead.
    pub(crate) changed: bool,
}

/// Data that only the insertion of a step needs.
#[derive(Debug)]
pub(crate) struct Fresh {
    pub(crate) input: String,
    pub(crate) reserve: Option<String>,
    pub(crate) scheduled_seq: i64,
}

/// Data that only a claim's answer needs.
#[derive(Debug, Clone)]
pub(crate) struct Details {
    pub(crate) run: RunId,
    pub(crate) kind: String,
    pub(crate) retry: RetryPolicy,
    pub(crate) scheduled_at: TimestampMs,
    pub(crate) input: Input,
}

/// The location of a step's input.
#[derive(Debug, Clone)]
pub(crate) enum Input {
    /// In the order that scheduled it: indexes of the group, of the change in it, and of the order in that.
    Ordered(usize, usize, usize),
    /// In the database.
    Stored,
}

/// The table that holds an open step; at most one. `None` is for steps that have ended and for steps of paused runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    Nowhere,
    Ready {
        rank: i64,
        latest_start: Option<i64>,
    },
    Leased {
        epoch: i64,
        worker_id: i64,
        expires_at: i64,
        device: Option<i64>,
        exclusive: bool,
    },
    /// Waits for the opening of the campaign's window, or for a retry.
    Timer {
        not_before: i64,
        for_window: bool,
    },
    Blocked {
        resource: Resource,
        told: bool,
    },
}

/// The admission facts of a campaign.
#[derive(Debug)]
pub(crate) struct Campaign {
    pub(crate) id: i64,
    pub(crate) created_at: i64,
    pub(crate) schedule: Option<Schedule>,
    pub(crate) weight: u32,
    pub(crate) vtime_before: i64,
    pub(crate) vtime: i64,
    /// All budget lines if reservations may change, else only wall time.
    pub(crate) budget_before: Vec<BudgetLine>,
    pub(crate) budget: Vec<BudgetLine>,
    /// Whether a reservation was released, so that blocked steps are reconsidered.
    pub(crate) freed: bool,
}

/// An event to append.
#[derive(Debug)]
pub(crate) struct NewEvent {
    pub(crate) run_id: i64,
    pub(crate) seq: i64,
    pub(crate) at: i64,
    pub(crate) kind: &'static str,
    pub(crate) body: String,
}

impl Campaign {
    /// Returns the budget line of a resource, if the budget has one.
    pub(crate) fn line_mut(&mut self, resource: Resource) -> Option<&mut BudgetLine> {
        self.budget.iter_mut().find(|line| line.resource == resource)
    }
}
