//! Runs: as stored, who owns them, and the decisions that are committed for them.

use nightshift_protocol::id::{CampaignId, RunId, ServerId, StepId};
use nightshift_protocol::run::{RunStatus, RunTransition};
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::time::TimestampMs;
use serde_json::Value;

use crate::event::Event;
use crate::workflow::{StepOrder, StoredState};

/// A run as stored.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRecord {
    /// Id.
    pub id: RunId,
    /// Its campaign.
    pub campaign: CampaignId,
    /// Where it stands.
    pub status: RunStatus,
    /// Counts every advance and every change of status; the compare-and-set guard.
    pub revision: u64,
    /// The folded state as one document; none before the first advance, and none in lists.
    pub state: Option<Value>,
    /// Number of stored parts of the state.
    pub state_parts: u32,
    /// Events up to here are folded into the state.
    pub folded_seq: u64,
    /// The last event of the log.
    pub last_seq: u64,
    /// What lists show.
    pub digest: Value,
    /// Why it failed.
    pub failure: Option<StepFailure>,
    /// The server life that owns it, and how often ownership changed: the fence of its decisions.
    pub owner: Option<ServerId>,
    /// See [`Self::owner`].
    pub owner_epoch: u64,
    /// Head start of its steps.
    pub priority: i32,
    /// Signals that it waits for: gates that a person has to open.
    pub awaits: Vec<String>,
    /// When it was created.
    pub created_at: TimestampMs,
    /// When it ended.
    pub finished_at: Option<TimestampMs>,
}

/// A run that this process created, as it stood right after: one event in its log, no state, no steps.
#[derive(Debug, Clone, PartialEq)]
pub struct CreatedRun {
    /// The run.
    pub run: RunRecord,
    /// The workflow's input, from the only event.
    pub input: Value,
}

/// One decision of the driver, committed as a whole or not at all.
#[derive(Debug, Clone)]
pub struct Advance {
    /// The run.
    pub run: RunId,
    /// The revision that the decision was made from.
    pub revision: u64,
    /// Events up to here are folded into the new state.
    pub folded_seq: u64,
    /// The last event of the log when the decision is committed, before its own events: with any other one it is a
    /// [`Advanced::Conflict`]. Asked for by a decision that was made before the event that it folds was committed, and by
    /// one that nothing may come before. None: events after `folded_seq` are left to the next decision.
    ///
    /// When the change right before it in the same commit is a [`super::Change::Report`], that report has to have
    /// appended this very event, now and not by an earlier copy; else it is a conflict too: without that, the end of a
    /// lost lease that put another event in this place would be taken for the report that it made late.
    pub expects_last_seq: Option<u64>,
    /// The new state: its head, and the parts that changed; the other parts stay as they are. None: the state stays.
    pub state: Option<StoredState>,
    /// What lists show.
    pub digest: Value,
    /// Steps to be scheduled, with their new ids. A key that exists is left as it is; a decision that ends the run
    /// schedules nothing.
    pub schedule: Vec<(StepId, StepOrder)>,
    /// How the run ends with this decision, and the event that says so.
    pub end: Option<(RunTransition, Event)>,
    /// Signals that the run now waits for.
    pub awaits: Vec<String>,
    /// Whose decision it is; none: ownership is not looked at.
    pub fence: Option<OwnerFence>,
    /// When.
    pub at: TimestampMs,
}

/// Who decides for a run, fenced: a server that lost the run decides nothing any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerFence {
    /// The server life.
    pub server: ServerId,
    /// The run's owner epoch that it got.
    pub epoch: u64,
}

/// What became of a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Advanced {
    /// It is committed.
    Committed {
        /// The run's revision now.
        revision: u64,
        /// The last event of its log now: those of the decision are the last ones.
        last_seq: u64,
    },
    /// Somebody else decided in between: load and decide again.
    Conflict,
    /// The run belongs to another server now.
    NotOwner,
}

impl Advanced {
    /// Whether it is committed.
    #[must_use]
    pub fn is_committed(&self) -> bool {
        matches!(self, Self::Committed { .. })
    }
}

/// Who owns a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ownership {
    /// The asking server, under this epoch.
    Mine(OwnerFence),
    /// Another one that is alive.
    Other(ServerId),
    /// A newer release owned it last: its state may have what the asking server would lose.
    TooNew {
        /// The format of its state.
        state_format: u32,
    },
    /// Its campaign is handed over to another machine: no server here decides for it.
    HandedOver,
    /// The run is over.
    Over,
}
