//! The folded state of a run, as it is stored.

use nightshift_engine::workflow::{StatePart, StoredState, WorkflowError, WorkflowState};
use nightshift_protocol::attempt::{Attempt, StopReason};
use nightshift_protocol::campaign::RunInput;
use nightshift_protocol::machine::Executor;
use nightshift_protocol::model_call::ModelCallSummary;
use nightshift_protocol::plan::{PlanVersion, Subtask};
use nightshift_protocol::signal::Gate;
use nightshift_protocol::step::PreparedTask;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::attempt_step::AttemptStep;
use super::fix;
use super::goal::Limits;
use super::shared::Shared;

/// Name of the list of attempts in a stored state.
pub(super) const ATTEMPTS: &str = "attempts";

/// Bytes that a state takes in memory in addition to what it shares.
const STATE_BYTES: usize = 1024;

/// The stored form: the tag names the version of the state, which all strategies share. A new version becomes a new
/// variant, and the old one is read forever. The first one bears the name of the strategy that was there first.
#[derive(Serialize, Deserialize)]
#[serde(tag = "state")]
pub(super) enum Stored<S> {
    #[serde(rename = "stitch.1")]
    V1(S),
}

/// Everything that is known about a run, and what it waits for. What is shared is stored in parts, which a decision writes
/// only when it has changed them. States of format 1 are one document with the same fields.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunState {
    #[serde(skip_serializing)]
    pub(super) input: Shared<RunInput>,
    #[serde(default, skip_serializing)]
    pub(super) prepared: Option<Shared<PreparedTask>>,
    #[serde(default, skip_serializing)]
    pub(super) plans: Vec<Shared<PlanVersion>>,
    /// Numbered from 1 without gaps. While the phase is `Attempting`, the last one is in the works; in a `Round`, those of
    /// its lanes.
    #[serde(default, skip_serializing)]
    pub(super) attempts: Vec<Shared<Attempt>>,
    pub(super) best_attempt: Option<u32>,
    pub(super) phase: Phase,
    /// Model calls of failed steps. States that were stored before it was kept have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) failed_calls: Vec<ModelCallSummary>,
    /// What people advised, oldest first, bounded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) hints: Vec<String>,
}

/// What the run waits for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub(super) enum Phase {
    Preparing,
    Planning,
    Replanning {
        reason: String,
    },
    Attempting {
        step: AttemptStep,
    },
    /// Several attempts are in the works at the same time, the last ones of the run.
    Round {
        lanes: Vec<Lane>,
    },
    /// A person has to open a gate.
    Waiting {
        gate: Gate,
    },
    Ended {
        reason: StopReason,
    },
}

/// An attempt of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Lane {
    /// Its number.
    pub(super) attempt: u32,
    /// Its open step; none when it is finished.
    pub(super) step: Option<AttemptStep>,
}

/// What a completed step belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Open {
    /// The run as a whole: its task or its plan.
    Run,
    /// An attempt.
    Attempt { number: u32, step: AttemptStep },
}

impl RunState {
    pub(super) fn new(input: RunInput) -> Self {
        Self {
            input: Shared::new(input),
            prepared: None,
            plans: Vec::new(),
            attempts: Vec::new(),
            best_attempt: None,
            phase: Phase::Preparing,
            failed_calls: Vec::new(),
            hints: Vec::new(),
        }
    }

    pub(super) fn limits(&self) -> Limits {
        Limits::of(&self.input.goal)
    }

    pub(super) fn attempt(&self, number: u32) -> Option<&Attempt> {
        let index = usize::try_from(number.checked_sub(1)?).ok()?;
        self.attempts.get(index).map(|attempt| &**attempt)
    }

    /// All attempts, by number.
    pub(super) fn attempts(&self) -> impl DoubleEndedIterator<Item = &Attempt> {
        self.attempts.iter().map(|attempt| &**attempt)
    }

    pub(super) fn best(&self) -> Option<&Attempt> {
        self.best_attempt.and_then(|number| self.attempt(number))
    }

    /// How many attempts there are, the open one included.
    pub(super) fn attempt_count(&self) -> u32 {
        u32::try_from(self.attempts.len()).unwrap_or(u32::MAX)
    }

    /// Plans after the first.
    pub(super) fn replan_count(&self) -> u32 {
        u32::try_from(self.plans.len().saturating_sub(1)).unwrap_or(u32::MAX)
    }

    /// The plan in force.
    pub(super) fn plan(&self) -> Result<&PlanVersion, WorkflowError> {
        self.plans.last().map(|plan| &**plan).ok_or_else(|| broken("it has no plan"))
    }

    pub(super) fn prepared(&self) -> Result<&PreparedTask, WorkflowError> {
        self.prepared.as_deref().ok_or_else(|| broken("its task is not prepared"))
    }

    /// An attempt that has to be there.
    pub(super) fn wanted_attempt(&self, number: u32) -> Result<&Attempt, WorkflowError> {
        self.attempt(number).ok_or_else(|| broken(&format!("it has no attempt {number}")))
    }

    /// The same, to be changed.
    pub(super) fn wanted_attempt_mut(&mut self, number: u32) -> Result<&mut Attempt, WorkflowError> {
        let index = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
        let found = index.and_then(|index| self.attempts.get_mut(index));
        found.map(Shared::make_mut).ok_or_else(|| broken(&format!("it has no attempt {number}")))
    }

    /// Subtask `number` of the plan in force, from 1.
    pub(super) fn subtask(&self, number: u32) -> Option<&Subtask> {
        let index = usize::try_from(number.checked_sub(1)?).ok()?;
        self.plans.last()?.plan.subtasks.get(index)
    }

    /// What is open, with its key: nothing when the run ended or waits for a person.
    pub(super) fn open_steps(&self) -> Vec<(String, Open)> {
        let of_attempt = |number: u32, step: AttemptStep| {
            let attempt = self.attempt(number)?;
            let key = format!("{}/{}", attempt.folder(), fix::step_name(attempt, step));
            Some((key, Open::Attempt { number, step }))
        };
        match &self.phase {
            Phase::Preparing => vec![("prepare_task".to_owned(), Open::Run)],
            Phase::Planning => vec![("plan".to_owned(), Open::Run)],
            Phase::Replanning { .. } => vec![(format!("replan{}", self.plans.len() + 1), Open::Run)],
            Phase::Attempting { step } => of_attempt(self.attempt_count(), *step).into_iter().collect(),
            Phase::Round { lanes } => lanes.iter().filter_map(|lane| of_attempt(lane.attempt, lane.step?)).collect(),
            Phase::Waiting { .. } | Phase::Ended { .. } => Vec::new(),
        }
    }

    /// What the step of this key belongs to, while it is open.
    pub(super) fn open(&self, key: &str) -> Option<Open> {
        self.open_steps().into_iter().find(|(open, _)| open == key).map(|(_, open)| open)
    }

    /// Whether an open step of this key asks a model.
    pub(super) fn asks_a_model(&self, key: &str) -> bool {
        match self.open(key) {
            Some(Open::Attempt { step, .. }) => step.kind().executor() == Executor::Agent,
            Some(Open::Run) => matches!(self.phase, Phase::Planning | Phase::Replanning { .. }),
            None => false,
        }
    }

    /// Attempts before this one that it may look back on: those of its own round are as new as it is.
    pub(super) fn earlier_than(&self, number: u32) -> &[Shared<Attempt>] {
        let first = match &self.phase {
            Phase::Round { lanes } if lanes.iter().any(|lane| lane.attempt == number) => {
                lanes.iter().map(|lane| lane.attempt).min().unwrap_or(number)
            }
            _ => number,
        };
        let count = usize::try_from(first.saturating_sub(1)).unwrap_or(usize::MAX);
        self.attempts.get(..count).unwrap_or(&[])
    }

    /// What the run does or waits for, for people.
    pub(super) fn activity(&self) -> String {
        match &self.phase {
            Phase::Preparing => "prepare the task".to_owned(),
            Phase::Planning => "plan".to_owned(),
            Phase::Replanning { .. } => format!("replan, version {}", self.plans.len() + 1),
            Phase::Attempting { step } => match self.attempts.last() {
                Some(attempt) => {
                    let step = fix::step_name(attempt, *step);
                    format!("subtask {}, attempt {}: {step}", attempt.subtask, attempt.number)
                }
                None => step.as_str().to_owned(),
            },
            Phase::Round { lanes } => {
                let done = lanes.iter().filter(|lane| lane.step.is_none()).count();
                let numbers: Vec<String> = lanes.iter().map(|lane| lane.attempt.to_string()).collect();
                format!("round of attempts {}: {done} of {} finished", numbers.join(", "), lanes.len())
            }
            Phase::Waiting { gate: Gate::Plan } => {
                format!("wait for approval of plan {}", self.plans.len())
            }
            Phase::Waiting { gate: Gate::NewBest } => {
                format!("wait for approval of attempt {}", self.best_attempt.unwrap_or_default())
            }
            Phase::Ended { reason } => format!("ended: {}", reason.as_str()),
        }
    }

    pub(super) fn stop_reason(&self) -> Option<&StopReason> {
        match &self.phase {
            Phase::Ended { reason } => Some(reason),
            _ => None,
        }
    }
}

impl WorkflowState for RunState {
    fn read(document: &Value) -> Result<Self, WorkflowError> {
        let Stored::<Self>::V1(state) = Stored::deserialize(document).map_err(|error| unreadable(&error))?;
        Ok(state)
    }

    fn write(&self, before: Option<&Self>) -> Result<StoredState, WorkflowError> {
        let mut parts = Vec::new();
        let known = before.map(|before| &before.input);
        parts.extend(part("input", 0, &self.input, known)?);
        if let Some(prepared) = &self.prepared {
            let known = before.and_then(|before| before.prepared.as_ref());
            parts.extend(part("prepared", 0, prepared, known)?);
        }
        parts.extend(list("plans", &self.plans, before.map(|before| &*before.plans))?);
        parts.extend(list(ATTEMPTS, &self.attempts, before.map(|before| &*before.attempts))?);
        Ok(StoredState { head: serde_json::to_value(Stored::V1(self)).map_err(|error| unreadable(&error))?, parts })
    }

    fn weight_bytes(&self) -> usize {
        STATE_BYTES
            + self.input.weight_bytes()
            + self.prepared.as_ref().map_or(0, Shared::weight_bytes)
            + self.plans.iter().map(Shared::weight_bytes).sum::<usize>()
            + self.attempts.iter().map(Shared::weight_bytes).sum::<usize>()
            + self.failed_calls.len() * size_of::<ModelCallSummary>()
            + self.hints.iter().map(String::len).sum::<usize>()
    }
}

/// Returns a part unless it is the one that is stored.
fn part<T: Serialize>(
    field: &str,
    number: u32,
    value: &Shared<T>,
    known: Option<&Shared<T>>,
) -> Result<Option<StatePart>, WorkflowError> {
    if known.is_some_and(|known| known.is(value)) {
        return Ok(None);
    }
    let value = serde_json::to_value(value).map_err(|error| unreadable(&error))?;
    Ok(Some(StatePart { field: field.to_owned(), number, value }))
}

/// Returns the entries of a list that are not stored as they are.
fn list<T: Serialize>(
    field: &str,
    values: &[Shared<T>],
    known: Option<&[Shared<T>]>,
) -> Result<Vec<StatePart>, WorkflowError> {
    let known = known.unwrap_or_default().iter().map(Some).chain(std::iter::repeat(None));
    let parts = (1..).zip(values).zip(known);
    parts.filter_map(|((number, value), known)| part(field, number, value, known).transpose()).collect()
}

pub(super) fn unreadable(error: &serde_json::Error) -> WorkflowError {
    WorkflowError::Unreadable { what: "run state", message: error.to_string() }
}

/// A stored state that this code cannot have written.
pub(super) fn broken(message: &str) -> WorkflowError {
    WorkflowError::Unreadable { what: "run state", message: message.to_owned() }
}
