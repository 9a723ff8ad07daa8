//! The port to the database.
//!
//! Every method is one atomic transaction, acknowledged after it is durable. Every method that changes a step re-checks
//! its status and the lease epoch; a report that comes too late changes nothing. What a step waits for when it is
//! wanted (a machine, a moment, a budget) is decided by [`crate::admission`] inside the same transaction.

mod knowledge;

use async_trait::async_trait;
use futures::stream::BoxStream;
use nightshift_protocol::access::TokenView;
use nightshift_protocol::api::RunCounts;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::budget::{Amount, BudgetCaps, BudgetLine, Resource};
use nightshift_protocol::id::{CampaignId, RunId, ServerId, StepId, TokenId, WorkerId};
use nightshift_protocol::run::{IllegalTransition, RunStatus, RunTransition, StepStatus};
use nightshift_protocol::schedule::Schedule;
use nightshift_protocol::signal::Signal;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::time::TimestampMs;
use serde_json::Value;

use crate::event::{Event, EventRecord};
use crate::retry::RetryPolicy;
use crate::workflow::StepOrder;

pub use knowledge::{KnowledgeStore, LessonQuery, LessonRecord, MAX_SEARCH_WORDS, NoteRecord, ScoreRecord};

/// Why the store did not do it. The code is stable; see `docs/errors.md`.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// Another process has the database.
    #[error("{0}")]
    Locked(String),
    /// The folder or file cannot be written.
    #[error("{0}")]
    ReadOnly(String),
    /// Something else than a data folder with a database is in its place.
    #[error("{0}")]
    Unusable(String),
    /// No space is left.
    #[error("{0}")]
    Full(String),
    /// The file is damaged or no database of ours.
    #[error("{0}")]
    Corrupt(String),
    /// It was written by a newer release.
    #[error("{0}")]
    TooNew(String),
    /// It does not exist.
    #[error("{noun} `{id}` does not exist")]
    NotFound {
        /// What it would be.
        noun: &'static str,
        /// The id that was asked for.
        id: String,
    },
    /// The same idempotency key with another request.
    #[error("the idempotency key `{key}` was used for another request: choose a new key, or repeat the first request")]
    IdempotencyConflict {
        /// The key.
        key: String,
    },
    /// What was asked for cannot be done with what is stored; the message says why and what to do.
    #[error("{message}")]
    Refused {
        /// Stable code.
        code: &'static str,
        /// Why, and what to do.
        message: String,
    },
    /// The database server cannot be reached, or refuses us.
    #[error("{0}")]
    Unreachable(String),
    /// The status does not allow it.
    #[error(transparent)]
    Illegal(#[from] IllegalTransition),
    /// Anything else.
    #[error("the database failed: {0}")]
    Other(String),
}

impl StoreError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Locked(_) => "store.locked",
            Self::ReadOnly(_) => "store.read_only",
            Self::Unusable(_) => "store.unusable",
            Self::Full(_) => "store.full",
            Self::Corrupt(_) => "store.corrupt",
            Self::TooNew(_) => "store.too_new",
            Self::NotFound { noun: "campaign", .. } => "campaign.not_found",
            Self::NotFound { noun: "run", .. } => "run.not_found",
            Self::NotFound { noun: "step", .. } => "step.not_found",
            Self::NotFound { noun: "artifact", .. } => "artifact.not_found",
            Self::NotFound { noun: "worker", .. } => "worker.not_found",
            Self::NotFound { noun: "server", .. } => "server.not_found",
            Self::NotFound { noun: "token", .. } => "token.not_found",
            Self::NotFound { noun: "device", .. } => "device.not_found",
            Self::NotFound { .. } => "store.not_found",
            Self::IdempotencyConflict { .. } => "request.idempotency_conflict",
            Self::Refused { code, .. } => code,
            Self::Unreachable(_) => "store.unreachable",
            Self::Illegal(_) => "request.illegal_transition",
            Self::Other(_) => "store.failed",
        }
    }

    /// Whether the same call may succeed later without anyone doing anything.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Other(_) | Self::Full(_) | Self::Unreachable(_))
    }
}

/// A campaign to be created with its runs.
#[derive(Debug, Clone)]
pub struct NewCampaign {
    /// Its id.
    pub id: CampaignId,
    /// Name for people.
    pub name: String,
    /// The request, as JSON.
    pub spec: Value,
    /// When.
    pub at: TimestampMs,
    /// The client's key, with the digest of its request.
    pub idempotency: Option<(String, String)>,
    /// What it may use up.
    pub budget: BudgetCaps,
    /// When it may work.
    pub schedule: Option<Schedule>,
    /// Head start of its steps.
    pub priority: i32,
    /// Share beside other campaigns, from 1.
    pub weight: u32,
    /// The server that owns its runs from the start; none for nobody.
    pub owner: Option<ServerId>,
    /// Its runs: each begins with `RunCreated`.
    pub runs: Vec<NewRun>,
}

/// A run to be created.
#[derive(Debug, Clone)]
pub struct NewRun {
    /// Its id.
    pub id: RunId,
    /// The workflow's input, for `RunCreated`.
    pub input: Value,
    /// What lists show before the first decision.
    pub digest: Value,
}

/// What creating a campaign gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatedCampaign {
    /// The campaign: the new one, or the one that the key created before.
    pub id: CampaignId,
    /// Its runs, in order.
    pub runs: Vec<RunId>,
    /// Whether it existed before.
    pub existed: bool,
}

/// A campaign as stored.
#[derive(Debug, Clone, PartialEq)]
pub struct CampaignRecord {
    /// Id.
    pub id: CampaignId,
    /// Name for people.
    pub name: String,
    /// The request, as JSON.
    pub spec: Value,
    /// When it was created.
    pub created_at: TimestampMs,
    /// When it may work.
    pub schedule: Option<Schedule>,
    /// Head start of its steps.
    pub priority: i32,
    /// Share beside other campaigns.
    pub weight: u32,
    /// Its runs by status.
    pub runs: RunCounts,
}

/// A run as stored.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRecord {
    /// Id.
    pub id: RunId,
    /// Its campaign.
    pub campaign: CampaignId,
    /// Where it stands.
    pub status: RunStatus,
    /// Counts every advance and every change of status; the compare-and-set guard.
    pub revision: u64,
    /// The folded state; none before the first advance.
    pub state: Option<Value>,
    /// Events up to here are folded into the state.
    pub folded_seq: u64,
    /// The last event of the log.
    pub last_seq: u64,
    /// What lists show.
    pub digest: Value,
    /// Why it failed.
    pub failure: Option<StepFailure>,
    /// The server life that owns it, and how often ownership changed: the fence of its decisions.
    pub owner: Option<ServerId>,
    /// See [`Self::owner`].
    pub owner_epoch: u64,
    /// Head start of its steps.
    pub priority: i32,
    /// Signals that it waits for: gates that a person has to open.
    pub awaits: Vec<String>,
    /// When it was created.
    pub created_at: TimestampMs,
    /// When it ended.
    pub finished_at: Option<TimestampMs>,
}

/// A run that this process created, as it stood right after: one event in its log, no state, no steps.
#[derive(Debug, Clone, PartialEq)]
pub struct CreatedRun {
    /// The run.
    pub run: RunRecord,
    /// The workflow's input, from the only event.
    pub input: Value,
}

/// A step as stored.
#[derive(Debug, Clone, PartialEq)]
pub struct StepRecord {
    /// Id.
    pub id: StepId,
    /// Its run.
    pub run: RunId,
    /// Key within the run.
    pub key: String,
    /// Kind.
    pub kind: String,
    /// Route: the canonical text of its needs.
    pub route: String,
    /// Where it stands.
    pub status: StepStatus,
    /// The lease epoch; grows with every claim.
    pub epoch: u64,
    /// How often it was begun.
    pub tries: u32,
    /// How failures are treated.
    pub retry: RetryPolicy,
    /// How long one try may take, in milliseconds.
    pub timeout_ms: u64,
    /// Who carries it out, or did.
    pub worker: Option<WorkerId>,
    /// What it is given.
    pub input: Value,
    /// What it gave.
    pub output: Option<Value>,
    /// Why the last try failed.
    pub failure: Option<StepFailure>,
    /// When it was scheduled.
    pub scheduled_at: TimestampMs,
    /// When the last try began.
    pub started_at: Option<TimestampMs>,
    /// When it ended.
    pub finished_at: Option<TimestampMs>,
    /// Not before this moment, while it waits for a retry or for its campaign's window.
    pub not_before: Option<TimestampMs>,
    /// What the campaign lacks, while it waits for that.
    pub blocked_on: Option<Resource>,
    /// The device of the worker that the lease is for.
    pub device: Option<u32>,
    /// What is set aside when it becomes ready, and settled at the end of each try.
    pub reserve: Vec<Amount>,
}

/// One decision of the driver, committed as a whole or not at all.
#[derive(Debug, Clone)]
pub struct Advance {
    /// The run.
    pub run: RunId,
    /// The revision that the decision was made from.
    pub revision: u64,
    /// Events up to here are folded into the new state.
    pub folded_seq: u64,
    /// The last event of the log when the decision is committed, before its own events: with any other one it is a
    /// [`Advanced::Conflict`]. Asked for by a decision that was made before the event that it folds was committed, and by
    /// one that nothing may come before. None: events after `folded_seq` are left to the next decision.
    ///
    /// When the change right before it in the same commit is a [`Change::Report`], that report has to have appended this
    /// very event, now and not by an earlier copy; else it is a conflict too: without that, the end of a lost lease that
    /// put another event in this place would be taken for the report that it made late.
    pub expects_last_seq: Option<u64>,
    /// The new state.
    pub state: Value,
    /// What lists show.
    pub digest: Value,
    /// Steps to be scheduled, with their new ids. A key that exists is left as it is; a decision that ends the run
    /// schedules nothing.
    pub schedule: Vec<(StepId, StepOrder)>,
    /// How the run ends with this decision, and the event that says so.
    pub end: Option<(RunTransition, Event)>,
    /// Signals that the run now waits for.
    pub awaits: Vec<String>,
    /// Whose decision it is; none: ownership is not looked at.
    pub fence: Option<OwnerFence>,
    /// When.
    pub at: TimestampMs,
}

/// Who decides for a run, fenced: a server that lost the run decides nothing any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerFence {
    /// The server life.
    pub server: ServerId,
    /// The run's owner epoch that it got.
    pub epoch: u64,
}

/// What became of a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Advanced {
    /// It is committed.
    Committed {
        /// The run's revision now.
        revision: u64,
        /// The last event of its log now: those of the decision are the last ones.
        last_seq: u64,
    },
    /// Somebody else decided in between: load and decide again.
    Conflict,
    /// The run belongs to another server now.
    NotOwner,
}

impl Advanced {
    /// Whether it is committed.
    #[must_use]
    pub fn is_committed(&self) -> bool {
        matches!(self, Self::Committed { .. })
    }
}

/// A worker to be known.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerRecord {
    /// Id; a restarted process has a new one.
    pub id: WorkerId,
    /// Name for people.
    pub name: String,
    /// Whether it lives in the server's process.
    pub embedded: bool,
    /// What it can do, as JSON.
    pub offers: Value,
    /// Its version.
    pub version: String,
    /// When it was last heard of.
    pub last_seen_at: TimestampMs,
    /// Steps in its hands.
    pub leases: u64,
    /// The server life that it lives in, for an embedded one: its leases end with that life.
    pub server: Option<ServerId>,
    /// Whether it takes nothing new and will end.
    pub draining: bool,
}

/// A device of a worker on which nothing may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuarantineRecord {
    /// The driver's name of the device.
    pub device: String,
    /// Its worker, which may be gone.
    pub worker: WorkerId,
    /// The worker's name for people.
    pub worker_name: String,
    /// The device's number on that worker.
    pub number: u32,
    /// Its model.
    pub device_name: String,
    /// Tells it from earlier ones of the same worker.
    pub incident: u64,
    /// Stable code.
    pub code: String,
    /// What was seen.
    pub reason: String,
    /// When the server heard of it.
    pub since: TimestampMs,
    /// When somebody asked for it to be tried again.
    pub released_at: Option<TimestampMs>,
    /// Who that was.
    pub released_by: Option<String>,
}

/// A claim.
#[derive(Debug, Clone)]
pub struct ClaimRequest {
    /// Who.
    pub worker: WorkerId,
    /// Routes of steps without a device; together at most `cpu_slots` steps.
    pub routes: Vec<String>,
    /// Free slots for steps without a device.
    pub cpu_slots: u32,
    /// Devices on which something can begin.
    pub devices: Vec<DeviceLane>,
    /// When.
    pub at: TimestampMs,
    /// Until when without a heartbeat.
    pub expires_at: TimestampMs,
}

/// What can begin on one device: the step that ranks first decides. When it needs the device alone, it is the only one;
/// else steps that share, up to the first one that needs it alone, so that nobody waits behind a stream of sharers.
#[derive(Debug, Clone)]
pub struct DeviceLane {
    /// The device's number on its machine.
    pub device: u32,
    /// Routes of steps that need it alone; empty while another step is on it.
    pub exclusive: Vec<String>,
    /// Routes of steps that share it.
    pub shared: Vec<String>,
    /// Free places for sharing steps.
    pub shared_slots: u32,
}

/// One hot change. Changes that are committed together are applied in their order; each is atomic and stands alone.
#[derive(Debug, Clone)]
pub enum Change {
    /// See [`Store::report`].
    Report(Report),
    /// See [`Store::advance`].
    Advance(Box<Advance>),
    /// See [`Store::claim`].
    Claim(ClaimRequest),
}

/// The end of a try, as its worker tells it.
#[derive(Debug, Clone)]
pub struct Report {
    /// The step.
    pub step: StepId,
    /// The lease epoch under which it was done.
    pub epoch: u64,
    /// How it ended.
    pub end: TryEnd,
    /// What the try used up of the step's own reservation.
    pub used: Vec<Amount>,
    /// When.
    pub at: TimestampMs,
}

/// What became of a [`Change`].
#[derive(Debug, Clone)]
pub enum Changed {
    /// Of a report.
    Reported(Reported),
    /// Of a decision.
    Advanced(Advanced),
    /// Of a claim.
    Claimed(Vec<StepRecord>),
}

/// What became of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reported {
    /// It is committed, now or by an earlier copy of the same report.
    Committed,
    /// The lease is gone; nothing was changed.
    LeaseLost,
}

/// How a try ended, decided.
#[derive(Debug, Clone, PartialEq)]
pub enum TryEnd {
    /// Commit this result.
    Completed {
        /// The result.
        output: Value,
    },
    /// Try again at this moment.
    Retry {
        /// The failure.
        failure: StepFailure,
        /// Not before.
        at: TimestampMs,
    },
    /// Give up.
    Failed {
        /// The failure.
        failure: StepFailure,
    },
    /// It was stopped as asked. When nobody asked, because its run is not being cancelled, the step is ready again.
    Cancelled,
}

/// A lease that ran out.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpiredLease {
    /// The step as it was.
    pub step: StepRecord,
    /// The epoch of the lease.
    pub epoch: u64,
}

/// Outcome of a heartbeat, per lease.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HeartbeatOutcome {
    /// Leases that are gone.
    pub lost: Vec<StepId>,
    /// Steps whose run is being cancelled.
    pub cancelled: Vec<StepId>,
}

/// An answered model call. Once it is stored, the same call is never paid for again.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelCallRecord {
    /// The run.
    pub run: RunId,
    /// The step's key.
    pub step_key: String,
    /// Turn within the step, from 1.
    pub turn: u32,
    /// blake3 over model, parameters and rendered prompt.
    pub request_hash: String,
    /// The summary, as JSON.
    pub summary: Value,
    /// What had been set aside for it and is now free again.
    pub released: Vec<Amount>,
    /// What it used up.
    pub used: Vec<Amount>,
    /// When it was answered.
    pub at: TimestampMs,
}

/// Whether an amount could be set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reservation {
    /// It is set aside for the step.
    Granted,
    /// Parallel work has set aside what is left: it may come back.
    Wait(BudgetLine),
    /// The campaign cannot afford it.
    Exhausted(BudgetLine),
    /// The lease is gone.
    LeaseLost,
}

/// A life of a server process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerRecord {
    /// Id of this life.
    pub id: ServerId,
    /// Name for people.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Where it listens, for people.
    pub address: String,
    /// When it began.
    pub started_at: TimestampMs,
    /// It owns nothing any more after this moment, unless its pulse moves it.
    pub expires_at: TimestampMs,
}

/// What a server's pulse found: one query that keeps it alive and says where to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "four separate answers of one query, each a place to look at")]
pub struct Pulse {
    /// Whether it is still alive; else it was declared dead and has to register as a new life.
    pub alive: bool,
    /// Runs that it should drive: its own, or those of nobody or of a dead server.
    pub runs_to_drive: bool,
    /// Steps are ready.
    pub ready: bool,
    /// Leases have run out, or servers are dead.
    pub expired: bool,
    /// When the next timer is due.
    pub next_timer: Option<TimestampMs>,
}

/// Who owns a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ownership {
    /// The asking server, under this epoch.
    Mine(OwnerFence),
    /// Another one that is alive.
    Other(ServerId),
    /// The run is over.
    Over,
}

/// What happened in the store that somebody may wait for. A hint, never the truth.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Notice {
    /// The log or the status of a run changed.
    RunChanged(RunId),
    /// Steps of this route became ready.
    Ready(String),
    /// A timer was set.
    TimerSet,
    /// Something changed, it is not known what.
    Unknown,
}

/// A token, when its secret is right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRecord {
    /// As in a list.
    pub view: TokenView,
    /// blake3 of the secret, as hexadecimal digits.
    pub secret_hash: String,
}

/// A campaign with everything that belongs to it but the bytes of its artifacts.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct CampaignArchive {
    /// One row per entry, in an order in which they can be stored: `{ "table": …, … }`.
    pub rows: Vec<Value>,
    /// Artifacts that the rows name.
    pub artifacts: Vec<ArtifactHash>,
}

/// What was deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pruned {
    /// Campaigns that are gone.
    pub campaigns: u64,
    /// Rows that are gone.
    pub rows: u64,
    /// Artifacts that are gone.
    pub artifacts: u64,
    /// Whether more is to be deleted.
    pub more: bool,
}

/// A part of an artifact's way into the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArtifactProgress {
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Bytes that are there.
    pub stored_bytes: u64,
    /// Whether all are there and their hash is right.
    pub complete: bool,
}

/// Numbers for operators, at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoreGauges {
    /// Ready steps by route.
    pub ready: Vec<(String, u64)>,
    /// When the oldest of the ready steps was scheduled, by route.
    pub oldest_ready: Vec<(String, TimestampMs)>,
    /// Devices that a step has alone.
    pub devices_alone: u64,
    /// Devices that one or more steps share.
    pub devices_shared: u64,
    /// Steps that wait for a timer.
    pub timers: u64,
    /// Steps that wait for a budget.
    pub blocked: u64,
    /// Leases.
    pub leases: u64,
    /// When the oldest lease was given, by route.
    pub oldest_lease: Vec<(String, TimestampMs)>,
    /// Runs by status.
    pub runs: RunCounts,
}

/// A page of a list, newest first.
#[derive(Debug, Clone, Default)]
pub struct PageRequest {
    /// Rows.
    pub limit: u32,
    /// Only rows that follow this one in the list's order: older ones, or later tasks of one campaign.
    pub before: Option<String>,
}

/// The port. See the module's documentation.
#[async_trait]
pub trait Store: Send + Sync {
    // --- campaigns and runs ---

    /// Creates a campaign with its runs, or finds the one that the idempotency key created.
    async fn create_campaign(&self, new: NewCampaign) -> Result<CreatedCampaign, StoreError>;

    /// Campaigns, newest first.
    async fn list_campaigns(&self, page: PageRequest) -> Result<Vec<CampaignRecord>, StoreError>;

    /// One campaign.
    async fn load_campaign(&self, id: &CampaignId) -> Result<CampaignRecord, StoreError>;

    /// Runs, newest first; of one campaign (then in the order of its tasks), of one status. The state is left out.
    async fn list_runs(
        &self,
        campaign: Option<&CampaignId>,
        status: Option<RunStatus>,
        page: PageRequest,
    ) -> Result<Vec<RunRecord>, StoreError>;

    /// One run with its state.
    async fn load_run(&self, id: &RunId) -> Result<RunRecord, StoreError>;

    /// Unfinished runs whose log is ahead of their state by an event that asks for a decision, and cancelled ones
    /// without leases: the driver's work list.
    async fn runs_to_drive(&self, limit: u32) -> Result<Vec<RunId>, StoreError>;

    /// Events after `after`, oldest first.
    async fn events_after(&self, run: &RunId, after: u64, limit: u32) -> Result<Vec<EventRecord>, StoreError>;

    /// Commits hot changes in one transaction, in their order. Each is atomic and stands alone: one that does not hold
    /// (a lost lease, a conflict) leaves the others as they are. An error concerns all of them.
    async fn commit(&self, changes: Vec<Change>) -> Result<Vec<Changed>, StoreError>;

    /// Commits a decision. A run that ends takes its open steps with it: they are cancelled, their leases are gone.
    async fn advance(&self, advance: Advance) -> Result<Advanced, StoreError> {
        match self.commit(vec![Change::Advance(Box::new(advance))]).await?.pop() {
            Some(Changed::Advanced(advanced)) => Ok(advanced),
            _ => Err(mismatch()),
        }
    }

    /// Pause, resume or cancel: changes the status, appends the event, and takes the run's steps out of the ready
    /// list or puts them back. Cancelling cancels scheduled steps at once; leased ones end with their lease. `by` is
    /// who asked.
    async fn control_run(
        &self,
        run: &RunId,
        transition: RunTransition,
        by: Option<&str>,
        at: TimestampMs,
    ) -> Result<RunStatus, StoreError>;

    /// Appends a signal to the run's log; a key that was used for the same signal appends nothing.
    async fn signal_run(
        &self,
        run: &RunId,
        signal: Signal,
        by: Option<&str>,
        idempotency: Option<(String, String)>,
        at: TimestampMs,
    ) -> Result<(), StoreError>;

    /// Changes the head start of a run's steps, of those that are ready too.
    async fn set_priority(&self, run: &RunId, priority: i32, at: TimestampMs) -> Result<(), StoreError>;

    /// Schedules failed steps of a failed run anew (all, or one), with fresh tries, and sets the run to running. Steps
    /// that were cancelled because the run failed are scheduled with them.
    async fn retry_run(
        &self,
        run: &RunId,
        key: Option<&str>,
        by: Option<&str>,
        at: TimestampMs,
    ) -> Result<Vec<String>, StoreError>;

    // --- campaigns as a whole ---

    /// Where the budget of a campaign stands: one line per resource.
    async fn load_budget(&self, campaign: &CampaignId) -> Result<Vec<BudgetLine>, StoreError>;

    /// Changes the caps of a campaign. Steps that waited for a budget are looked at again.
    async fn set_budget(&self, campaign: &CampaignId, caps: BudgetCaps, at: TimestampMs) -> Result<(), StoreError>;

    /// Changes when a campaign may work. Steps that are ready or wait for a window are looked at again.
    async fn set_schedule(
        &self,
        campaign: &CampaignId,
        schedule: Option<Schedule>,
        at: TimestampMs,
    ) -> Result<(), StoreError>;

    /// Changes the campaign's share beside others.
    async fn set_weight(&self, campaign: &CampaignId, weight: u32, at: TimestampMs) -> Result<(), StoreError>;

    /// Sets an amount aside for a leased step, before the work that may use it up.
    async fn reserve(
        &self,
        step: &StepId,
        epoch: u64,
        amounts: &[Amount],
        at: TimestampMs,
    ) -> Result<Reservation, StoreError>;

    /// Gives back what [`Store::reserve`] set aside, and notes what of it was used up; for work that was not recorded
    /// by [`Store::record_model_call`].
    async fn settle(
        &self,
        step: &StepId,
        epoch: u64,
        released: &[Amount],
        used: &[Amount],
        at: TimestampMs,
    ) -> Result<(), StoreError>;

    /// Everything of a campaign for an archive.
    async fn export_campaign(&self, id: &CampaignId) -> Result<CampaignArchive, StoreError>;

    /// Stores an archive; its artifacts are there already. A campaign of the same id that is the same is left alone
    /// (`existed`); one that differs is refused. Runs that were not over come in paused.
    async fn import_campaign(&self, archive: CampaignArchive, at: TimestampMs) -> Result<CreatedCampaign, StoreError>;

    /// Finished campaigns whose last run ended before `before`, oldest first.
    async fn campaigns_to_prune(&self, before: TimestampMs, limit: u32) -> Result<Vec<CampaignId>, StoreError>;

    /// Deletes a chunk of a finished campaign, at most about `limit` rows; refuses one that is not finished.
    async fn prune_campaign(&self, id: &CampaignId, limit: u32) -> Result<Pruned, StoreError>;

    /// Deletes artifacts that nothing names and that were stored before `before`.
    async fn prune_artifacts(&self, before: TimestampMs, limit: u32) -> Result<Pruned, StoreError>;

    // --- servers ---

    /// Makes a life of a server known. `sole`: nobody else can be alive, because the database is locked by this
    /// process; every earlier life is dead at once.
    async fn register_server(&self, server: ServerRecord, sole: bool) -> Result<(), StoreError>;

    /// Keeps a server alive until `expires_at` and tells it where to look.
    async fn pulse(&self, server: &ServerId, at: TimestampMs, expires_at: TimestampMs) -> Result<Pulse, StoreError>;

    /// Ends a life of a server in peace: its runs belong to nobody.
    async fn retire_server(&self, server: &ServerId, at: TimestampMs) -> Result<(), StoreError>;

    /// Frees the leases that embedded workers of dead servers hold (the lost tries do not count), and forgets those
    /// servers. Gives how many leases.
    async fn reap_servers(&self, at: TimestampMs) -> Result<u64, StoreError>;

    /// Lives of servers that are known, newest first.
    async fn list_servers(&self) -> Result<Vec<ServerRecord>, StoreError>;

    /// Runs that wait for a decision and belong to this server, to nobody or to a dead server: from now on they belong
    /// to this one. A run that changes hands gets a higher owner epoch.
    async fn acquire_runs(
        &self,
        server: &ServerId,
        limit: u32,
        at: TimestampMs,
    ) -> Result<Vec<(RunId, OwnerFence)>, StoreError>;

    /// As [`Store::acquire_runs`], for one run that may wait for a decision.
    async fn acquire_run(&self, server: &ServerId, run: &RunId, at: TimestampMs) -> Result<Ownership, StoreError>;

    /// What this process still knows of a run that it created, given once: whoever makes the first decision need not
    /// read. It may be out of date by now, which the commit of the decision finds out. None is always right.
    fn take_created(&self, _: &RunId) -> Option<CreatedRun> {
        None
    }

    /// What commits bring about, in this process and in others on the same database. Sent after the commit, outside of
    /// any transaction, bundled; whoever is too slow gets [`Notice::Unknown`] for what was dropped.
    fn notices(&self) -> BoxStream<'static, Notice>;

    // --- access ---

    /// Stores a token.
    async fn create_token(&self, token: TokenRecord) -> Result<(), StoreError>;

    /// Tokens, newest first.
    async fn list_tokens(&self) -> Result<Vec<TokenView>, StoreError>;

    /// Revokes a token; revoking twice is fine.
    async fn revoke_token(&self, id: &TokenId, at: TimestampMs) -> Result<(), StoreError>;

    /// The token whose secret has this hash, revoked and expired ones too.
    async fn find_token(&self, secret_hash: &str) -> Result<Option<TokenView>, StoreError>;

    /// Notes that a token was used.
    async fn touch_token(&self, id: &TokenId, at: TimestampMs) -> Result<(), StoreError>;

    /// Numbers for operators.
    async fn gauges(&self) -> Result<StoreGauges, StoreError>;

    /// Ids of campaigns and runs that begin with the text, whose digits begin with it, or that end with it; at most
    /// `limit` of each.
    async fn find_ids(&self, text: &str, limit: u32) -> Result<(Vec<CampaignId>, Vec<RunId>), StoreError>;

    // --- steps ---

    /// Steps of a run in the order they were scheduled.
    async fn list_steps(&self, run: &RunId) -> Result<Vec<StepRecord>, StoreError>;

    /// Steps of a run in the order they were scheduled, without input and output, which may be large: those read as
    /// `null` and none.
    async fn list_step_heads(&self, run: &RunId) -> Result<Vec<StepRecord>, StoreError>;

    /// One step.
    async fn load_step(&self, id: &StepId) -> Result<StepRecord, StoreError>;

    /// Leases ready steps to a worker, in the order of their rank. Each has a new epoch.
    async fn claim(&self, claim: ClaimRequest) -> Result<Vec<StepRecord>, StoreError> {
        match self.commit(vec![Change::Claim(claim)]).await?.pop() {
            Some(Changed::Claimed(steps)) => Ok(steps),
            _ => Err(mismatch()),
        }
    }

    /// Routes that steps ever had, with the number to ask for later ones: routes are few and never change.
    async fn routes_after(&self, number: i64) -> Result<Vec<(i64, String)>, StoreError>;

    /// Extends the leases whose epoch fits and which have not run out.
    async fn heartbeat(
        &self,
        worker: &WorkerId,
        leases: &[(StepId, u64)],
        at: TimestampMs,
        expires_at: TimestampMs,
    ) -> Result<HeartbeatOutcome, StoreError>;

    /// Commits how a try ended, if the fence holds. A second copy of a committed report answers `Committed`.
    async fn report(&self, report: Report) -> Result<Reported, StoreError> {
        match self.commit(vec![Change::Report(report)]).await?.pop() {
            Some(Changed::Reported(reported)) => Ok(reported),
            _ => Err(mismatch()),
        }
    }

    /// Leases that ran out before `at`.
    async fn expired_leases(&self, at: TimestampMs, limit: u32) -> Result<Vec<ExpiredLease>, StoreError>;

    /// Ends an expired lease (re-checking epoch and expiry): the step is tried again, fails, or is cancelled. What was
    /// set aside for calls whose answer was lost counts as used; device time counts up to the reservation.
    async fn expire_lease(
        &self,
        step: &StepId,
        epoch: u64,
        end: TryEnd,
        at: TimestampMs,
    ) -> Result<Reported, StoreError>;

    /// Looks again at steps whose waiting time is over, and at ready ones that could not end before their campaign's
    /// window closes. Gives how many became ready, and when the next one is due.
    async fn fire_timers(&self, at: TimestampMs, limit: u32) -> Result<(u64, Option<TimestampMs>), StoreError>;

    // --- workers ---

    /// Makes a worker known.
    async fn register_worker(&self, worker: WorkerRecord) -> Result<(), StoreError>;

    /// Workers, last heard of first.
    async fn list_workers(&self, limit: u32) -> Result<Vec<WorkerRecord>, StoreError>;

    /// One worker.
    async fn load_worker(&self, id: &WorkerId) -> Result<WorkerRecord, StoreError>;

    /// Notes that workers were heard of; unknown ones are left out.
    async fn workers_seen(&self, workers: &[WorkerId], at: TimestampMs) -> Result<(), StoreError>;

    /// Asks a worker to take nothing new, or to go on.
    async fn drain_worker(&self, id: &WorkerId, draining: bool) -> Result<(), StoreError>;

    /// Takes in what a worker says of its devices: its offers with that, those that are quarantined, and the driver's
    /// names of those that are well. A quarantine that is known keeps its moment and its release.
    async fn set_quarantine(
        &self,
        worker: &WorkerId,
        offers: Value,
        quarantined: Vec<QuarantineRecord>,
        well: Vec<String>,
    ) -> Result<(), StoreError>;

    /// Devices on which nothing may run, newest first.
    async fn list_quarantine(&self) -> Result<Vec<QuarantineRecord>, StoreError>;

    /// Notes that somebody wants a device to be tried again. What is left of a worker that is forgotten is deleted.
    async fn release_device(
        &self,
        device: &str,
        by: Option<&str>,
        at: TimestampMs,
    ) -> Result<QuarantineRecord, StoreError>;

    /// Forgets workers that hold nothing and were last heard of before `before`. Steps that they carried out keep
    /// their id.
    async fn forget_workers(&self, before: TimestampMs) -> Result<u64, StoreError>;

    // --- artifacts and model calls ---

    /// Stores a whole blob; storing it again changes nothing.
    async fn put_artifact(&self, hash: &ArtifactHash, bytes: &[u8], at: TimestampMs) -> Result<(), StoreError>;

    /// A blob.
    async fn get_artifact(&self, hash: &ArtifactHash) -> Result<Vec<u8>, StoreError>;

    /// How far an artifact's way into the store is; none when nothing of it is there.
    async fn artifact_progress(&self, hash: &ArtifactHash) -> Result<Option<ArtifactProgress>, StoreError>;

    /// Appends a part of an artifact at `offset`, which must be what [`ArtifactProgress::stored_bytes`] says (else
    /// `Refused` with `artifact.wrong_offset`). The last part checks the hash: a wrong one (`artifact.wrong_hash`)
    /// forgets all parts.
    async fn append_artifact(
        &self,
        hash: &ArtifactHash,
        size_bytes: u64,
        offset: u64,
        bytes: &[u8],
        at: TimestampMs,
    ) -> Result<ArtifactProgress, StoreError>;

    /// A part of a complete artifact: at most `length` bytes from `offset`.
    async fn read_artifact(&self, hash: &ArtifactHash, offset: u64, length: u64) -> Result<Vec<u8>, StoreError>;

    /// The answer to a model call, if it was committed.
    async fn find_model_call(
        &self,
        run: &RunId,
        step_key: &str,
        turn: u32,
        request_hash: &str,
    ) -> Result<Option<ModelCallRecord>, StoreError>;

    /// Commits an answered model call with its reply. Committing it again changes nothing.
    async fn record_model_call(
        &self,
        call: ModelCallRecord,
        artifacts: Vec<(ArtifactHash, Vec<u8>)>,
    ) -> Result<(), StoreError>;

    /// Notes, lessons and later scores; none where a store keeps nothing of the kind.
    fn knowledge(&self) -> Option<&dyn KnowledgeStore> {
        None
    }

    /// Kind of database: `sqlite` or `postgres`.
    fn kind(&self) -> &'static str;
}

/// A store that answers something else than it was asked.
fn mismatch() -> StoreError {
    StoreError::Other(
        "the store answered another question than it was asked; this is a defect of the program".to_owned(),
    )
}
