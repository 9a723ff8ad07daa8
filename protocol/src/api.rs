//! What the HTTP API under `/api/v1` takes and gives.

use serde::{Deserialize, Serialize};

use crate::artifact::ArtifactHash;
use crate::attempt::{Attempt, StopReason};
use crate::budget::{BudgetCaps, BudgetLine};
use crate::campaign::CampaignSpec;
use crate::cost::RoleCost;
use crate::id::{CampaignId, RunId, ServerId, StepId, WorkerId};
use crate::machine::{Offers, Quarantine};
use crate::measurement::Interval;
use crate::model_call::ModelCallSummary;
use crate::plan::PlanVersion;
use crate::run::{RunStatus, StepStatus};
use crate::schedule::Schedule;
use crate::signal::Signal;
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
    /// When it may work; always without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Schedule>,
    /// Head start of its steps.
    #[serde(default)]
    pub priority: i32,
    /// Share beside other campaigns.
    #[serde(default)]
    pub weight: u32,
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
    /// Where its budget stands: one line per resource.
    #[serde(default)]
    pub budget: Vec<BudgetLine>,
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
    /// Head start of its steps.
    #[serde(default)]
    pub priority: i32,
    /// Gates that a person has to open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub awaits: Vec<String>,
    /// The server that decides for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<ServerId>,
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

impl RunView {
    /// Every answered call: those of plans, of attempts, and of steps that failed in the end.
    pub fn calls(&self) -> impl Iterator<Item = &ModelCallSummary> {
        let of_plans = self.plans.iter().flat_map(|plan| &plan.calls);
        let of_attempts = self.attempts.iter().flat_map(|attempt| &attempt.calls);
        of_plans.chain(of_attempts).chain(&self.failed_calls)
    }
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
    /// What its model calls cost, by the role that asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cost: Vec<RoleCost>,
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

/// `POST /runs/{id}/priority`, `POST /campaigns/{id}/priority`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetPriority {
    /// From [`crate::campaign::MIN_PRIORITY`] to [`crate::campaign::MAX_PRIORITY`].
    pub priority: i32,
}

/// `POST /campaigns/{id}/limits`: changes what is given, leaves the rest.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetLimits {
    /// All caps, those that stay too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetCaps>,
    /// A new schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Schedule>,
    /// Whether the schedule is taken away.
    #[serde(default)]
    pub no_schedule: bool,
    /// A new weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
}

/// Which runs a bulk call is about: those that fit everything that is given. Nothing given fits every unfinished run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunFilter {
    /// Of this campaign.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub campaign: Option<CampaignId>,
    /// Of this status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<RunStatus>,
    /// Of this task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Created before this moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_before: Option<TimestampMs>,
}

/// What a bulk call does to each run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum BulkAction {
    /// Lease nothing new.
    Pause,
    /// Lease again.
    Resume,
    /// End them.
    Cancel,
    /// Begin again from failed steps.
    Retry,
    /// Change the head start.
    Prioritize {
        /// See [`SetPriority`].
        priority: i32,
    },
    /// Tell them something.
    Signal {
        /// What.
        signal: Signal,
    },
}

/// `POST /runs/bulk`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bulk {
    /// Which.
    pub filter: RunFilter,
    /// What.
    pub action: BulkAction,
    /// Only say which runs it would be.
    #[serde(default)]
    pub dry_run: bool,
}

/// Answer to a bulk call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BulkDone {
    /// Runs that it was done to, with their status now.
    pub done: Vec<(RunId, RunStatus)>,
    /// Runs that refused, with code and message.
    pub refused: Vec<(RunId, String, String)>,
    /// Whether there are more that fit: call again.
    pub more: bool,
}

/// `POST /prune` (admin): deletes finished campaigns whose last run ended long ago, and artifacts that nothing names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prune {
    /// How long ago, in milliseconds.
    pub older_than_ms: u64,
    /// Only say what it would be.
    #[serde(default)]
    pub dry_run: bool,
}

/// Answer to `POST /prune`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PruneDone {
    /// Campaigns that were deleted, or would be.
    pub campaigns: Vec<CampaignId>,
    /// Rows that were deleted.
    pub rows: u64,
    /// Artifacts that were deleted.
    pub artifacts: u64,
    /// Whether more is to be deleted: call again.
    pub more: bool,
}

/// A life of a server, `GET /servers`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerView {
    /// Id.
    pub id: ServerId,
    /// Name for people.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Where it listens.
    pub address: String,
    /// When it began.
    pub started_at: TimestampMs,
    /// Whether its pulse is fresh.
    pub alive: bool,
}

/// How far an upload is: `HEAD` and `PATCH /artifacts/{hash}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadProgress {
    /// Size of the whole in bytes.
    pub size_bytes: u64,
    /// Bytes that are there: the offset to go on from.
    pub stored_bytes: u64,
    /// Whether all are there and their hash is right.
    pub complete: bool,
}

/// Header with the size of the whole artifact, of a partial upload.
pub const UPLOAD_SIZE_HEADER: &str = "nightshift-upload-size";
/// Header with the offset of a partial upload.
pub const UPLOAD_OFFSET_HEADER: &str = "nightshift-upload-offset";
/// Largest part of a partial upload, in bytes.
pub const MAX_UPLOAD_PART_BYTES: usize = 4 * 1024 * 1024;

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
    /// What is free on the worker now. The server knows from its registration what fits.
    pub free: FreeSlots,
    /// How long to wait for work, in milliseconds.
    pub wait_ms: u64,
}

/// What is free on a worker.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FreeSlots {
    /// Steps without a device.
    pub cpu: u32,
    /// Devices on which something can begin.
    pub devices: Vec<FreeDevice>,
}

impl FreeSlots {
    /// Whether nothing can begin.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cpu == 0 && self.devices.iter().all(|device| !device.exclusive && device.shared == 0)
    }
}

/// What is free on one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreeDevice {
    /// The device's number, as offered.
    pub index: u32,
    /// Whether nothing is on it, so that a step can have it alone.
    pub exclusive: bool,
    /// Steps that can join those that share it.
    pub shared: u32,
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
    /// The device that it is for; none when it needs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<u32>,
    /// Where it belongs in the run's trace (W3C `traceparent`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

/// Answer to a claim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Claimed {
    /// Steps; empty when there was nothing within the waiting time.
    pub steps: Vec<LeasedStep>,
    /// Whether the worker is asked to end: it gets nothing any more.
    #[serde(default)]
    pub draining: bool,
    /// How long the server held the claim before it leased the steps, in milliseconds, rounded down. Their leases count
    /// from the claim plus this: an answer may have been on its way for long.
    #[serde(default)]
    pub held_ms: u64,
}

/// `POST /workers/{id}/heartbeat`: one for all leases of the worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Steps in its hands with their epochs.
    pub leases: Vec<(StepId, u64)>,
    /// All devices on which nothing may run, when there are some or when that changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantined: Option<Vec<QuarantinedDevice>>,
}

/// A device on which nothing may run for now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuarantinedDevice {
    /// Its number, as offered.
    pub device: u32,
    /// Why.
    pub quarantine: Quarantine,
}

/// Answer to a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeartbeatReply {
    /// Leases that are gone: kill the work, its result will not be taken.
    pub lost: Vec<StepId>,
    /// Steps that somebody cancelled: kill the work and report `cancelled`.
    pub cancelled: Vec<StepId>,
    /// Quarantined devices that an operator released: test them, and use those that pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub released: Vec<u32>,
}

/// A quarantined device in a list, and the answer to `POST /devices/{device}/release`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuarantineView {
    /// The driver's name of the device.
    pub device: String,
    /// Its number on its worker.
    pub number: u32,
    /// Its model.
    pub name: String,
    /// Its worker, which may be gone.
    pub worker: WorkerId,
    /// The worker's name for people.
    pub worker_name: String,
    /// What is wrong, and since when.
    pub quarantine: Quarantine,
    /// When somebody asked for it to be tested and used again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released_at: Option<TimestampMs>,
    /// Who that was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released_by: Option<String>,
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
    /// What is free once it is reported: steps that are ready for it come with the answer, without waiting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free: Option<FreeSlots>,
}

/// Answer to a report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReportReply {
    /// What became of it.
    pub result: ReportResult,
    /// Further steps for what is free.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<LeasedStep>,
}

/// What became of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportResult {
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
    /// Whether it takes nothing new and will end.
    #[serde(default)]
    pub draining: bool,
    /// Whether it was not heard of for so long that it has most likely ended.
    #[serde(default)]
    pub silent: bool,
}

/// `POST /workers/{id}/drain`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    /// Whether it takes nothing new; false takes the request back.
    pub draining: bool,
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
