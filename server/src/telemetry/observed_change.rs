//! The observed parts of changes.

use nightshift_engine::store::{Change, TryEnd};
use nightshift_protocol::id::{RunId, StepId};
use nightshift_protocol::time::TimestampMs;

use super::metrics::Outcome;

/// The observed part of a change.
pub(super) enum ObservedChange {
    Report { step: StepId, epoch: u64, outcome: Outcome, error: Option<String>, at: TimestampMs },
    Advance { run: RunId, ends_at: Option<TimestampMs> },
    Claim,
}

impl ObservedChange {
    pub(super) fn of(change: &Change) -> Self {
        match change {
            Change::Report(report) => {
                let (outcome, error) = match &report.end {
                    TryEnd::Completed { .. } => (Outcome::Completed, None),
                    TryEnd::Retry { failure, .. } | TryEnd::Wait { failure, .. } => {
                        (Outcome::Retried, Some(failure.code.clone()))
                    }
                    TryEnd::Failed { failure } => (Outcome::Failed, Some(failure.code.clone())),
                    TryEnd::Cancelled => (Outcome::Cancelled, None),
                };
                Self::Report { step: report.step.clone(), epoch: report.epoch, outcome, error, at: report.at }
            }
            Change::Advance(advance) => {
                Self::Advance { run: advance.run.clone(), ends_at: advance.end.as_ref().map(|_| advance.at) }
            }
            Change::Claim(_) => Self::Claim,
        }
    }
}
