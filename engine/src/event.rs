//! The append-only log of a run.

use nightshift_protocol::budget::Resource;
use nightshift_protocol::signal::Signal;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::time::TimestampMs;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An event. Stored as tagged JSON: variants are added, never changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The run was created. Always the first event.
    RunCreated {
        /// The workflow's input.
        input: Value,
    },
    /// A step was scheduled.
    StepScheduled {
        /// The step's key.
        key: String,
    },
    /// A step's result was committed.
    StepCompleted {
        /// The step's key.
        key: String,
        /// The step's result.
        output: Value,
    },
    /// A try of a step failed, and another try follows. While a step waits for the same reason again and again, only the
    /// first wait is logged.
    StepRetried {
        /// The step's key.
        key: String,
        /// Why the try failed.
        failure: StepFailure,
        /// Earliest start of the next try.
        at: TimestampMs,
    },
    /// A step cannot succeed: its failure was fatal, or its tries are used up.
    StepFailed {
        /// The step's key.
        key: String,
        /// The failure.
        failure: StepFailure,
    },
    /// A step was cancelled before it was committed.
    StepCancelled {
        /// The step's key.
        key: String,
    },
    /// The run was paused.
    RunPaused {
        /// Name of the caller's token.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// The run was resumed.
    RunResumed {
        /// Name of the caller's token.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// Cancellation of the run was requested.
    RunCancelRequested {
        /// Name of the caller's token.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// Every step of a cancelled run has ended.
    RunCancelled,
    /// Failed steps of the run were scheduled again.
    RunRetried {
        /// The keys of those steps.
        keys: Vec<String>,
        /// Name of the caller's token.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// The run received a signal.
    SignalReceived {
        /// The signal.
        signal: Signal,
        /// Name of the caller's token.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// A step cannot begin because the campaign's budget is exhausted. The step stays as it is, and the workflow ends
    /// the run.
    BudgetExhausted {
        /// The step's key.
        key: String,
        /// The exhausted resource.
        resource: Resource,
    },
    /// The workflow ended the run.
    RunCompleted {
        /// The workflow's result.
        result: Value,
    },
    /// The run ended because a step cannot succeed.
    RunFailed {
        /// The failure.
        failure: StepFailure,
    },
}

impl Event {
    /// Returns the stored and printed name.
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

    /// Returns whether the event requires a decision of the driver.
    ///
    /// `StepScheduled` is caused by a decision itself, and `StepRetried` leaves the step open. Both are folded together
    /// with the next event that requires a decision.
    #[must_use]
    pub fn requires_decision(&self) -> bool {
        !matches!(self, Self::StepScheduled { .. } | Self::StepRetried { .. })
    }

    /// Returns the step's key, for events of a step.
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

/// An event with its position in the log.
#[derive(Debug, Clone, PartialEq)]
pub struct EventRecord {
    /// Position in the run's log, from 1, without gaps.
    pub seq: u64,
    /// When it was appended.
    pub at: TimestampMs,
    /// The event.
    pub event: Event,
}
