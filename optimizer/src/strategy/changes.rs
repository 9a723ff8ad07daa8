//! Reads the attempts that decisions changed, without the rest of a run's state.

use nightshift_engine::workflow::{StoredState, WorkflowError};
use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::model_call::ModelCallSummary;
use serde::Deserialize;

use super::attempt_step::AttemptStep;
use super::fix;
use super::state::{ATTEMPTS, Phase, Stored, unreadable};

/// The attempts that decisions changed in a run.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangedAttempts {
    /// The changed and new attempts, as [`super::view`] lists them.
    pub attempts: Vec<Attempt>,
    /// Number of the best correct attempt of the run.
    pub best_attempt: Option<u32>,
    /// All model calls of the run's failed steps.
    pub failed_calls: Vec<ModelCallSummary>,
}

/// The fields of a stored state that are read here.
#[derive(Deserialize)]
struct Head {
    best_attempt: Option<u32>,
    phase: Phase,
    #[serde(default)]
    failed_calls: Vec<ModelCallSummary>,
}

/// Returns the changed attempts of a run that had `known` attempts before.
///
/// Returns none if the whole state has to be read: other parts changed, or the run ended, perhaps in the middle of an
/// attempt.
pub fn changed_attempts(changed: StoredState, known: u32) -> Result<Option<ChangedAttempts>, WorkflowError> {
    let StoredState { head, parts } = changed;
    if parts.iter().any(|part| part.field != ATTEMPTS) {
        return Ok(None);
    }
    let Stored::<Head>::V1(head) = Stored::deserialize(&head).map_err(|error| unreadable(&error))?;
    if matches!(head.phase, Phase::Ended { .. }) {
        return Ok(None);
    }
    let count = parts.iter().map(|part| part.number).max().unwrap_or(0).max(known);
    let mut attempts = Vec::with_capacity(parts.len());
    for part in parts {
        let mut attempt: Attempt = serde_json::from_value(part.value).map_err(|error| unreadable(&error))?;
        if head.phase.writes_code_of(attempt.number, count) {
            fix::set_aside_version(&mut attempt);
        }
        attempts.push(attempt);
    }
    Ok(Some(ChangedAttempts { attempts, best_attempt: head.best_attempt, failed_calls: head.failed_calls }))
}

impl Phase {
    /// Returns whether the Coder is writing this attempt of `count`.
    fn writes_code_of(&self, number: u32, count: u32) -> bool {
        match self {
            Self::Attempting { step } => *step == AttemptStep::WriteCode && number == count,
            Self::Round { lanes } => {
                lanes.iter().any(|lane| lane.attempt == number && lane.step == Some(AttemptStep::WriteCode))
            }
            _ => false,
        }
    }
}
