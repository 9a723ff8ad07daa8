//! The port to the database.
//!
//! Every method is one atomic transaction, acknowledged after it is durable. Every method that changes a step re-checks
//! its status and the lease epoch; a report that comes too late changes nothing.

use async_trait::async_trait;
use nightshift_protocol::api::RunCounts;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::id::{CampaignId, RunId, StepId, WorkerId};
use nightshift_protocol::run::{IllegalTransition, RunStatus, RunTransition, StepStatus};
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::time::TimestampMs;
use serde_json::Value;

use crate::event::{Event, EventRecord};
use crate::retry::RetryPolicy;
use crate::workflow::StepOrder;

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
            Self::NotFound { .. } => "store.not_found",
            Self::IdempotencyConflict { .. } => "request.idempotency_conflict",
            Self::Illegal(_) => "request.illegal_transition",
            Self::Other(_) => "store.failed",
        }
    }

    /// Whether the same call may succeed later without anyone doing anything.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Other(_) | Self::Full(_))
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
    /// When it was created.
    pub created_at: TimestampMs,
    /// When it ended.
    pub finished_at: Option<TimestampMs>,
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
    /// Not before this moment, while a retry waits.
    pub not_before: Option<TimestampMs>,
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
    /// The new state.
    pub state: Value,
    /// What lists show.
    pub digest: Value,
    /// Steps to be scheduled, with their new ids. A key that exists is left as it is; a decision that ends the run
    /// schedules nothing.
    pub schedule: Vec<(StepId, StepOrder)>,
    /// How the run ends with this decision, and the event that says so.
    pub end: Option<(RunTransition, Event)>,
    /// When.
    pub at: TimestampMs,
}

/// What became of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advanced {
    /// It is committed.
    Committed,
    /// Somebody else decided in between: load and decide again.
    Conflict,
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
}

/// A claim.
#[derive(Debug, Clone)]
pub struct ClaimRequest {
    /// Who.
    pub worker: WorkerId,
    /// Routes with how many steps of each.
    pub free: Vec<(String, u32)>,
    /// When.
    pub at: TimestampMs,
    /// Until when without a heartbeat.
    pub expires_at: TimestampMs,
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
    /// When it was answered.
    pub at: TimestampMs,
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

    /// Commits a decision. A run that ends takes its open steps with it: they are cancelled, their leases are gone.
    async fn advance(&self, advance: Advance) -> Result<Advanced, StoreError>;

    /// Pause, resume or cancel: changes the status, appends the event, and takes the run's steps out of the ready
    /// list or puts them back. Cancelling cancels scheduled steps at once; leased ones end with their lease.
    async fn control_run(
        &self,
        run: &RunId,
        transition: RunTransition,
        at: TimestampMs,
    ) -> Result<RunStatus, StoreError>;

    /// Schedules failed steps of a failed run anew (all, or one), with fresh tries, and sets the run to running. Steps
    /// that were cancelled because the run failed are scheduled with them.
    async fn retry_run(&self, run: &RunId, key: Option<&str>, at: TimestampMs) -> Result<Vec<String>, StoreError>;

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

    /// Leases ready steps to a worker, oldest first. Each has a new epoch.
    async fn claim(&self, claim: ClaimRequest) -> Result<Vec<StepRecord>, StoreError>;

    /// Extends the leases whose epoch fits and which have not run out.
    async fn heartbeat(
        &self,
        worker: &WorkerId,
        leases: &[(StepId, u64)],
        at: TimestampMs,
        expires_at: TimestampMs,
    ) -> Result<HeartbeatOutcome, StoreError>;

    /// Commits how a try ended, if the fence holds. A second copy of a committed report answers `Committed`.
    async fn report(&self, step: &StepId, epoch: u64, end: TryEnd, at: TimestampMs) -> Result<Reported, StoreError>;

    /// Leases that ran out before `at`.
    async fn expired_leases(&self, at: TimestampMs, limit: u32) -> Result<Vec<ExpiredLease>, StoreError>;

    /// Ends an expired lease (re-checking epoch and expiry): the step is tried again, fails, or is cancelled.
    async fn expire_lease(
        &self,
        step: &StepId,
        epoch: u64,
        end: TryEnd,
        at: TimestampMs,
    ) -> Result<Reported, StoreError>;

    /// Frees the leases of embedded workers of an earlier life of the server: their steps are ready at once, and the
    /// lost try does not count.
    async fn free_embedded_leases(&self, at: TimestampMs) -> Result<u64, StoreError>;

    /// Makes steps ready whose waiting time is over. Gives how many, and when the next one is due.
    async fn fire_timers(&self, at: TimestampMs, limit: u32) -> Result<(u64, Option<TimestampMs>), StoreError>;

    // --- workers ---

    /// Makes a worker known.
    async fn register_worker(&self, worker: WorkerRecord) -> Result<(), StoreError>;

    /// Workers, last heard of first.
    async fn list_workers(&self, limit: u32) -> Result<Vec<WorkerRecord>, StoreError>;

    // --- artifacts and model calls ---

    /// Stores a blob; storing it again changes nothing.
    async fn put_artifact(&self, hash: &ArtifactHash, bytes: &[u8]) -> Result<(), StoreError>;

    /// A blob.
    async fn get_artifact(&self, hash: &ArtifactHash) -> Result<Vec<u8>, StoreError>;

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

    /// Kind of database: `sqlite` or `postgres`.
    fn kind(&self) -> &'static str;
}
