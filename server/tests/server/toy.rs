//! A workflow with one step of a worker and one of an agent, and scripted agents.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use async_trait::async_trait;
use nightshift_engine::event::Event;
use nightshift_engine::retry::RetryPolicy;
use nightshift_engine::workflow::{Command, StepOrder, Workflow, WorkflowError};
use nightshift_optimizer::agent::{
    AgentPorts, AgentStep, AnsweredCall, BUDGET_WAIT, OutsideCall, OutsideOutcome, request_open,
};
use nightshift_protocol::api::{FreeDevice, FreeSlots, RequestQuestion, RunDigest, RunView};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::BuildReport;
use nightshift_protocol::budget::{Amount, Resource};
use nightshift_protocol::campaign::{ModelChoice, RunInput};
use nightshift_protocol::machine::{DeviceOffer, DeviceUse, MachineFacts, Needs, Offers, SandboxReport, Toolchain};
use nightshift_protocol::measurement::{CompilerReport, Interval};
use nightshift_protocol::model_call::ModelCallSummary;
use nightshift_protocol::models::AgentRole;
use nightshift_protocol::plan::Plan;
use nightshift_protocol::step::{PreparedTask, StepFailure, StepInput, StepKind, StepOutput};
use nightshift_protocol::task::Target;
use nightshift_protocol::verdict::ProcessEnd;
use nightshift_server::AgentExecutor;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::setup::PATIENCE;

/// Key of the worker's step.
pub(crate) const PREPARE: &str = "prepare";
/// Key of the agent's step.
pub(crate) const PLAN: &str = "plan";
/// Route of the worker's step.
pub(crate) const ROUTE: &str = "worker/cpu/exclusive";

/// Tokens of a model call.
pub(crate) const CALL_TOKENS: u64 = 100;

/// Name of a task whose run the workflow cannot read.
pub(crate) const UNREADABLE: &str = "unreadable";
/// Name of a task whose run has a confirmed best attempt when its reference is prepared.
pub(crate) const FINDS_A_BEST: &str = "finds_a_best";
/// Name of a task whose run makes the workflow panic.
pub(crate) const PANICS: &str = "panics";

/// First the worker prepares, then the agent plans, then the run ends.
pub(crate) struct ToyWorkflow {
    pub(crate) retry: RetryPolicy,
    /// Reservation of the worker's step.
    pub(crate) reserve: Vec<Amount>,
    /// Where a decision blocks.
    pub(crate) stall: Option<Arc<Stall>>,
}

/// A decision that blocks its thread until the test releases it.
#[derive(Default)]
pub(crate) struct Stall {
    state: Mutex<Stalled>,
    changed: Condvar,
}

#[derive(Default, PartialEq, Eq)]
enum Stalled {
    #[default]
    Waiting,
    Stuck,
    Released,
}

impl Stall {
    fn decide(&self) {
        let mut state = self.state.lock().unwrap();
        if *state == Stalled::Waiting {
            *state = Stalled::Stuck;
        }
        while *state == Stalled::Stuck {
            state = self.changed.wait(state).unwrap();
        }
    }

    pub(crate) fn is_stuck(&self) -> bool {
        *self.state.lock().unwrap() == Stalled::Stuck
    }

    pub(crate) fn release(&self) {
        *self.state.lock().unwrap() = Stalled::Released;
        self.changed.notify_all();
    }
}

impl Default for ToyWorkflow {
    fn default() -> Self {
        Self {
            retry: RetryPolicy { max_tries: 3, first_delay_ms: 2, max_delay_ms: 4 },
            reserve: Vec::new(),
            stall: None,
        }
    }
}

fn unreadable(error: &serde_json::Error) -> WorkflowError {
    WorkflowError::Unreadable { what: "state", message: error.to_string() }
}

fn input_of(state: &Value) -> Result<RunInput, WorkflowError> {
    serde_json::from_value(state["input"].clone()).map_err(|error| unreadable(&error))
}

impl Workflow for ToyWorkflow {
    type State = Value;

    fn apply(&self, state: Option<Value>, event: &Event) -> Result<Value, WorkflowError> {
        match (state, event) {
            (None, Event::RunCreated { input }) if input["task_name"] == UNREADABLE => {
                Err(WorkflowError::Unreadable { what: "input", message: "the test wants it".to_owned() })
            }
            (None, Event::RunCreated { input }) if input["task_name"] == PANICS => {
                panic!("the workflow panics because the test wants it")
            }
            (None, Event::RunCreated { input }) => Ok(json!({ "input": input, "done": [] })),
            (Some(mut state), Event::StepCompleted { key, .. }) => {
                if let Some(done) = state["done"].as_array_mut() {
                    done.push(json!(key));
                }
                Ok(state)
            }
            (Some(state), _) => Ok(state),
            (None, event) => {
                Err(WorkflowError::OutOfOrder { event: event.kind().to_owned(), message: "no run yet".to_owned() })
            }
        }
    }

    fn decide(&self, state: &Value) -> Result<Vec<Command>, WorkflowError> {
        if let Some(stall) = &self.stall {
            stall.decide();
        }
        let task = input_of(state)?.task;
        let done = |key: &str| state["done"].as_array().is_some_and(|done| done.contains(&json!(key)));
        let order = |key: &str, kind: StepKind, needs: Needs, input: StepInput| {
            Ok(vec![Command::Schedule(StepOrder {
                key: key.to_owned(),
                kind: kind.as_str().to_owned(),
                needs,
                input: serde_json::to_value(input).map_err(|error| unreadable(&error))?,
                timeout_ms: 60_000,
                retry: self.retry,
                cost_ms: 1_000,
                reserve: if key == PREPARE { self.reserve.clone() } else { Vec::new() },
            })])
        };
        if !done(PREPARE) {
            let needs = Needs::worker(Target::Cpu, DeviceUse::Exclusive);
            order(PREPARE, StepKind::PrepareTask, needs, StepInput::PrepareTask { task })
        } else if !done(PLAN) {
            let input = StepInput::Plan { task, prepared: Box::new(prepared()), hints: Vec::new() };
            order(PLAN, StepKind::Plan, Needs::agent(), input)
        } else {
            Ok(vec![Command::Complete { result: json!("done") }])
        }
    }

    fn digest(&self, state: &Value) -> Result<Value, WorkflowError> {
        let input = input_of(state)?;
        let is_prepared = state["done"].as_array().is_some_and(|done| done.contains(&json!(PREPARE)));
        let best = is_prepared && input.task_name == FINDS_A_BEST;
        serde_json::to_value(RunDigest {
            task: input.task_name,
            model: input.model.label(),
            scripted: input.model.is_scripted(),
            attempts: 0,
            best_attempt: best.then_some(3),
            best_speedup: best.then_some(Interval { estimate: 2.0, low: 1.9, high: 2.1 }),
            fastest_baseline: None,
            best_speedup_over_fastest: None,
            best_times: None,
            baselines: Vec::new(),
            precision: None,
            best_confirmed: best,
            stop_reason: None,
            activity: format!("{} steps done", state["done"].as_array().map_or(0, Vec::len)),
        })
        .map_err(|error| unreadable(&error))
    }
}

/// Returns the view of a toy run from its state.
pub(crate) fn view(state: &Value) -> Result<RunView, WorkflowError> {
    Ok(RunView {
        task: input_of(state)?.task,
        prepared: None,
        plans: Vec::new(),
        attempts: Vec::new(),
        best_attempt: None,
        stop_reason: None,
        failed_calls: Vec::new(),
        session: None,
    })
}

pub(crate) fn machine() -> MachineFacts {
    MachineFacts {
        host: "test".to_owned(),
        os: "linux".to_owned(),
        processor: "some".to_owned(),
        cores: 2,
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

pub(crate) fn offers() -> Offers {
    let device = DeviceOffer {
        index: 0,
        target: Target::Cpu,
        name: "the machine".to_owned(),
        uuid: None,
        compute_capability: None,
        memory_bytes: 1 << 30,
        shared_slots: 1,
        quarantine: None,
    };
    Offers {
        targets: vec![Target::Cpu],
        cpu_slots: 1,
        devices: vec![device],
        tools: BTreeSet::new(),
        labels: BTreeSet::new(),
        machine: machine(),
    }
}

/// Returns all free slots of such a machine.
pub(crate) fn free() -> FreeSlots {
    FreeSlots { cpu: 1, devices: vec![FreeDevice { index: 0, exclusive: true, shared: 1 }] }
}

/// Returns a prepared reference as a worker reports it.
pub(crate) fn prepared() -> PreparedTask {
    let hash = ArtifactHash::of(b"something");
    PreparedTask {
        reference: BuildReport {
            library: Some(hash.clone()),
            end: ProcessEnd::Finished,
            messages: Vec::new(),
            log: hash.clone(),
            toolchain: Toolchain {
                program: "c++".to_owned(),
                path: "c++".to_owned(),
                version: "1".to_owned(),
                flags: Vec::new(),
                fingerprint: "f".to_owned(),
            },
            build_key: "b".to_owned(),
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

pub(crate) fn prepared_output() -> StepOutput {
    StepOutput::TaskPrepared { prepared: Box::new(prepared()) }
}

/// The behaviour of an agent in its next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behaviour {
    /// It calls its model, records the call and returns a plan.
    Plans,
    /// It plans, and its model answers after [`FakeAgents::answers`].
    PlansWhenAnswered,
    /// It asks an outside agent, and returns a plan after the answer.
    AsksOutside,
    /// It fails, and in every second try its model may be paid for a reply that did not arrive.
    LosesReplies,
    /// It never ends.
    Hangs,
    /// It panics.
    Panics,
    /// It fails with a retriable error.
    FailsRetriably,
    /// It waits this many times for the budget, then fails once with a retriable error, then plans.
    WaitsForBudget(usize),
    /// It returns the output of another kind of step.
    GivesNonsense,
}

/// Scripted agents.
pub(crate) struct FakeAgents {
    behaviour: Mutex<Behaviour>,
    /// Number of begun steps.
    pub(crate) begun: AtomicUsize,
    /// Number of steps whose future was dropped before its end.
    pub(crate) dropped: Arc<AtomicUsize>,
    /// Number of real model calls.
    pub(crate) calls: AtomicUsize,
    began: Notify,
    /// The model's answer under [`Behaviour::PlansWhenAnswered`].
    pub(crate) answers: Notify,
}

impl FakeAgents {
    pub(crate) fn new(behaviour: Behaviour) -> Arc<Self> {
        Arc::new(Self {
            behaviour: Mutex::new(behaviour),
            begun: AtomicUsize::new(0),
            dropped: Arc::default(),
            calls: AtomicUsize::new(0),
            began: Notify::new(),
            answers: Notify::new(),
        })
    }

    pub(crate) fn now(&self, behaviour: Behaviour) {
        *self.behaviour.lock().unwrap() = behaviour;
    }

    /// Waits until a step begins.
    pub(crate) async fn began(&self) {
        tokio::time::timeout(PATIENCE, self.began.notified()).await.unwrap();
    }
}

/// Counts when it is dropped while armed.
struct Armed(Arc<AtomicUsize>, bool);

impl Drop for Armed {
    fn drop(&mut self) {
        if self.1 {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[async_trait]
impl AgentExecutor for FakeAgents {
    fn knows(&self, choice: &ModelChoice) -> Result<(), StepFailure> {
        match choice {
            ModelChoice::Live { endpoint, .. } if endpoint == "nowhere" => {
                Err(StepFailure::fatal("model.not_found", "there is no model endpoint `nowhere`"))
            }
            _ => Ok(()),
        }
    }

    fn has_price(&self, choice: &ModelChoice) -> bool {
        !choice.label().contains("unpriced")
    }

    async fn carry_out(&self, ports: &dyn AgentPorts, step: AgentStep<'_>) -> Result<StepOutput, StepFailure> {
        let mut armed = Armed(self.dropped.clone(), true);
        let earlier = self.begun.fetch_add(1, Ordering::SeqCst);
        self.began.notify_one();
        let behaviour = *self.behaviour.lock().unwrap();
        match behaviour {
            Behaviour::Hangs => std::future::pending().await,
            Behaviour::Panics => panic!("an agent panics because the test wants it"),
            Behaviour::FailsRetriably => {
                armed.1 = false;
                Err(StepFailure::retriable("model.unreachable", "no answer"))
            }
            Behaviour::LosesReplies => {
                armed.1 = false;
                // Every second try fails for nothing.
                let mut failure = StepFailure::retriable("model.timeout", "no reply in time");
                failure.charged_tries = u32::from(earlier.is_multiple_of(2));
                Err(failure)
            }
            Behaviour::WaitsForBudget(times) if earlier < times => {
                armed.1 = false;
                let mut failure = StepFailure::retriable(BUDGET_WAIT, "the tokens are reserved");
                failure.retry_after_ms = Some(1);
                Err(failure)
            }
            Behaviour::WaitsForBudget(times) if earlier == times => {
                armed.1 = false;
                Err(StepFailure::retriable("model.overloaded", "no answer"))
            }
            Behaviour::GivesNonsense => {
                armed.1 = false;
                Ok(StepOutput::TaskRejected { code: "x".to_owned(), message: "x".to_owned(), log: None })
            }
            Behaviour::AsksOutside => {
                armed.1 = false;
                self.ask_outside(ports, &step).await
            }
            Behaviour::Plans | Behaviour::PlansWhenAnswered | Behaviour::WaitsForBudget(_) => {
                let found = ports.find_call(step.run, step.step_key, 1, "request").await?;
                let call = match found {
                    Some(call) => call,
                    None => self.ask(ports, &step, behaviour).await?,
                };
                armed.1 = false;
                let plan = Plan {
                    summary: format!("{} for {}", step.input.kind().as_str(), step.run_input.task_name),
                    subtasks: Vec::new(),
                    correctness_risks: Vec::new(),
                };
                Ok(StepOutput::Planned { plan, calls: vec![call] })
            }
        }
    }
}

impl FakeAgents {
    async fn ask_outside(&self, ports: &dyn AgentPorts, step: &AgentStep<'_>) -> Result<StepOutput, StepFailure> {
        let question = RequestQuestion {
            system: "You plan.".to_owned(),
            user: "Plan it.".to_owned(),
            earlier: Vec::new(),
            schema: Some(json!({ "type": "object", "required": ["summary"] })),
            form: None,
            turn_form: None,
            max_output_tokens: 100,
        };
        let call = OutsideCall {
            run: step.run,
            step_key: step.step_key,
            turn: 1,
            request_hash: "hash",
            role: AgentRole::Planner,
            model: "external/agent",
            question,
            fell_back: &[],
        };
        let request = ports.open_request(call).await?;
        match request.outcome {
            OutsideOutcome::Answered { answer, .. } => Ok(StepOutput::Planned {
                plan: Plan { summary: answer.text, subtasks: Vec::new(), correctness_risks: Vec::new() },
                calls: Vec::new(),
            }),
            OutsideOutcome::Open { wait_ms } => Err(request_open(&request.id, "external/agent", wait_ms)),
            OutsideOutcome::Expired { .. } => Err(StepFailure::fatal("request.expired", "no agent answered")),
        }
    }

    async fn ask(
        &self,
        ports: &dyn AgentPorts,
        step: &AgentStep<'_>,
        behaviour: Behaviour,
    ) -> Result<ModelCallSummary, StepFailure> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let (prompt, reply) = (b"a prompt".to_vec(), b"a reply".to_vec());
        let call: ModelCallSummary = serde_json::from_value(json!({
            "model": "scripted",
            "scripted": true,
            "prompt_version": "1",
            "prompt": ArtifactHash::of(&prompt),
            "reply": ArtifactHash::of(&reply),
            "input_tokens": null,
            "output_tokens": null,
            "price_microusd": null,
            "latency_ms": 1,
            "turn": 1,
        }))
        .map_err(|error| StepFailure::fatal("test", error.to_string()))?;
        let estimate = vec![Amount { resource: Resource::Tokens, amount: CALL_TOKENS }];
        ports.reserve_call(&estimate).await?;
        if behaviour == Behaviour::PlansWhenAnswered {
            self.answers.notified().await;
        }
        let answered = AnsweredCall {
            run: step.run,
            step_key: step.step_key,
            request_hash: "request",
            summary: &call,
            prompt,
            reply,
            reasoning: None,
            released: estimate.clone(),
            used: estimate,
        };
        ports.record_call(answered).await?;
        Ok(call)
    }
}
