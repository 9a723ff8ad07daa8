//! A run as a workflow: prepare, plan, then attempt after attempt or several at a time, each verified rung by rung, and
//! routed by the campaign's strategy.
//!
//! ```text
//! prepare_task -> plan -> write_code -> build -> check -> measure -> confirm -> profile -> diagnose -> judge
//!                  ^         ^  |         |       |         |  (a new best only)                        |
//!                  |         |  +---------+-------+---------+- a failed attempt ----------------------> route
//!                  replan <--+---------------------------------------------------------------------------+--> stop
//! ```
//!
//! A correct program that declares tunables is searched (`tune`) before anything else is done with it.
//!
//! On the `cuda` target the first correct attempt of a subtask is sanitized before it is timed, and a new best, more
//! thoroughly, before it is published. A strategy may do without a plan, have failures looked at by the Verifier, and
//! open several attempts at once: each climbs its own ladder, and the run is routed when all of them are finished.
//!
//! An event that does not belong to an open step is refused; of a step that failed only its model calls are kept. Where a
//! gate is closed, no step is open: the run waits for a person. When the campaign's budget is used up, the run ends with
//! its best result. Events about pausing, retrying and ending a run change nothing here: the driver handles them.

use nightshift_engine::event::Event;
use nightshift_engine::workflow::{Command, Workflow, WorkflowError, WorkflowState as _};
use nightshift_protocol::api::{BestTimes, RunDigest, RunView};
use nightshift_protocol::attempt::StopReason;
use nightshift_protocol::attempt_memory::Candidate;
use nightshift_protocol::campaign::RunInput;
use nightshift_protocol::model_call::ModelCallSummary;
use nightshift_protocol::plan::{Plan, PlanVersion, Subtask};
use nightshift_protocol::signal::Gate;
use nightshift_protocol::step::{PreparedTask, StepFailure, StepOutput};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::attempt;
use super::attempt_step::AfterStep;
use super::attempt_step::AttemptStep;
use super::opening::Opening;
use super::routing::Next;
use super::shared::Shared;
use super::state::{Lane, Open, Phase, RunState, broken};
use super::{Strategy, fix, gain, order, session};
use crate::agent::exhausted_resource;

/// The format of states: raised when they have something new that an earlier release would leave out, so that servers of
/// that release leave their runs alone. See `docs/explanation/upgrades.md`.
pub const STATE_FORMAT: u32 = 4;
/// Schema of [`RunInput`] that is read.
const RUN_INPUT_SCHEMA: u32 = 1;

/// The workflow of every run, whatever its strategy. Without state of its own.
#[derive(Debug, Clone, Copy, Default)]
pub struct StrategyWorkflow;

impl Workflow for StrategyWorkflow {
    type State = RunState;

    fn state_format(&self) -> u32 {
        STATE_FORMAT
    }

    fn apply(&self, state: Option<RunState>, event: &Event) -> Result<RunState, WorkflowError> {
        match (state, event) {
            (None, Event::RunCreated { input }) => {
                let input: RunInput = read("run input", input)?;
                if input.schema != RUN_INPUT_SCHEMA || !super::is_known(&input.strategy) {
                    return Err(WorkflowError::Unreadable {
                        what: "run input",
                        message: format!(
                            "strategy `{}` with schema {} is not known: expected one of {} with schema {RUN_INPUT_SCHEMA}",
                            input.strategy,
                            input.schema,
                            super::known_names()
                        ),
                    });
                }
                Ok(RunState::new(input))
            }
            (None, other) => Err(out_of_order(other, "the run was not created yet")),
            (Some(_), Event::RunCreated { .. }) => Err(out_of_order(event, "the run was created already")),
            (Some(mut run), Event::StepCompleted { key, output }) => {
                if matches!(run.stop_reason(), Some(StopReason::BudgetExhausted { .. })) {
                    // It came in while the run ended; its calls were paid for all the same.
                    let output: StepOutput = read("step output", output)?;
                    run.keep_calls(output.calls());
                    return Ok(run);
                }
                let Some(open) = run.open(key) else {
                    let keys: Vec<String> = run.open_steps().into_iter().map(|(key, _)| key).collect();
                    let waits_for =
                        if keys.is_empty() { format!("no step: {}", run.activity()) } else { keys.join(", ") };
                    return Err(out_of_order(
                        event,
                        &format!("`{key}` was completed, but the run waits for {waits_for}"),
                    ));
                };
                let output: StepOutput = read("step output", output)?;
                // A step that was retried lists the calls of its failed tries again, and pays for them once.
                run.failed_calls.retain(|call| !output.calls().contains(call));
                run.complete(open, output)?;
                Ok(run)
            }
            (Some(mut run), Event::StepFailed { key, failure })
                if !failure.calls.is_empty() || self.outlives(failure) =>
            {
                // Only agents ask models: what a worker says about calls is not believed.
                if !run.asks_a_model(key) {
                    return Ok(run);
                }
                run.keep_calls(&failure.calls);
                if let Some(resource) = exhausted_resource(failure) {
                    run.phase = Phase::Ended { reason: StopReason::BudgetExhausted { resource } };
                }
                Ok(run)
            }
            (Some(mut run), Event::BudgetExhausted { key, resource }) => {
                if run.open(key).is_some() {
                    run.phase = Phase::Ended { reason: StopReason::BudgetExhausted { resource: *resource } };
                }
                Ok(run)
            }
            (Some(mut run), Event::SignalReceived { signal, by: _ }) => {
                run.hear(signal)?;
                Ok(run)
            }
            (Some(run), _) => Ok(run),
        }
    }

    fn decide(&self, run: &RunState) -> Result<Vec<Command>, WorkflowError> {
        if let Phase::Waiting { gate } = run.phase {
            return Ok(vec![Command::Await { signal: gate.as_str().to_owned() }]);
        }
        let orders = order::open_steps(run)?;
        if orders.is_empty() {
            return Ok(vec![Command::Complete { result: to_value(&run.digest())? }]);
        }
        Ok(orders.into_iter().map(Command::Schedule).collect())
    }

    fn digest(&self, run: &RunState) -> Result<Value, WorkflowError> {
        to_value(&run.digest())
    }

    /// A used up budget ends the run with what it has.
    fn outlives(&self, failure: &StepFailure) -> bool {
        exhausted_resource(failure).is_some()
    }
}

/// Everything that a stored state says about its run.
pub fn view(state: &Value) -> Result<RunView, WorkflowError> {
    let mut run = RunState::read(state)?;
    // During a fix turn the attempt is pending, and the version that failed is listed with the earlier ones.
    for (_, open) in run.open_steps() {
        if let Open::Attempt { number, step: AttemptStep::WriteCode } = open {
            fix::set_aside_version(run.wanted_attempt_mut(number)?);
        }
    }
    let stop_reason = run.stop_reason().cloned();
    let session = session::left(&run);
    Ok(RunView {
        task: run.input.into_inner().task,
        prepared: run.prepared.map(Shared::into_inner),
        plans: run.plans.into_iter().map(Shared::into_inner).collect(),
        attempts: run.attempts.into_iter().map(Shared::into_inner).collect(),
        best_attempt: run.best_attempt,
        stop_reason,
        failed_calls: run.failed_calls,
        session,
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
        let best_speedup = best.and_then(nightshift_protocol::attempt::Attempt::speedup);
        let fastest_baseline = self.prepared.as_deref().and_then(PreparedTask::fastest_baseline);
        RunDigest {
            task: self.input.task_name.clone(),
            model: self.input.models.label(&self.input.model),
            scripted: self.input.models.is_scripted(&self.input.model),
            attempts: self.attempt_count(),
            best_attempt: self.best_attempt,
            best_speedup,
            fastest_baseline,
            best_speedup_over_fastest: best.and_then(|best| self.prepared.as_ref()?.over_fastest(best.published()?)),
            best_times: best.and_then(|best| {
                let published = best.published()?;
                Some(BestTimes {
                    reference_median_ns: published.baseline_median_ns,
                    attempt_median_ns: published.candidate_median_ns,
                    roofline_share: best.roofline_share(),
                })
            }),
            baselines: self.prepared.as_deref().map(PreparedTask::measured_baselines).unwrap_or_default(),
            precision: self.input.precision,
            best_confirmed: best.is_some_and(|best| best.confirmation.is_some()),
            stop_reason: self.stop_reason().cloned(),
            activity: self.activity(),
        }
    }

    /// The strategy of the run.
    pub(super) fn strategy(&self) -> Result<&'static dyn Strategy, WorkflowError> {
        super::find(&self.input.strategy).ok_or_else(|| broken("its strategy is not known"))
    }

    fn complete(&mut self, open: Open, output: StepOutput) -> Result<(), WorkflowError> {
        if let Open::Attempt { number, step } = open {
            return self.climb(number, step, output);
        }
        match (self.phase.clone(), output) {
            (Phase::Preparing, StepOutput::TaskPrepared { prepared }) => {
                self.prepared = Some(Shared::new(*prepared));
                if self.strategy()?.plans() {
                    self.phase = Phase::Planning;
                } else {
                    // This plan is empty, so there is nothing that a person could approve.
                    let plan = usable(Plan::default());
                    self.plans.push(Shared::new(PlanVersion { version: 1, reason: None, plan, calls: Vec::new() }));
                    self.begin_plan()?;
                }
            }
            (Phase::Preparing, StepOutput::TaskRejected { code, message, log: _ }) => {
                self.phase = Phase::Ended { reason: StopReason::TaskRejected { code, message } };
            }
            (Phase::Planning, StepOutput::Planned { plan, calls }) => {
                self.adopt(PlanVersion { version: 1, reason: None, plan: usable(plan), calls })?;
            }
            (Phase::Replanning { reason }, StepOutput::Planned { plan, calls }) => {
                let version = self.replan_count().saturating_add(2);
                self.adopt(PlanVersion { version, reason: Some(reason), plan: usable(plan), calls })?;
            }
            (phase, _) => {
                return Err(WorkflowError::OutOfOrder {
                    event: "step_completed".to_owned(),
                    message: format!("the output does not belong to {phase:?}"),
                });
            }
        }
        Ok(())
    }

    /// Takes an attempt to its next rung; the run goes on when every attempt that is in the works with it is finished.
    fn climb(&mut self, number: u32, step: AttemptStep, output: StepOutput) -> Result<(), WorkflowError> {
        let next = match self.take(number, step, output)? {
            AfterStep::Step(next) => Some(next),
            AfterStep::TurnOver => session::next_turn(self, number)?,
            AfterStep::Finished => self.correcting(number, step)?,
        };
        if next.is_none() {
            gain::note(self, number)?;
        }
        match (&mut self.phase, next) {
            (Phase::Round { lanes }, next) => {
                for lane in lanes.iter_mut().filter(|lane| lane.attempt == number) {
                    lane.step = next;
                }
                if lanes.iter().any(|lane| lane.step.is_some()) {
                    return Ok(());
                }
                let finished: Vec<u32> = lanes.iter().map(|lane| lane.attempt).collect();
                self.go_on(&finished)
            }
            (_, Some(next)) => {
                self.phase = Phase::Attempting { step: next };
                Ok(())
            }
            (_, None) => self.go_on(&[number]),
        }
    }

    /// The Verifier's look at a failed attempt, where the strategy wants one and there is a program to look at.
    fn correcting(&self, number: u32, step: AttemptStep) -> Result<Option<AttemptStep>, WorkflowError> {
        let attempt = self.wanted_attempt(number)?;
        let is_over = matches!(step, AttemptStep::Diagnose | AttemptStep::Judge);
        let wanted = self.strategy()?.corrects() && !is_over && !attempt.outcome.is_correct();
        Ok((wanted && attempt.source.is_some()).then_some(AttemptStep::Diagnose))
    }

    fn adopt(&mut self, plan: PlanVersion) -> Result<(), WorkflowError> {
        self.plans.push(Shared::new(plan));
        if self.has_gate(Gate::Plan) {
            self.phase = Phase::Waiting { gate: Gate::Plan };
            return Ok(());
        }
        self.begin_plan()
    }

    /// Calls that were paid for and belong to no result.
    fn keep_calls(&mut self, calls: &[ModelCallSummary]) {
        for call in calls {
            if !self.failed_calls.contains(call) {
                self.failed_calls.push(call.clone());
            }
        }
    }

    /// The first attempts of the plan in force.
    pub(super) fn begin_plan(&mut self) -> Result<(), WorkflowError> {
        let openings = self.strategy()?.begin(self);
        self.open_attempts(openings)
    }

    /// Goes where the strategy says after these attempts.
    pub(super) fn follow_route(&mut self, finished: &[u32]) -> Result<(), WorkflowError> {
        let (decision, next) = self.strategy()?.next(self, finished)?;
        for number in finished {
            self.wanted_attempt_mut(*number)?.route = Some(decision.clone());
        }
        match next {
            Next::Attempts(openings) => self.open_attempts(openings)?,
            Next::Replan { reason } => self.phase = Phase::Replanning { reason },
            Next::Stop(reason) => self.phase = Phase::Ended { reason },
        }
        Ok(())
    }

    fn open_attempts(&mut self, openings: Vec<Opening>) -> Result<(), WorkflowError> {
        let plan_version = self.plans.last().map_or(1, |plan| plan.version);
        let of = u32::try_from(openings.len()).unwrap_or(u32::MAX);
        let first = self.attempt_count().saturating_add(1);
        let group = self.strategy()?.same_prompt().then_some(first);
        let has_session = self.strategy()?.has_session();
        let mut first_step = AttemptStep::WriteCode;
        let mut lanes = Vec::with_capacity(openings.len());
        for (in_round, opening) in (1..).zip(openings) {
            let number = self.attempt_count().saturating_add(1);
            let candidate = (of > 1).then_some(Candidate { number: in_round, of, group });
            let mut attempt = attempt::opened(number, plan_version, &opening, candidate);
            if has_session {
                first_step = session::open(self, &mut attempt);
            }
            self.attempts.push(Shared::new(attempt));
            lanes.push(Lane { attempt: number, step: Some(first_step) });
        }
        self.phase = match lanes.len() {
            0 => return Err(broken("its strategy opened no attempt")),
            1 => Phase::Attempting { step: first_step },
            _ => Phase::Round { lanes },
        };
        Ok(())
    }
}

/// A plan without subtasks is a plan to write the whole program at once.
fn usable(mut plan: Plan) -> Plan {
    if plan.subtasks.is_empty() {
        plan.subtasks.push(Subtask { title: "The whole program".to_owned(), ..Subtask::default() });
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
