//! The StitchCUDA loop as a workflow: prepare, plan, then attempt after attempt, each verified rung by rung and routed.
//!
//! ```text
//! prepare_task -> plan -> write_code -> build -> check -> measure -> confirm -> profile -> diagnose -> judge
//!                  ^         ^  |         |       |         |  (a new best only)                        |
//!                  |         |  +---------+-------+---------+- a failed attempt ----------------------> route
//!                  replan <--+---------------------------------------------------------------------------+--> stop
//! ```
//!
//! On the `cuda` target the first correct attempt of a subtask is sanitized before it is timed, and a new best, more
//! thoroughly, before it is published.
//!
//! One step is open at a time. An event that does not belong to it is refused; of a step that failed only its model calls
//! are kept. Where a gate is closed, no step is open: the run waits for a person. When the campaign's budget is used up,
//! the run ends with its best result. Events about pausing, retrying and ending a run change nothing here: the driver
//! handles them.

use nightshift_engine::event::Event;
use nightshift_engine::workflow::{Command, Workflow, WorkflowError};
use nightshift_protocol::api::{RunDigest, RunView};
use nightshift_protocol::attempt::StopReason;
use nightshift_protocol::campaign::RunInput;
use nightshift_protocol::model_call::ModelCallSummary;
use nightshift_protocol::plan::{Plan, PlanVersion, Subtask};
use nightshift_protocol::signal::Gate;
use nightshift_protocol::step::{StepFailure, StepOutput};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::attempt::{self, AfterStep};
use super::order;
use super::routing::{self, Next};
use super::state::{AttemptStep, Phase, RunState};
use crate::agent::exhausted_resource;

/// Name of this strategy in campaigns.
pub const STRATEGY: &str = "stitch";

/// Schema of [`RunInput`] that is read.
const RUN_INPUT_SCHEMA: u32 = 1;

/// The StitchCUDA strategy. Without state of its own.
#[derive(Debug, Clone, Copy, Default)]
pub struct StitchWorkflow;

impl Workflow for StitchWorkflow {
    fn apply(&self, state: Option<Value>, event: &Event) -> Result<Value, WorkflowError> {
        match (state, event) {
            (None, Event::RunCreated { input }) => {
                let input: RunInput = read("run input", input)?;
                if input.schema != RUN_INPUT_SCHEMA || input.strategy != STRATEGY {
                    return Err(WorkflowError::Unreadable {
                        what: "run input",
                        message: format!(
                            "strategy `{}` with schema {} is not known: expected `{STRATEGY}` with schema {RUN_INPUT_SCHEMA}",
                            input.strategy, input.schema
                        ),
                    });
                }
                RunState::new(input).write()
            }
            (None, other) => Err(out_of_order(other, "the run was not created yet")),
            (Some(_), Event::RunCreated { .. }) => Err(out_of_order(event, "the run was created already")),
            (Some(state), Event::StepCompleted { key, output }) => {
                let mut run = RunState::read(&state)?;
                if matches!(run.stop_reason(), Some(StopReason::BudgetExhausted { .. })) {
                    // It came in while the run ended; its calls were paid for all the same.
                    let output: StepOutput = read("step output", output)?;
                    run.keep_calls(output.calls());
                    return run.write();
                }
                let open = run.open_key();
                if open.as_deref() != Some(key.as_str()) {
                    let waits_for = open.unwrap_or_else(|| format!("no step: {}", run.activity()));
                    return Err(out_of_order(
                        event,
                        &format!("`{key}` was completed, but the run waits for {waits_for}"),
                    ));
                }
                let output: StepOutput = read("step output", output)?;
                // A step that was retried lists the calls of its failed tries again, and pays for them once.
                run.failed_calls.retain(|call| !output.calls().contains(call));
                run.complete(output)?;
                run.write()
            }
            (Some(state), Event::StepFailed { key, failure })
                if !failure.calls.is_empty() || self.outlives(failure) =>
            {
                let mut run = RunState::read(&state)?;
                // Only agents ask models: what a worker says about calls is not believed.
                if run.open_key().as_deref() != Some(key.as_str()) || !run.waits_for_an_agent() {
                    return Ok(state);
                }
                run.keep_calls(&failure.calls);
                if let Some(resource) = exhausted_resource(failure) {
                    run.phase = Phase::Ended { reason: StopReason::BudgetExhausted { resource } };
                }
                run.write()
            }
            (Some(state), Event::BudgetExhausted { key, resource }) => {
                let mut run = RunState::read(&state)?;
                if run.open_key().as_deref() != Some(key.as_str()) {
                    return Ok(state);
                }
                run.phase = Phase::Ended { reason: StopReason::BudgetExhausted { resource: *resource } };
                run.write()
            }
            (Some(state), Event::SignalReceived { signal, by: _ }) => {
                let mut run = RunState::read(&state)?;
                run.hear(signal)?;
                run.write()
            }
            (Some(state), _) => Ok(state),
        }
    }

    fn decide(&self, state: &Value) -> Result<Vec<Command>, WorkflowError> {
        let run = RunState::read(state)?;
        if let Phase::Waiting { gate } = run.phase {
            return Ok(vec![Command::Await { signal: gate.as_str().to_owned() }]);
        }
        Ok(match order::open_step(&run)? {
            Some(order) => vec![Command::Schedule(order)],
            None => vec![Command::Complete { result: to_value(&run.digest())? }],
        })
    }

    fn digest(&self, state: &Value) -> Result<Value, WorkflowError> {
        to_value(&RunState::read(state)?.digest())
    }

    /// A used up budget ends the run with what it has.
    fn outlives(&self, failure: &StepFailure) -> bool {
        exhausted_resource(failure).is_some()
    }
}

/// Everything that a stored state says about its run.
pub fn view(state: &Value) -> Result<RunView, WorkflowError> {
    let run = RunState::read(state)?;
    let stop_reason = run.stop_reason().cloned();
    Ok(RunView {
        task: run.input.task,
        prepared: run.prepared,
        plans: run.plans,
        attempts: run.attempts,
        best_attempt: run.best_attempt,
        stop_reason,
        failed_calls: run.failed_calls,
    })
}

/// What lists show before the first decision.
#[must_use]
pub fn initial_digest(input: &RunInput) -> RunDigest {
    RunState::new(input.clone()).digest()
}

impl RunState {
    fn digest(&self) -> RunDigest {
        let best = self.best();
        RunDigest {
            task: self.input.task_name.clone(),
            model: self.input.model.label(),
            scripted: self.input.model.is_scripted(),
            attempts: self.attempt_count(),
            best_attempt: self.best_attempt,
            best_speedup: best.and_then(nightshift_protocol::attempt::Attempt::speedup),
            best_confirmed: best.is_some_and(|best| best.confirmation.is_some()),
            stop_reason: self.stop_reason().cloned(),
            activity: self.activity(),
        }
    }

    fn complete(&mut self, output: StepOutput) -> Result<(), WorkflowError> {
        match (self.phase.clone(), output) {
            (Phase::Preparing, StepOutput::TaskPrepared { prepared }) => {
                self.prepared = Some(*prepared);
                self.phase = Phase::Planning;
            }
            (Phase::Preparing, StepOutput::TaskRejected { code, message, log: _ }) => {
                self.phase = Phase::Ended { reason: StopReason::TaskRejected { code, message } };
            }
            (Phase::Planning, StepOutput::Planned { plan, calls }) => {
                self.adopt(PlanVersion { version: 1, reason: None, plan: usable(plan), calls });
            }
            (Phase::Replanning { reason }, StepOutput::Planned { plan, calls }) => {
                let version = self.replan_count().saturating_add(2);
                self.adopt(PlanVersion { version, reason: Some(reason), plan: usable(plan), calls });
            }
            (Phase::Attempting { step }, output) => match self.take(step, output)? {
                AfterStep::Step(next) => self.phase = Phase::Attempting { step: next },
                AfterStep::Finished => self.go_on()?,
            },
            (
                Phase::Preparing
                | Phase::Planning
                | Phase::Replanning { .. }
                | Phase::Waiting { .. }
                | Phase::Ended { .. },
                _,
            ) => {
                return Err(WorkflowError::OutOfOrder {
                    event: "step_completed".to_owned(),
                    message: format!("the output does not belong to `{}`", self.open_key().unwrap_or_default()),
                });
            }
        }
        Ok(())
    }

    fn adopt(&mut self, plan: PlanVersion) {
        self.plans.push(plan);
        if self.has_gate(Gate::Plan) {
            self.phase = Phase::Waiting { gate: Gate::Plan };
        } else {
            self.begin_plan();
        }
    }

    /// Calls that were paid for and belong to no result.
    fn keep_calls(&mut self, calls: &[ModelCallSummary]) {
        for call in calls {
            if !self.failed_calls.contains(call) {
                self.failed_calls.push(call.clone());
            }
        }
    }

    /// The first attempt of the plan in force.
    pub(super) fn begin_plan(&mut self) {
        let (stage, parent) = routing::first_of_scope(self);
        self.open_attempt(1, stage, parent);
    }

    /// Goes where the rules say after the last attempt.
    pub(super) fn follow_route(&mut self) -> Result<(), WorkflowError> {
        let (decision, next) = routing::route(self)?;
        self.last_attempt_mut()?.route = Some(decision);
        match next {
            Next::Attempt { subtask, stage, parent } => self.open_attempt(subtask, stage, parent),
            Next::Replan { reason } => self.phase = Phase::Replanning { reason },
            Next::Stop(reason) => self.phase = Phase::Ended { reason },
        }
        Ok(())
    }

    fn open_attempt(&mut self, subtask: u32, stage: nightshift_protocol::attempt::Stage, parent: Option<u32>) {
        let number = self.attempt_count().saturating_add(1);
        let plan_version = self.plans.last().map_or(1, |plan| plan.version);
        self.attempts.push(attempt::opened(number, plan_version, subtask, stage, parent));
        self.phase = Phase::Attempting { step: AttemptStep::WriteCode };
    }
}

/// A plan without subtasks is a plan to write the whole program at once.
fn usable(mut plan: Plan) -> Plan {
    if plan.subtasks.is_empty() {
        plan.subtasks.push(Subtask {
            title: "The whole program".to_owned(),
            scope: Vec::new(),
            fusion_boundary: String::new(),
            contract: nightshift_protocol::plan::Contract::default(),
            methods: Vec::new(),
            expected_bottleneck: String::new(),
            risk: String::new(),
            target_speedup: None,
        });
    }
    plan
}

fn read<T: DeserializeOwned>(what: &'static str, value: &Value) -> Result<T, WorkflowError> {
    T::deserialize(value).map_err(|error| WorkflowError::Unreadable { what, message: error.to_string() })
}

fn to_value<T: serde::Serialize>(value: &T) -> Result<Value, WorkflowError> {
    serde_json::to_value(value)
        .map_err(|error| WorkflowError::Unreadable { what: "run state", message: error.to_string() })
}

fn out_of_order(event: &Event, message: &str) -> WorkflowError {
    WorkflowError::OutOfOrder { event: event.kind().to_owned(), message: message.to_owned() }
}
