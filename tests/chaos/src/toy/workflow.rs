//! The workflow of a toy run.

use std::collections::{BTreeMap, BTreeSet};

use nightshift_engine::event::Event;
use nightshift_engine::retry::RetryPolicy;
use nightshift_engine::workflow::{Command, StepOrder, Workflow, WorkflowError};
use nightshift_optimizer::agent::BUDGET_EXHAUSTED;
use nightshift_protocol::api::{RunDigest, RunView};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::{BuildReport, Stage};
use nightshift_protocol::attempt_memory::AttemptMemory;
use nightshift_protocol::budget::{Amount, Resource};
use nightshift_protocol::campaign::RunInput;
use nightshift_protocol::machine::{DeviceUse, MachineFacts, Needs, SandboxReport, Toolchain};
use nightshift_protocol::measurement::CompilerReport;
use nightshift_protocol::plan::{Plan, PlanVersion};
use nightshift_protocol::signal::{Gate, Signal};
use nightshift_protocol::step::{CodeRequest, PreparedTask, StepFailure, StepInput, StepKind, StepOutput};
use nightshift_protocol::task::Target;
use nightshift_protocol::verdict::ProcessEnd;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::DEVICE_MS;
use super::values::{Name, keys, seed_of, value_in};

/// How long one try may take, in milliseconds.
const TIMEOUT_MS: u64 = 20_000;
/// What a try is expected to take, in milliseconds.
const COST_MS: u64 = 10;
/// Losing the worker counts as a try: a storm loses many.
const RETRY: RetryPolicy = RetryPolicy { max_tries: 8, first_delay_ms: 20, max_delay_ms: 300 };

/// Phase after phase; the gate at the end.
pub(crate) struct ToyWorkflow;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct State {
    input: RunInput,
    /// Values by step.
    values: BTreeMap<String, u64>,
    approved: bool,
    exhausted: Option<String>,
    signals: BTreeSet<String>,
}

impl State {
    fn name(&self) -> Result<Name, WorkflowError> {
        self.input.task_name.parse().map_err(|message| WorkflowError::Unreadable { what: "name", message })
    }
}

fn unreadable(error: &serde_json::Error) -> WorkflowError {
    WorkflowError::Unreadable { what: "state", message: error.to_string() }
}

fn read(state: &Value) -> Result<State, WorkflowError> {
    serde_json::from_value(state.clone()).map_err(|error| unreadable(&error))
}

fn out_of_order(event: &Event, message: &str) -> WorkflowError {
    WorkflowError::OutOfOrder { event: event.kind().to_owned(), message: message.to_owned() }
}

impl Workflow for ToyWorkflow {
    type State = Value;

    fn apply(&self, state: Option<Value>, event: &Event) -> Result<Value, WorkflowError> {
        let mut state = match (state, event) {
            (None, Event::RunCreated { input }) => State {
                input: serde_json::from_value(input.clone()).map_err(|error| unreadable(&error))?,
                values: BTreeMap::new(),
                approved: false,
                exhausted: None,
                signals: BTreeSet::new(),
            },
            (None, event) => return Err(out_of_order(event, "no run yet")),
            (Some(_), Event::RunCreated { .. }) => return Err(out_of_order(event, "created twice")),
            (Some(state), _) => read(&state)?,
        };
        match event {
            Event::StepCompleted { key, output } => {
                let output: StepOutput = serde_json::from_value(output.clone()).map_err(|error| unreadable(&error))?;
                let value = value_in(&output).ok_or_else(|| out_of_order(event, "a foreign output"))?;
                if state.values.insert(key.clone(), value).is_some() {
                    return Err(out_of_order(event, "the step was completed before"));
                }
            }
            Event::SignalReceived { signal: Signal::Approved { gate: Gate::Plan }, .. } => state.approved = true,
            Event::SignalReceived { signal: Signal::Hint { text }, .. } => {
                state.signals.insert(text.clone());
            }
            Event::BudgetExhausted { resource, .. } => state.exhausted = Some(resource.as_str().to_owned()),
            Event::StepFailed { failure, .. } if self.outlives(failure) => {
                state.exhausted = Some(Resource::Tokens.as_str().to_owned());
            }
            _ => {}
        }
        serde_json::to_value(state).map_err(|error| unreadable(&error))
    }

    fn decide(&self, state: &Value) -> Result<Vec<Command>, WorkflowError> {
        let state = read(state)?;
        if let Some(resource) = &state.exhausted {
            return Ok(vec![Command::Complete { result: json!({ "exhausted": resource }) }]);
        }
        let name = state.name()?;
        let mut sum = 0;
        for phase in keys(&name) {
            if !phase.iter().all(|key| state.values.contains_key(*key)) {
                return phase.iter().map(|key| Ok(Command::Schedule(order(&name, key, sum)?))).collect();
            }
            sum += phase.iter().filter_map(|key| state.values.get(*key)).sum::<u64>();
        }
        if name.gated && !state.approved {
            return Ok(vec![Command::Await { signal: Gate::Plan.as_str().to_owned() }]);
        }
        Ok(vec![Command::Complete { result: json!({ "sum": sum }) }])
    }

    fn outlives(&self, failure: &StepFailure) -> bool {
        failure.code == BUDGET_EXHAUSTED
    }

    fn digest(&self, state: &Value) -> Result<Value, WorkflowError> {
        let state = read(state)?;
        serde_json::to_value(RunDigest {
            task: state.input.task_name.clone(),
            model: state.input.model.label(),
            scripted: state.input.model.is_scripted(),
            attempts: 0,
            best_attempt: None,
            best_speedup: None,
            fastest_baseline: None,
            best_speedup_over_fastest: None,
            best_times: None,
            baselines: Vec::new(),
            precision: None,
            best_confirmed: false,
            stop_reason: None,
            activity: format!("{} steps are done", state.values.len()),
        })
        .map_err(|error| unreadable(&error))
    }
}

/// A step of this run, after others that came to this sum.
fn order(name: &Name, key: &str, sum: u64) -> Result<StepOrder, WorkflowError> {
    let task = seed_of(name, key, sum);
    let device_ms = vec![Amount { resource: Resource::DeviceMs, amount: DEVICE_MS }];
    let (kind, needs, reserve, input) = match key {
        "code" => (
            StepKind::WriteCode,
            Needs::agent(),
            vec![Amount { resource: Resource::Attempts, amount: 1 }],
            StepInput::WriteCode { task, prepared: Box::new(prepared()), request: Box::new(request()) },
        ),
        "prepare" | "measure" => (
            StepKind::PrepareTask,
            Needs::worker(Target::Cpu, DeviceUse::Exclusive),
            device_ms,
            StepInput::PrepareTask { task },
        ),
        "check" => (
            StepKind::PrepareTask,
            Needs::worker(Target::Cpu, DeviceUse::Shared),
            device_ms,
            StepInput::PrepareTask { task },
        ),
        _ => (
            StepKind::PrepareTask,
            Needs::worker(Target::Cpu, DeviceUse::None),
            Vec::new(),
            StepInput::PrepareTask { task },
        ),
    };
    Ok(StepOrder {
        key: key.to_owned(),
        kind: kind.as_str().to_owned(),
        needs,
        input: serde_json::to_value(input).map_err(|error| unreadable(&error))?,
        timeout_ms: TIMEOUT_MS,
        retry: RETRY,
        cost_ms: COST_MS,
        reserve,
    })
}

/// What the state of a toy run says.
pub(crate) fn view(state: &Value) -> Result<RunView, WorkflowError> {
    Ok(RunView {
        task: read(state)?.input.task,
        prepared: None,
        plans: Vec::new(),
        attempts: Vec::new(),
        best_attempt: None,
        stop_reason: None,
        failed_calls: Vec::new(),
        session: None,
    })
}

/// A machine of no interest.
pub(super) fn machine() -> MachineFacts {
    MachineFacts {
        host: "toy".to_owned(),
        os: "linux".to_owned(),
        processor: "toy".to_owned(),
        cores: 1,
        features: Vec::new(),
        memory_bytes: 1 << 30,
        last_level_cache_bytes: None,
        core: None,
        cpp_toolchain: None,
        cuda_toolchain: None,
        gpus: Vec::new(),
        sandbox: SandboxReport::default(),
    }
}

fn prepared() -> PreparedTask {
    let hash = ArtifactHash::of(b"toy");
    PreparedTask {
        reference: BuildReport {
            library: Some(hash.clone()),
            end: ProcessEnd::Finished,
            messages: Vec::new(),
            log: hash.clone(),
            toolchain: Toolchain {
                program: "toy".to_owned(),
                path: "toy".to_owned(),
                version: "1".to_owned(),
                flags: Vec::new(),
                fingerprint: "toy".to_owned(),
            },
            build_key: "toy".to_owned(),
            cached: false,
            duration_ms: 1,
            report: CompilerReport::default(),
            cuda: None,
            sandbox: SandboxReport::default(),
        },
        reference_library: hash.clone(),
        truth_library: hash,
        baseline_median_ns: 1.0,
        reference_normalized_error: 0.0,
        warnings: Vec::new(),
        machine: machine(),
        profile: None,
        baselines: Vec::new(),
        cost: Vec::new(),
    }
}

fn request() -> CodeRequest {
    CodeRequest {
        stage: Stage::Draft,
        plan: PlanVersion {
            version: 1,
            reason: None,
            plan: Plan { summary: "toy".to_owned(), subtasks: Vec::new(), correctness_risks: Vec::new() },
            calls: Vec::new(),
        },
        subtask: 1,
        parent: None,
        modification: None,
        method: None,
        near: None,
        candidate: None,
        fix_turn: 0,
        session: None,
        history: Vec::new(),
        memory: AttemptMemory::default(),
        hints: Vec::new(),
    }
}
