//! A workflow of phases with parallel steps and optional gates. Its state contains everything that it saw, so two
//! histories are equal exactly if their states are.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use nightshift_engine::clock::{Clock, Random};
use nightshift_engine::event::Event;
use nightshift_engine::retry::RetryPolicy;
use nightshift_engine::workflow::{Command, StatePart, StepOrder, StoredState, Workflow, WorkflowError, WorkflowState};
use nightshift_protocol::machine::Needs;
use nightshift_protocol::signal::Signal;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::time::TimestampMs;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Code of a failure after which a run continues.
pub(crate) const SOFT: &str = "soft";

/// A phase.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Phase {
    /// Number of parallel steps.
    pub(crate) width: usize,
    /// Whether an approval is needed first.
    pub(crate) gate: bool,
    /// Whether it schedules a step of the first phase again, which has no effect: a dead end.
    pub(crate) stuck: bool,
}

/// Stored as a head, and a part per folded event.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct State {
    phases: Vec<Phase>,
    over: Vec<String>,
    approvals: usize,
    exhausted: bool,
    /// The folded events, in order.
    #[serde(default, skip_serializing)]
    seen: Vec<Value>,
}

/// The workflow.
pub(crate) struct Toy;

impl WorkflowState for State {
    fn read(document: &Value) -> Result<Self, WorkflowError> {
        Self::deserialize(document).map_err(|error| unreadable(&error))
    }

    fn write(&self, before: Option<&Self>) -> Result<StoredState, WorkflowError> {
        let known = before.map_or(0, |before| before.seen.len());
        let part =
            |(number, value): (u32, &Value)| StatePart { field: "seen".to_owned(), number, value: value.clone() };
        let head = serde_json::to_value(self).map_err(|error| unreadable(&error))?;
        Ok(StoredState { head, parts: (1..).zip(&self.seen).skip(known).map(part).collect() })
    }

    fn weight_bytes(&self) -> usize {
        self.seen.iter().map(WorkflowState::weight_bytes).sum()
    }
}

fn unreadable(error: &serde_json::Error) -> WorkflowError {
    WorkflowError::Unreadable { what: "toy", message: error.to_string() }
}

impl Workflow for Toy {
    type State = State;

    fn apply(&self, state: Option<State>, event: &Event) -> Result<State, WorkflowError> {
        let mut state = match (state, event) {
            (None, Event::RunCreated { input }) => State {
                phases: serde_json::from_value(input.clone()).map_err(|error| unreadable(&error))?,
                over: Vec::new(),
                approvals: 0,
                exhausted: false,
                seen: Vec::new(),
            },
            (Some(state), _) => state,
            (None, event) => {
                return Err(WorkflowError::OutOfOrder { event: event.kind().to_owned(), message: "no run".to_owned() });
            }
        };
        match event {
            Event::StepCompleted { key, .. } => state.over.push(key.clone()),
            Event::StepFailed { key, failure } if failure.code == SOFT => state.over.push(key.clone()),
            Event::SignalReceived { signal: Signal::Approved { .. }, .. } => state.approvals += 1,
            Event::BudgetExhausted { .. } => state.exhausted = true,
            _ => {}
        }
        state.seen.push(serde_json::to_value(event).map_err(|error| unreadable(&error))?);
        Ok(state)
    }

    fn decide(&self, state: &State) -> Result<Vec<Command>, WorkflowError> {
        if state.exhausted {
            return Ok(vec![Command::Complete { result: json!("exhausted") }]);
        }
        let mut gates = 0;
        for (number, phase) in state.phases.iter().enumerate() {
            if phase.gate {
                gates += 1;
                if state.approvals < gates {
                    return Ok(vec![Command::Await { signal: format!("gate {gates}") }]);
                }
            }
            if phase.stuck {
                return Ok(vec![Command::Schedule(order("phase0/step0"))]);
            }
            let keys = (0..phase.width).map(|step| format!("phase{number}/step{step}"));
            let open: Vec<String> = keys.filter(|key| !state.over.contains(key)).collect();
            if !open.is_empty() {
                return Ok(open.iter().map(|key| Command::Schedule(order(key))).collect());
            }
        }
        Ok(vec![Command::Complete { result: json!(state.over) }])
    }

    fn digest(&self, state: &State) -> Result<Value, WorkflowError> {
        Ok(json!({ "over": state.over.len() }))
    }

    fn outlives(&self, failure: &StepFailure) -> bool {
        failure.code == SOFT
    }
}

fn order(key: &str) -> StepOrder {
    StepOrder {
        key: key.to_owned(),
        kind: "toy".to_owned(),
        needs: Needs::agent(),
        input: json!({ "key": key }),
        timeout_ms: 1_000,
        retry: RetryPolicy { max_tries: 3, first_delay_ms: 100, max_delay_ms: 100 },
        cost_ms: 1,
        reserve: Vec::new(),
    }
}

/// A clock that only changes when it is set.
#[derive(Default)]
pub(crate) struct SetClock(AtomicI64);

impl SetClock {
    pub(crate) fn advance_ms(&self, by_ms: i64) {
        self.0.fetch_add(by_ms, Ordering::SeqCst);
    }
}

impl Clock for SetClock {
    fn now(&self) -> TimestampMs {
        TimestampMs(self.0.load(Ordering::SeqCst))
    }
}

/// Sequential ids, and no jitter.
#[derive(Default)]
pub(crate) struct Counting(AtomicU64);

impl Random for Counting {
    fn uuid(&self) -> u128 {
        u128::from(self.0.fetch_add(1, Ordering::SeqCst)) + 1
    }

    fn unit(&self) -> f64 {
        0.0
    }
}
