//! The workload that every engine of `benches/peers` runs, too: a workflow of sequential steps that add one.
//!
//! The number travels in what the steps are given and give back, so every result depends on every step before it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use nightshift_engine::event::Event;
use nightshift_engine::retry::RetryPolicy;
use nightshift_engine::workflow::{Command, StepOrder, Workflow, WorkflowError};
use nightshift_protocol::api::RunView;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::campaign::{ModelChoice, RunInput};
use nightshift_protocol::machine::Needs;
use nightshift_protocol::step::{StepFailure, StepInput, StepKind, StepOutput};
use nightshift_protocol::task::{Target, TaskGoal};
use serde_json::{Value, json};

/// Sequential steps in each workflow of the comparison.
pub(crate) const STEPS_PER_WORKFLOW: u64 = 10;

/// Longest time that one try may take.
const TIMEOUT_MS: u64 = 600_000;

/// A workflow of `steps` steps.
#[derive(Debug)]
pub(crate) struct Trivial {
    pub(crate) steps: u64,
    pub(crate) needs: Needs,
    /// The time at which each step was decided.
    pub(crate) decided: Option<Arc<Decided>>,
}

/// When steps were decided, by the number of their run and their place in it.
#[derive(Debug, Default)]
pub(crate) struct Decided(Mutex<HashMap<(u64, u64), Instant>>);

impl Decided {
    fn note(&self, first: u64, place: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry((first, place)).or_insert_with(Instant::now);
    }

    /// Takes the moment at which this step was decided.
    pub(crate) fn take(&self, first: u64, place: u64) -> Option<Instant> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&(first, place))
    }
}

/// The key of the step at this place, from 1.
pub(crate) fn key(place: u64) -> String {
    format!("step{place}")
}

/// The place of a step with this key.
pub(crate) fn place(key: &str) -> Option<u64> {
    key.strip_prefix("step")?.parse().ok()
}

/// A number as what a step is given: the place of the artifact is free, for trivial steps read none.
fn artifact(number: u64) -> Result<ArtifactHash, WorkflowError> {
    format!("{number:064x}").parse().map_err(|error| unreadable("number", &error))
}

fn unreadable(what: &'static str, error: &dyn std::fmt::Display) -> WorkflowError {
    WorkflowError::Unreadable { what, message: error.to_string() }
}

/// What a run that begins with this number is created with.
pub(crate) fn run_input(number: u64) -> anyhow::Result<Value> {
    Ok(serde_json::to_value(RunInput {
        schema: 1,
        task_name: number.to_string(),
        task: artifact(number)?,
        target: Target::Cpu,
        model: ModelChoice::Scripted,
        models: nightshift_protocol::models::ModelPlan::default(),
        scripted_replies: None,
        knowledge: nightshift_protocol::campaign::KnowledgeUse::default(),
        strategy: "trivial".to_owned(),
        goal: TaskGoal::default(),
        rules: 1,
        sandbox_required: false,
        gates: std::collections::BTreeSet::default(),
        labels: std::collections::BTreeSet::default(),
        compute_capability: None,
        device_memory_bytes: None,
        torch: false,
        precision: None,
    })?)
}

/// What lists show of a run.
pub(crate) fn digest(first: u64, done: u64) -> Value {
    json!({
        "task": first.to_string(),
        "model": "scripted",
        "scripted": true,
        "attempts": 0,
        "best_attempt": null,
        "best_speedup": null,
        "best_confirmed": false,
        "stop_reason": null,
        "activity": format!("{done} steps done"),
    })
}

/// Carries a step out: adds one.
pub(crate) fn carry_out(input: &StepInput) -> Result<StepOutput, StepFailure> {
    let StepInput::PrepareTask { task } = input else {
        return Err(StepFailure::fatal("bench.unexpected_step", "the workload has no such step"));
    };
    let number = task.as_str().get(48..).and_then(|digits| u64::from_str_radix(digits, 16).ok());
    let number = number.ok_or_else(|| StepFailure::fatal("bench.unreadable_input", "the step was given no number"))?;
    Ok(StepOutput::TaskRejected { code: "sum".to_owned(), message: (number + 1).to_string(), log: None })
}

fn field(state: &Value, name: &'static str) -> Result<u64, WorkflowError> {
    state[name].as_u64().ok_or_else(|| unreadable("state", &format!("no `{name}` in it")))
}

/// The number that a run has come to, and how many steps it took, by its state.
pub(crate) fn outcome(state: &Value) -> Result<(u64, u64), WorkflowError> {
    Ok((field(state, "number")?, field(state, "done")?))
}

impl Workflow for Trivial {
    type State = Value;

    fn apply(&self, state: Option<Value>, event: &Event) -> Result<Value, WorkflowError> {
        match (state, event) {
            (None, Event::RunCreated { input }) => {
                let first = input["task_name"].as_str().unwrap_or_default();
                let first: u64 = first.parse().map_err(|error| unreadable("input", &error))?;
                Ok(json!({ "first": first, "number": first, "done": 0 }))
            }
            (Some(mut state), Event::StepCompleted { output, .. }) => {
                let sum = output["message"].as_str().unwrap_or_default();
                let sum: u64 = sum.parse().map_err(|error| unreadable("output", &error))?;
                let done = field(&state, "done")? + 1;
                state["number"] = json!(sum);
                state["done"] = json!(done);
                Ok(state)
            }
            (Some(state), _) => Ok(state),
            (None, event) => {
                Err(WorkflowError::OutOfOrder { event: event.kind().to_owned(), message: "no run yet".to_owned() })
            }
        }
    }

    fn decide(&self, state: &Value) -> Result<Vec<Command>, WorkflowError> {
        let (number, done) = outcome(state)?;
        if done >= self.steps {
            return Ok(vec![Command::Complete { result: json!(number) }]);
        }
        if let Some(decided) = &self.decided {
            decided.note(field(state, "first")?, done + 1);
        }
        let input = StepInput::PrepareTask { task: artifact(number)? };
        Ok(vec![Command::Schedule(StepOrder {
            key: key(done + 1),
            kind: StepKind::PrepareTask.as_str().to_owned(),
            needs: self.needs.clone(),
            input: serde_json::to_value(input).map_err(|error| unreadable("input", &error))?,
            timeout_ms: TIMEOUT_MS,
            retry: RetryPolicy::default(),
            cost_ms: 1,
            reserve: Vec::new(),
        })])
    }

    fn digest(&self, state: &Value) -> Result<Value, WorkflowError> {
        Ok(digest(field(state, "first")?, field(state, "done")?))
    }
}

/// What the state of a run says to its page.
pub(crate) fn view(state: &Value) -> Result<RunView, WorkflowError> {
    Ok(RunView {
        task: artifact(field(state, "first")?)?,
        prepared: None,
        plans: Vec::new(),
        attempts: Vec::new(),
        best_attempt: None,
        stop_reason: None,
        failed_calls: Vec::new(),
        session: None,
    })
}
