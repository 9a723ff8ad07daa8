//! Runs: stored records, and decisions.

use async_trait::async_trait;
use nightshift_protocol::id::{CampaignId, RunId, ServerId, StepId};
use nightshift_protocol::run::{RunStatus, RunTransition};
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::time::TimestampMs;
use serde_json::Value;

use super::{PageRequest, StepRecord, StoreError};
use crate::event::{Event, EventRecord};
use crate::workflow::{StepOrder, StoredState};

/// A run as stored.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRecord {
    /// Id.
    pub id: RunId,
    /// Its campaign.
    pub campaign: CampaignId,
    /// The status.
    pub status: RunStatus,
    /// Revision for compare-and-set; counts every advance and every change of status.
    pub revision: u64,
    /// The folded state as one document. None before the first advance, and none in lists.
    pub state: Option<Value>,
    /// Number of stored parts of the state.
    pub state_parts: u32,
    /// Events up to here are folded into the state.
    pub folded_seq: u64,
    /// The last event of the log.
    pub last_seq: u64,
    /// The few facts that lists show.
    pub digest: Value,
    /// The failure, if the run failed.
    pub failure: Option<StepFailure>,
    /// The server that owns the run. Together with `owner_epoch`, it fences decisions.
    pub owner: Option<ServerId>,
    /// Number of ownership changes. See [`Self::owner`].
    pub owner_epoch: u64,
    /// Priority of its steps.
    pub priority: i32,
    /// Signals that the run waits for: gates that a person has to open.
    pub awaits: Vec<String>,
    /// Creation time.
    pub created_at: TimestampMs,
    /// End time.
    pub finished_at: Option<TimestampMs>,
}

/// A run that this process created, right after its creation: one event in the log, no state, no steps.
#[derive(Debug, Clone, PartialEq)]
pub struct CreatedRun {
    /// The run.
    pub run: RunRecord,
    /// The workflow's input, from the only event.
    pub input: Value,
}

/// A decision of the driver, committed as a whole or not at all.
#[derive(Debug, Clone)]
pub struct Advance {
    /// The run.
    pub run: RunId,
    /// The revision that the decision is based on.
    pub revision: u64,
    /// Events up to here are folded into the new state.
    pub folded_seq: u64,
    /// The expected last event of the log at the commit, before the decision's own events. Another last event is an
    /// [`Advanced::Conflict`].
    ///
    /// Set for a decision that was made before the event that it folds was committed, and for one that must be the
    /// first. Without it, events after `folded_seq` are left to the next decision.
    ///
    /// If the change right before it in the same commit is a [`super::Change::Report`], that very report must have
    /// appended this event. Otherwise it is a conflict too. Without this check, a late report could be confused with
    /// the end of its lease, which put another event in this place.
    pub expects_last_seq: Option<u64>,
    /// The new state: its head and the changed parts. Other parts stay as they are. None leaves the state unchanged.
    pub state: Option<StoredState>,
    /// The few facts that lists show.
    pub digest: Value,
    /// Steps to schedule, with their new ids. An existing key is left unchanged. A decision that ends the run schedules
    /// nothing.
    pub schedule: Vec<(StepId, StepOrder)>,
    /// The end of the run, with its event, if this decision ends it.
    pub end: Option<(RunTransition, Event)>,
    /// Signals that the run now waits for.
    pub awaits: Vec<String>,
    /// Owner of the decision. None skips the ownership check.
    pub fence: Option<OwnerFence>,
    /// Time of the decision.
    pub at: TimestampMs,
}

/// The owner of a run, as a fence: a server that lost the run can commit no further decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerFence {
    /// The server lease.
    pub server: ServerId,
    /// The owner epoch that the server acquired.
    pub epoch: u64,
}

/// Outcome of a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Advanced {
    /// It is committed.
    Committed {
        /// The run's new revision.
        revision: u64,
        /// The new last event of its log. The events of the decision are the last ones.
        last_seq: u64,
    },
    /// Another decision was committed in between: load and decide again.
    Conflict,
    /// The run belongs to another server now.
    NotOwner,
}

impl Advanced {
    /// Returns whether the decision is committed.
    #[must_use]
    pub fn is_committed(&self) -> bool {
        matches!(self, Self::Committed { .. })
    }
}

/// Reading runs with their logs and steps.
#[async_trait]
pub trait RunStore: Send + Sync {
    /// Lists runs without their state, newest first. Runs of one campaign come in the order of its tasks.
    async fn list_runs(
        &self,
        campaign: Option<&CampaignId>,
        status: Option<RunStatus>,
        page: PageRequest,
    ) -> Result<Vec<RunRecord>, StoreError>;

    /// Loads one run with its state.
    async fn load_run(&self, id: &RunId) -> Result<RunRecord, StoreError>;

    /// Returns the status of a run.
    async fn run_status(&self, id: &RunId) -> Result<RunStatus, StoreError>;

    /// Returns events after `after`, oldest first: at most `limit`, and fewer if they are large. Returns an empty list
    /// only if no further events exist.
    async fn events_after(&self, run: &RunId, after: u64, limit: u32) -> Result<Vec<EventRecord>, StoreError>;

    /// Lists the steps of a run in the order of their scheduling, without the large fields. Input reads as `null`,
    /// output as none.
    async fn list_step_heads(&self, run: &RunId) -> Result<Vec<StepRecord>, StoreError>;
}
