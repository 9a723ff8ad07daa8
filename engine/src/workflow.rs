//! What a run does next, as a pure function of its history.

use nightshift_protocol::budget::Amount;
use nightshift_protocol::machine::Needs;
use nightshift_protocol::step::StepFailure;
use serde_json::Value;

use crate::event::Event;
use crate::retry::RetryPolicy;

mod erased;
mod state;

pub use erased::{AnyState, AnyWorkflow};
pub use state::{StatePart, StoredState, WorkflowState};

/// A decision.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Schedule a step. A key that exists already is left as it is.
    Schedule(StepOrder),
    /// Wait for a signal: as long as nothing else is open, the run waits for a person and not for a step.
    Await {
        /// What it waits for, for people: the name of a gate.
        signal: String,
    },
    /// End the run with a result.
    Complete {
        /// The result.
        result: Value,
    },
}

/// A step to be scheduled.
#[derive(Debug, Clone, PartialEq)]
pub struct StepOrder {
    /// Explicit and stable within the run, for example `subtask1/attempt3/build`.
    pub key: String,
    /// Kind, for lists.
    pub kind: String,
    /// What it needs.
    pub needs: Needs,
    /// What it is given.
    pub input: Value,
    /// How long one try may take, in milliseconds.
    pub timeout_ms: u64,
    /// How failures are treated.
    pub retry: RetryPolicy,
    /// How long one try is expected to take, in milliseconds: its price in the campaign's share of machines.
    pub cost_ms: u64,
    /// What is set aside when it becomes ready, and settled at the end of each try.
    pub reserve: Vec<Amount>,
}

/// A history that the workflow cannot read.
#[derive(Debug, thiserror::Error)]
pub enum WorkflowError {
    /// State or event is not what this workflow wrote.
    #[error("the stored {what} cannot be read: {message}")]
    Unreadable {
        /// What could not be read.
        what: &'static str,
        /// Why.
        message: String,
    },
    /// An event that cannot follow the state.
    #[error("the event {event} cannot follow the state: {message}")]
    OutOfOrder {
        /// The event.
        event: String,
        /// Why.
        message: String,
    },
}

/// A pure state machine over events. No I/O, no clock, no randomness: the same history gives the same decisions, in
/// every release.
pub trait Workflow: Send + Sync {
    /// The state of a run in memory.
    type State: WorkflowState;

    /// The state after an event; `None` before the first one.
    fn apply(&self, state: Option<Self::State>, event: &Event) -> Result<Self::State, WorkflowError>;

    /// The format in which states are written, and the highest one that can be read without losing anything. It is raised
    /// when states have something new that an earlier release would leave out. See `docs/explanation/upgrades.md`.
    fn state_format(&self) -> u32 {
        1
    }

    /// What to do in this state. May repeat what was already decided: keys make it idempotent. Must not wait for a
    /// `StepScheduled` alone, which is folded together with the next event of another kind.
    fn decide(&self, state: &Self::State) -> Result<Vec<Command>, WorkflowError>;

    /// Whether a run goes on after a step that failed for good like this: the workflow has folded the failure, and what
    /// it decides counts. Else the run fails with the failure.
    fn outlives(&self, failure: &StepFailure) -> bool {
        let _ = failure;
        false
    }

    /// The few facts that lists show.
    fn digest(&self, state: &Self::State) -> Result<Value, WorkflowError>;
}
