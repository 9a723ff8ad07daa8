//! The agents: Planner, Coder, Verifier and judge. Each carries out one kind of step: it renders a prompt, asks a model,
//! takes the reply apart, and gives back a typed result.
//!
//! A call that was answered is committed before anything else happens with its reply, and a committed call is never made
//! again: after a crash the step finds its own replies and goes on behind them. The agents hold no state of a run; what
//! they know is in the step's input and in the store behind [`AgentPorts`].

use std::sync::Arc;

use async_trait::async_trait;
use nightshift_engine::store::KnowledgeStore;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::budget::{Amount, BudgetLine};
use nightshift_protocol::campaign::{ModelChoice, RunInput};
use nightshift_protocol::id::RunId;
use nightshift_protocol::model_call::ModelCallSummary;
use nightshift_protocol::plan::{PlanVersion, Subtask};
use nightshift_protocol::step::{StepFailure, StepInput, StepOutput};
use nightshift_protocol::task::TaskBundle;
use nightshift_protocol::time::TimestampMs;
use secrecy::SecretString;

use crate::model::{Catalog, PriceTable, Recorder};
use crate::prompt::Prompts;

mod budget;
mod chain;
mod conversation;
mod correct;
mod diagnose;
mod evidence;
mod examine;
mod functions;
mod judge;
mod knowledge;
mod outside;
mod plan;
mod rehearsal;
mod schema;
mod session;
mod target;
mod write_code;

pub use self::budget::{BUDGET_EXHAUSTED, BUDGET_WAIT, budget_exhausted, budget_wait, exhausted_resource};
pub use self::examine::{AnswerProblem, examine_answer};
pub use self::outside::{OutsideCall, OutsideOutcome, OutsideRequest, REQUEST_OPEN, request_open};
pub use self::plan::{MAX_SUBTASKS, PlanProblem, validate_plan};
pub use self::rehearsal::{Rehearsal, RehearsedStep, rehearse};

/// Limit of a reply in tokens, when nothing else is configured: room for reasoning and a long program. The Claude 4.5
/// models accept no more; newer hosted models accept 128,000.
pub const DEFAULT_MAX_OUTPUT_TOKENS: u32 = 64_000;

/// What the agents need of the world.
#[async_trait]
pub trait AgentPorts: Send + Sync {
    /// The bytes of an artifact.
    async fn get_artifact(&self, hash: &ArtifactHash) -> Result<Vec<u8>, StepFailure>;

    /// Keeps bytes as an artifact.
    async fn put_artifact(&self, bytes: Vec<u8>) -> Result<ArtifactHash, StepFailure>;

    /// The committed call of this turn, when the same request was answered before.
    async fn find_call(
        &self,
        run: &RunId,
        step_key: &str,
        turn: u32,
        request_hash: &str,
    ) -> Result<Option<ModelCallSummary>, StepFailure>;

    /// Commits an answered call with prompt and reply, and settles what was set aside for it: all or nothing.
    async fn record_call(&self, call: AnsweredCall<'_>) -> Result<(), StepFailure>;

    /// Sets aside what a live call may use up at most, for the step that is being carried out. What parallel work may
    /// give back is worth waiting for ([`budget_wait`]), what it cannot give back is not ([`budget_exhausted`]).
    async fn reserve_call(&self, estimate: &[Amount]) -> Result<(), StepFailure>;

    /// Settles a live call that was not answered: gives back what was set aside, and notes what of it counts as used.
    async fn settle_call(&self, released: &[Amount], used: &[Amount]) -> Result<(), StepFailure>;

    /// The rest of the budget of the run's campaign.
    async fn budget(&self, _run: &RunId) -> Result<Vec<BudgetLine>, StepFailure> {
        Ok(Vec::new())
    }

    /// Opens the request of a call that an outside agent answers, or finds the one that asked the same.
    async fn open_request(&self, call: OutsideCall<'_>) -> Result<OutsideRequest, StepFailure> {
        let message = format!("`{}` is answered by requests, which are kept by a server only", call.model);
        Err(StepFailure::fatal("request.unavailable", message))
    }

    /// The request that asked this for this step, when there is one.
    async fn find_request(
        &self,
        _run: &RunId,
        _step_key: &str,
        _turn: u32,
        _request_hash: &str,
    ) -> Result<Option<OutsideRequest>, StepFailure> {
        Ok(None)
    }

    /// Notes and lessons, and what time it is for them; none where there are none.
    fn knowledge(&self) -> Option<(&dyn KnowledgeStore, TimestampMs)> {
        None
    }
}

/// An answered call, to be committed.
#[derive(Debug, Clone)]
pub struct AnsweredCall<'a> {
    /// The run.
    pub run: &'a RunId,
    /// The step's key within the run.
    pub step_key: &'a str,
    /// blake3 over model, parameters and rendered prompt.
    pub request_hash: &'a str,
    /// The summary.
    pub summary: &'a ModelCallSummary,
    /// The rendered prompt.
    pub prompt: Vec<u8>,
    /// The reply.
    pub reply: Vec<u8>,
    /// The reasoning, where the provider gives it: the artifact that the summary names.
    pub reasoning: Option<Vec<u8>>,
    /// What had been set aside for it and is free again.
    pub released: Vec<Amount>,
    /// What it used up.
    pub used: Vec<Amount>,
}

/// A step to be carried out.
#[derive(Debug, Clone, Copy)]
pub struct AgentStep<'a> {
    /// The run.
    pub run: &'a RunId,
    /// The step's key within the run.
    pub step_key: &'a str,
    /// What the step is given.
    pub input: &'a StepInput,
    /// What the run was created with.
    pub run_input: &'a RunInput,
}

/// Finds the value of an environment variable that holds a key.
pub type Keys = Arc<dyn Fn(&str) -> Option<SecretString> + Send + Sync>;

/// What the agents are made from.
pub struct AgentsConfig {
    /// The model endpoints.
    pub catalog: Catalog,
    /// Their keys.
    pub keys: Keys,
    /// The prompts.
    pub prompts: Prompts,
    /// The prices.
    pub prices: PriceTable,
    /// Where replies are written down for playing back; none when they are not.
    pub recorder: Option<Recorder>,
    /// Limit of a reply, in tokens.
    pub max_output_tokens: u32,
    /// Sampling temperature; none leaves it to the endpoint.
    pub temperature: Option<f32>,
}

impl AgentsConfig {
    /// The configuration that ships with the program: built-in prompts and prices, no recording.
    pub fn new(catalog: Catalog, keys: Keys) -> Result<Self, StepFailure> {
        Ok(Self {
            catalog,
            keys,
            prompts: Prompts::embedded()?,
            prices: PriceTable::built_in().map_err(|error| StepFailure::fatal("config.prices", error.to_string()))?,
            recorder: None,
            max_output_tokens: DEFAULT_MAX_OUTPUT_TOKENS,
            temperature: None,
        })
    }
}

/// The agents.
pub struct Agents {
    config: AgentsConfig,
}

impl std::fmt::Debug for Agents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agents").field("catalog", &self.config.catalog).finish_non_exhaustive()
    }
}

impl Agents {
    /// Agents of this configuration.
    #[must_use]
    pub fn new(config: AgentsConfig) -> Self {
        Self { config }
    }

    /// Carries out one step. Carrying it out again gives the same result, without paying again for what was committed.
    pub async fn carry_out(&self, ports: &dyn AgentPorts, step: AgentStep<'_>) -> Result<StepOutput, StepFailure> {
        match step.input {
            StepInput::Plan { task, prepared, hints } => plan::plan(self, ports, step, task, prepared, hints).await,
            StepInput::Replan { task, prepared, previous, reason, best, history, memory, hints } => {
                plan::replan(
                    self,
                    ports,
                    step,
                    plan::Replan { task, prepared, previous, reason, best: best.as_deref(), history, memory, hints },
                )
                .await
            }
            StepInput::WriteCode { task, prepared, request } if request.session.is_some() => {
                session::take_turn(self, ports, step, task, prepared, request).await
            }
            StepInput::WriteCode { task, prepared, request } => {
                write_code::write_code(self, ports, step, task, prepared, request).await
            }
            StepInput::Diagnose { task, prepared, plan, attempt, history, memory, hints } => {
                let given = diagnose::Diagnose { task, prepared, plan, attempt, history, memory, hints };
                if attempt.outcome.is_correct() {
                    diagnose::diagnose(self, ports, step, given).await
                } else {
                    correct::correct(self, ports, step, given).await
                }
            }
            StepInput::Judge { task, plan, attempt, parent_source, modification, parent_speedup, parent_bound } => {
                let judge = judge::Judge {
                    task,
                    plan,
                    attempt,
                    parent_source: parent_source.as_ref(),
                    parent_speedup: *parent_speedup,
                    parent_bound: *parent_bound,
                    modification: modification.as_deref(),
                };
                judge::judge(self, ports, step, judge).await
            }
            StepInput::PrepareTask { .. }
            | StepInput::Build { .. }
            | StepInput::Check { .. }
            | StepInput::Sanitize { .. }
            | StepInput::Tune { .. }
            | StepInput::Measure { .. }
            | StepInput::Profile { .. } => Err(StepFailure::fatal(
                "agent.wrong_step",
                format!("`{}` is a worker's step, not an agent's", step.input.kind().as_str()),
            )),
        }
    }

    /// Whether the endpoint of a choice is known to these agents; nothing is said about its key or its model.
    pub fn knows(&self, choice: &ModelChoice) -> Result<(), StepFailure> {
        self.config.catalog.knows(choice).map_err(StepFailure::from)
    }

    /// Returns true if the server knows the price of a choice, so that a cap on money bounds its calls. Scripts and outside agents cost
    /// nothing here.
    pub fn has_price(&self, choice: &ModelChoice) -> bool {
        let is_free = choice.is_scripted() || choice.is_external();
        is_free || self.config.prices.most_microusd(&choice.label(), 0, 0).is_some()
    }
}

async fn load_task(ports: &dyn AgentPorts, task: &ArtifactHash) -> Result<TaskBundle, StepFailure> {
    let bytes = ports.get_artifact(task).await?;
    serde_json::from_slice(&bytes)
        .map_err(|error| StepFailure::fatal("task.unreadable", format!("the stored task cannot be read: {error}")))
}

async fn load_text(ports: &dyn AgentPorts, hash: &ArtifactHash) -> Result<String, StepFailure> {
    let bytes = ports.get_artifact(hash).await?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A subtask by its number, from 1.
fn subtask(plan: &PlanVersion, number: u32) -> Result<&Subtask, StepFailure> {
    usize::try_from(number)
        .ok()
        .and_then(|number| number.checked_sub(1))
        .and_then(|i| plan.plan.subtasks.get(i))
        .ok_or_else(|| {
            StepFailure::fatal(
                "agent.wrong_step",
                format!("the plan of version {} has no subtask {number}", plan.version),
            )
        })
}
