//! The append-only log of a run.

use nightshift_protocol::budget::Resource;
use nightshift_protocol::signal::Signal;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::time::TimestampMs;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What happened. Stored as tagged JSON; a variant is never changed, only joined by others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The run exists. Always the first event.
    RunCreated {
        /// The workflow's input.
        input: Value,
    },
    /// A step was scheduled.
    StepScheduled {
        /// Its key.
        key: String,
    },
    /// A step's result was committed.
    StepCompleted {
        /// Its key.
        key: String,
        /// Its result.
        output: Value,
    },
    /// A try of a step failed, and another follows.
    StepRetried {
        /// Its key.
        key: String,
        /// Why the try failed.
        failure: StepFailure,
        /// When the next try may begin.
        at: TimestampMs,
    },
    /// A step cannot succeed: its failure was fatal, or its tries are used up.
    StepFailed {
        /// Its key.
        key: String,
        /// Why.
        failure: StepFailure,
    },
    /// A step was cancelled before it was committed.
    StepCancelled {
        /// Its key.
        key: String,
    },
    /// Somebody paused the run.
    RunPaused {
        /// Who asked, as their token is named.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// Somebody resumed the run.
    RunResumed {
        /// Who asked, as their token is named.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// Somebody cancelled the run.
    RunCancelRequested {
        /// Who asked, as their token is named.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// Every step of a cancelled run is over.
    RunCancelled,
    /// Somebody asked to begin again from failed steps.
    RunRetried {
        /// The keys of the steps that are scheduled anew.
        keys: Vec<String>,
        /// Who asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// Somebody told the run something.
    SignalReceived {
        /// What.
        signal: Signal,
        /// Who.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// A step cannot begin, because the campaign cannot afford it. It stays as it is; the workflow ends the run.
    BudgetExhausted {
        /// The step's key.
        key: String,
        /// What is used up.
        resource: Resource,
    },
    /// The workflow ended the run.
    RunCompleted {
        /// The workflow's result.
        result: Value,
    },
    /// The run ended because a step cannot succeed.
    RunFailed {
        /// Why.
        failure: StepFailure,
    },
}

impl Event {
    /// The stored and printed name.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::RunCreated { .. } => "run_created",
            Self::StepScheduled { .. } => "step_scheduled",
            Self::StepCompleted { .. } => "step_completed",
            Self::StepRetried { .. } => "step_retried",
            Self::StepFailed { .. } => "step_failed",
            Self::StepCancelled { .. } => "step_cancelled",
            Self::RunPaused { .. } => "run_paused",
            Self::RunResumed { .. } => "run_resumed",
            Self::RunCancelRequested { .. } => "run_cancel_requested",
            Self::RunCancelled => "run_cancelled",
            Self::RunRetried { .. } => "run_retried",
            Self::SignalReceived { .. } => "signal_received",
            Self::BudgetExhausted { .. } => "budget_exhausted",
            Self::RunCompleted { .. } => "run_completed",
            Self::RunFailed { .. } => "run_failed",
        }
    }

    /// Whether the driver looks at the run because of it. `StepScheduled` is what a decision itself caused, and
    /// `StepRetried` leaves the step as open as it was: both are folded together with the next event that does.
    #[must_use]
    pub fn asks_for_a_decision(&self) -> bool {
        !matches!(self, Self::StepScheduled { .. } | Self::StepRetried { .. })
    }

    /// The step's key, for events of a step.
    #[must_use]
    pub fn step_key(&self) -> Option<&str> {
        match self {
            Self::StepScheduled { key }
            | Self::StepCompleted { key, .. }
            | Self::StepRetried { key, .. }
            | Self::StepFailed { key, .. }
            | Self::StepCancelled { key }
            | Self::BudgetExhausted { key, .. } => Some(key),
            _ => None,
        }
    }
}

/// An event in its place.
#[derive(Debug, Clone, PartialEq)]
pub struct EventRecord {
    /// Position in the run's log, from 1, without gaps.
    pub seq: u64,
    /// When it was appended.
    pub at: TimestampMs,
    /// The event.
    pub event: Event,
}
