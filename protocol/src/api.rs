//! What the HTTP API under `/api/v1` takes and gives.

use serde::{Deserialize, Serialize};

use crate::artifact::ArtifactHash;
use crate::attempt::{Attempt, StopReason};
use crate::campaign::CampaignSpec;
use crate::id::{CampaignId, RunId, StepId, WorkerId};
use crate::machine::Offers;
use crate::measurement::Interval;
use crate::model_call::ModelCallSummary;
use crate::plan::PlanVersion;
use crate::run::{RunStatus, StepStatus};
use crate::step::{PreparedTask, StepFailure, StepInput, StepKind, StepOutput};
use crate::time::TimestampMs;

/// Header that carries the idempotency key of a creating call.
pub const IDEMPOTENCY_HEADER: &str = "idempotency-key";
/// Most rows of one page.
pub const MAX_PAGE_ROWS: u32 = 500;
/// Longest time that a long-polling call is held, in milliseconds.
pub const MAX_WAIT_MS: u64 = 25_000;

/// `POST /campaigns`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CreateCampaign {
    /// What is asked for.
    pub spec: CampaignSpec,
}

/// Answer to `POST /campaigns`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CampaignCreated {
    /// The campaign.
    pub campaign: CampaignId,
    /// Its runs, in the order of the tasks.
    pub runs: Vec<RunId>,
    /// Whether the same idempotency key had created it before.
    pub existed: bool,
}

/// A campaign in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CampaignSummary {
    /// Id.
    pub id: CampaignId,
    /// Name for people.
    pub name: String,
    /// `scripted`, or `endpoint/model`.
    pub model: String,
    /// Whether replies were written beforehand.
    pub scripted: bool,
    /// When it was created.
    pub created_at: TimestampMs,
    /// Runs by status.
    pub runs: RunCounts,
}

/// Number of runs by status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RunCounts {
    /// Running.
    pub running: u64,
    /// Paused.
    pub paused: u64,
    /// Being cancelled.
    pub cancelling: u64,
    /// Completed.
    pub completed: u64,
    /// Failed.
    pub failed: u64,
    /// Cancelled.
    pub cancelled: u64,
}

impl RunCounts {
    /// Runs that are not over.
    #[must_use]
    pub fn unfinished(&self) -> u64 {
        self.running + self.paused + self.cancelling
    }

    /// All runs.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.unfinished() + self.completed + self.failed + self.cancelled
    }

    /// Counts `n` more runs of that status.
    pub fn add(&mut self, status: RunStatus, n: u64) {
        let slot = match status {
            RunStatus::Running => &mut self.running,
            RunStatus::Paused => &mut self.paused,
            RunStatus::Cancelling => &mut self.cancelling,
            RunStatus::Completed => &mut self.completed,
            RunStatus::Failed => &mut self.failed,
            RunStatus::Cancelled => &mut self.cancelled,
        };
        *slot += n;
    }
}

/// A campaign with its runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CampaignDetail {
    /// The campaign.
    pub summary: CampaignSummary,
    /// What was asked for.
    pub spec: CampaignSpec,
    /// Its runs.
    pub runs: Vec<RunSummary>,
}

/// The few facts of a run that lists show. The strategy computes them with every decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunDigest {
    /// The task's name.
    pub task: String,
    /// `scripted`, or `endpoint/model`.
    pub model: String,
    /// Whether replies were written beforehand.
    pub scripted: bool,
    /// Attempts so far.
    pub attempts: u32,
    /// Number of the best correct attempt.
    pub best_attempt: Option<u32>,
    /// Its speedup.
    pub best_speedup: Option<Interval>,
    /// Whether that speedup was confirmed in a fresh process.
    pub best_confirmed: bool,
    /// Why the run ended.
    pub stop_reason: Option<StopReason>,
    /// What it does or waits for, for example `subtask 1, attempt 3: measure`.
    pub activity: String,
}

/// A run in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunSummary {
    /// Id.
    pub id: RunId,
    /// Its campaign.
    pub campaign: CampaignId,
    /// Where it stands.
    pub status: RunStatus,
    /// When it was created.
    pub created_at: TimestampMs,
    /// When it ended.
    pub finished_at: Option<TimestampMs>,
    /// What lists show.
    pub digest: RunDigest,
    /// Why it failed, when a step could not be carried out.
    pub failure: Option<StepFailure>,
}

/// Everything that is known about a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunView {
    /// The task.
    pub task: ArtifactHash,
    /// The prepared reference.
    pub prepared: Option<PreparedTask>,
    /// Plans, oldest first.
    pub plans: Vec<PlanVersion>,
    /// Attempts, oldest first.
    pub attempts: Vec<Attempt>,
    /// Number of the best correct attempt.
    pub best_attempt: Option<u32>,
    /// Why the run ended.
    pub stop_reason: Option<StopReason>,
    /// Model calls of steps that failed in the end: no plan and no attempt lists them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_calls: Vec<ModelCallSummary>,
}

/// A run with everything about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunDetail {
    /// As in a list.
    pub summary: RunSummary,
    /// What is known.
    pub view: RunView,
    /// Steps that are not over, and why they wait.
    pub open_steps: Vec<StepView>,
}

/// A step, without input and output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepView {
    /// Id.
    pub id: StepId,
    /// Its run.
    pub run: RunId,
    /// Key within the run, for example `subtask1/attempt3/build`.
    pub key: String,
    /// Kind.
    pub kind: StepKind,
    /// Where it stands.
    pub status: StepStatus,
    /// How often it was begun.
    pub tries: u32,
    /// The lease epoch.
    pub epoch: u64,
    /// Who carries it out, or did.
    pub worker: Option<WorkerId>,
    /// When it was scheduled.
    pub scheduled_at: TimestampMs,
    /// When the last try began.
    pub started_at: Option<TimestampMs>,
    /// When it ended.
    pub finished_at: Option<TimestampMs>,
    /// Why the last try failed.
    pub failure: Option<StepFailure>,
    /// Why it is not running: `no worker offers worker/cuda/exclusive`, `retry in 4 s after model.timeout: …`, `the run is paused`.
    pub waiting_for: Option<String>,
}

/// One entry of a run's log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventView {
    /// Position in the run's log, from 1, without gaps.
    pub seq: u64,
    /// When it was appended.
    pub at: TimestampMs,
    /// Kind, past tense, for example `step_completed`.
    pub kind: String,
    /// The step's key, for events of a step.
    pub step_key: Option<String>,
    /// The whole event.
    pub body: serde_json::Value,
}

/// Answer to `GET /runs/{id}/events?after=&wait_ms=`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventsPage {
    /// Events after the given position, oldest first.
    pub events: Vec<EventView>,
    /// Where the run stands now.
    pub status: RunStatus,
}

/// One page of a list; `next` is the cursor of the following one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Page<T> {
    /// Rows.
    pub items: Vec<T>,
    /// Cursor to pass on; none at the end.
    pub next: Option<String>,
}

/// What a person can do to a run or a campaign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlAction {
    /// Lease nothing new.
    Pause,
    /// Lease again.
    Resume,
    /// End it.
    Cancel,
}

/// `POST /runs/{id}/control`, `POST /campaigns/{id}/control`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Control {
    /// What to do.
    pub action: ControlAction,
}

/// Answer to a control call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Controlled {
    /// The runs and where they stand now. Runs that were already over are left out.
    pub runs: Vec<(RunId, RunStatus)>,
}

/// `POST /runs/{id}/retry`: begin again from failed steps.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Retry {
    /// Only this step; all failed ones without it.
    pub step_key: Option<String>,
}

/// Answer to `GET /ids/{prefix}`: every id that begins with the text, or whose digits do, or that ends with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdMatches {
    /// Campaigns.
    pub campaigns: Vec<CampaignId>,
    /// Runs.
    pub runs: Vec<RunId>,
}

/// `POST /workers`: a worker process introduces itself. A restarted one is a new worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RegisterWorker {
    /// Name for people.
    pub name: String,
    /// Whether it lives in the server's process: its leases are freed as soon as the server starts again.
    pub embedded: bool,
    /// What it can do.
    pub offers: Offers,
    /// Its version.
    pub version: String,
}

/// Answer to `POST /workers`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerRegistered {
    /// Its id from now on.
    pub worker: WorkerId,
    /// How long a lease lasts without a heartbeat, in milliseconds.
    pub lease_ms: u64,
    /// How often to send a heartbeat, in milliseconds.
    pub heartbeat_ms: u64,
}

/// `POST /workers/{id}/claim`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Routes that the worker can take now ([`crate::machine::Needs::route`]), with how many steps of each.
    pub free: Vec<(String, u32)>,
    /// How long to wait for work, in milliseconds.
    pub wait_ms: u64,
}

/// A step in a worker's hands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LeasedStep {
    /// The step.
    pub step: StepId,
    /// The fence: every report must carry it.
    pub epoch: u64,
    /// Its run.
    pub run: RunId,
    /// Key within the run.
    pub key: String,
    /// The route that it was claimed on.
    pub route: String,
    /// What it is given.
    pub input: StepInput,
    /// How long the whole step may take, in milliseconds.
    pub timeout_ms: u64,
}

/// Answer to a claim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Claimed {
    /// Steps; empty when there was nothing within the waiting time.
    pub steps: Vec<LeasedStep>,
}

/// `POST /workers/{id}/heartbeat`: one for all leases of the worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Steps in its hands with their epochs.
    pub leases: Vec<(StepId, u64)>,
}

/// Answer to a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeartbeatReply {
    /// Leases that are gone: kill the work, its result will not be taken.
    pub lost: Vec<StepId>,
    /// Steps that somebody cancelled: kill the work and report `cancelled`.
    pub cancelled: Vec<StepId>,
}

/// How a worker's try ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum TryOutcome {
    /// It has a result.
    Completed {
        /// The result.
        output: Box<StepOutput>,
    },
    /// It could not be carried out.
    Failed {
        /// Why.
        failure: StepFailure,
    },
    /// It was stopped, as the heartbeat's reply asked.
    Cancelled,
}

/// `POST /steps/{id}/report`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Who reports.
    pub worker: WorkerId,
    /// The fence.
    pub epoch: u64,
    /// How it ended.
    pub result: TryOutcome,
}

/// Answer to a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportReply {
    /// It is committed, now or by an earlier copy of the same report.
    Committed,
    /// The lease is gone; the result was dropped.
    LeaseLost,
}

/// A worker in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerView {
    /// Id.
    pub id: WorkerId,
    /// Name for people.
    pub name: String,
    /// Whether it lives in the server's process.
    pub embedded: bool,
    /// When it was last heard of.
    pub last_seen_at: TimestampMs,
    /// Steps in its hands.
    pub leases: u64,
    /// What it can do.
    pub offers: Offers,
    /// Its version.
    pub version: String,
}

/// Answer to `GET /health`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// `ok`.
    pub status: String,
    /// Version of the server.
    pub version: String,
    /// Kind of database: `sqlite` or `postgres`.
    pub database: String,
    /// Server clock.
    pub now: TimestampMs,
    /// Whether its background loops run (a command that only reads starts a server without them).
    pub drives: bool,
}
