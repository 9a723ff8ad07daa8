//! What a working set holds: the rows of one noun each, as they are while a transaction changes them.

use nightshift_engine::retry::RetryPolicy;
use nightshift_protocol::budget::{Amount, BudgetLine, Resource};
use nightshift_protocol::id::{RunId, StepId};
use nightshift_protocol::run::{RunStatus, StepStatus};
use nightshift_protocol::schedule::Schedule;
use nightshift_protocol::time::TimestampMs;

/// A run that is not over. One that is over has no leases, so nothing of the hot path changes it.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) id: i64,
    pub(crate) public_id: RunId,
    pub(crate) campaign_id: i64,
    pub(crate) status: RunStatus,
    pub(crate) priority: i64,
    /// Public id of the server life that owns it.
    pub(crate) owner: Option<String>,
    pub(crate) owner_epoch: i64,
    pub(crate) revision: i64,
    pub(crate) last_seq: i64,
    pub(crate) wake_seq: i64,
    pub(crate) folded_seq: i64,
    pub(crate) failure: Option<String>,
    pub(crate) finished_at: Option<i64>,
    /// What a decision brought, written with it.
    pub(crate) decided: Option<Decided>,
    /// Whether any of it has to be written.
    pub(crate) changed: bool,
}

/// The texts of a decision.
#[derive(Debug)]
pub(crate) struct Decided {
    /// None: the state stays.
    pub(crate) state: Option<DecidedState>,
    pub(crate) digest: String,
    pub(crate) awaits: Option<String>,
}

/// The texts of a state: its head, and the parts that changed.
#[derive(Debug)]
pub(crate) struct DecidedState {
    pub(crate) head: String,
    pub(crate) parts: Vec<DecidedPart>,
}

/// The text of a part of a state, and its place.
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
    /// What is set aside when it becomes ready.
    pub(crate) reserve: Vec<Amount>,
    /// Public id of the worker that carries it out, or did.
    pub(crate) worker: Option<String>,
    pub(crate) output_seq: Option<i64>,
    pub(crate) failure: Option<String>,
    pub(crate) started_at: Option<i64>,
    pub(crate) finished_at: Option<i64>,
    pub(crate) reported_epoch: Option<i64>,
    pub(crate) reported_digest: Option<Vec<u8>>,
    /// Where it waits or is carried out, as stored and as it will be.
    pub(crate) place_before: Place,
    pub(crate) place: Place,
    /// What is set aside for it, as stored and as it will be.
    pub(crate) set_aside_before: Vec<Amount>,
    pub(crate) set_aside: Vec<Amount>,
    /// Set for a step that is not stored yet.
    pub(crate) fresh: Option<Fresh>,
    /// Set where a claim may give the step away.
    pub(crate) details: Option<Details>,
    /// Whether its own row has to be written; its place is compared.
    pub(crate) changed: bool,
}

/// What only the insertion of a step needs.
#[derive(Debug)]
pub(crate) struct Fresh {
    pub(crate) input: String,
    pub(crate) reserve: Option<String>,
    pub(crate) scheduled_seq: i64,
}

/// What only a claim's answer needs.
#[derive(Debug, Clone)]
pub(crate) struct Details {
    pub(crate) run: RunId,
    pub(crate) kind: String,
    pub(crate) retry: RetryPolicy,
    pub(crate) scheduled_at: TimestampMs,
    pub(crate) input: Input,
}

/// Where the input of a step is.
#[derive(Debug, Clone)]
pub(crate) enum Input {
    /// In the order that scheduled it: place of the group, of the change in it, of the order in that.
    Ordered(usize, usize, usize),
    /// In the database.
    Stored,
}

/// A step is in one of these tables at most: none is for steps that are over, or whose run is paused.
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
    /// For the opening of the campaign's window, or for a retry.
    Timer {
        not_before: i64,
        for_window: bool,
    },
    Blocked {
        resource: Resource,
        told: bool,
    },
}

/// What admission has to know of a campaign.
#[derive(Debug)]
pub(crate) struct Campaign {
    pub(crate) id: i64,
    pub(crate) created_at: i64,
    pub(crate) schedule: Option<Schedule>,
    pub(crate) weight: u32,
    pub(crate) vtime_before: i64,
    pub(crate) vtime: i64,
    /// All lines where anything may be reserved or settled, else the one of wall time.
    pub(crate) budget_before: Vec<BudgetLine>,
    pub(crate) budget: Vec<BudgetLine>,
    /// Whether something was given back, so that blocked steps are to be looked at.
    pub(crate) freed: bool,
}

/// An event to be appended.
#[derive(Debug)]
pub(crate) struct NewEvent {
    pub(crate) run_id: i64,
    pub(crate) seq: i64,
    pub(crate) at: i64,
    pub(crate) kind: &'static str,
    pub(crate) body: String,
}

impl Campaign {
    /// The line of a resource, if its budget counts it.
    pub(crate) fn line_mut(&mut self, resource: Resource) -> Option<&mut BudgetLine> {
        self.budget.iter_mut().find(|line| line.resource == resource)
    }
}
