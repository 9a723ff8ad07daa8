//! Decides what a run does next, as a pure function of its history.

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
    /// Schedule a step. An existing key is left unchanged.
    Schedule(StepOrder),
    /// Wait for a signal. While nothing else is open, the run waits for a person and not for a step.
    Await {
        /// Name of the gate, for people.
        signal: String,
    },
    /// End the run with a result.
    Complete {
        /// The result.
        result: Value,
    },
}

/// A step to schedule.
#[derive(Debug, Clone, PartialEq)]
pub struct StepOrder {
    /// Explicit and stable within the run, for example `subtask1/attempt3/build`.
    pub key: String,
    /// Kind, for lists.
    pub kind: String,
    /// What it needs.
    pub needs: Needs,
    /// The input.
    pub input: Value,
    /// Timeout of one try, in milliseconds.
    pub timeout_ms: u64,
    /// Retry policy.
    pub retry: RetryPolicy,
    /// Expected duration of one try, in milliseconds. It is charged to the campaign's share of the machines.
    pub cost_ms: u64,
    /// Amounts that are reserved when the step becomes ready, and settled at the end of each try.
    pub reserve: Vec<Amount>,
}

/// A history that the workflow cannot read.
#[derive(Debug, thiserror::Error)]
pub enum WorkflowError {
    /// State or event has a form that this workflow did not write.
    #[error("the stored {what} cannot be read: {message}")]
    Unreadable {
        /// Name of the unreadable part.
        what: &'static str,
        /// The reason.
        message: String,
    },
    /// An event that cannot follow the state.
    #[error("the event {event} cannot follow the state: {message}")]
    OutOfOrder {
        /// The event.
        event: String,
        /// The reason.
        message: String,
    },
}

/// A pure state machine over events, without I/O, clock or randomness. In every release, the same history gives the
/// same decisions.
pub trait Workflow: Send + Sync {
    /// The state of a run in memory.
    type State: WorkflowState;

    /// Returns the state after an event. `None` is the state before the first event.
    fn apply(&self, state: Option<Self::State>, event: &Event) -> Result<Self::State, WorkflowError>;

    /// Returns the format of written states, which is also the highest format that can be read without loss.
    ///
    /// Raise it when states have new fields that an earlier release would drop. See `docs/explanation/upgrades.md`.
    fn state_format(&self) -> u32 {
        1
    }

    /// Decides what to do in this state. It may repeat earlier decisions, because keys make them idempotent.
    ///
    /// It must not wait for a `StepScheduled` alone, which is folded together with the next event of another kind.
    fn decide(&self, state: &Self::State) -> Result<Vec<Command>, WorkflowError>;

    /// Returns whether a run continues after a step failed for good with this failure.
    ///
    /// If true, the workflow has folded the failure and its decision counts. If false, the run fails with the failure.
    fn outlives(&self, failure: &StepFailure) -> bool {
        let _ = failure;
        false
    }

    /// Returns the few facts that lists show.
    fn digest(&self, state: &Self::State) -> Result<Value, WorkflowError>;
}
