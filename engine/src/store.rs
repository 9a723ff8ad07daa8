//! The port to the database.
//!
//! Every method is one atomic transaction, acknowledged after it is durable. Every method that changes a step re-checks
//! its status and the lease epoch; a report that comes too late changes nothing. What a step waits for when it is
//! wanted (a machine, a moment, a budget) is decided by [`crate::admission`] inside the same transaction.

mod archive_rows;
mod campaign;
mod change;
mod creation;
mod error;
mod handover;
mod kept;
mod knowledge;
mod read;
mod request;
mod run;
mod server;
mod session;
mod step;
mod team;
mod watch;
mod webhook;
mod worker;

use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;
use nightshift_protocol::access::TokenView;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::budget::{Amount, BudgetCaps, BudgetLine};
use nightshift_protocol::id::{CampaignId, RunId, ServerId, StepId, TokenId, WorkerId};
use nightshift_protocol::run::{RunStatus, RunTransition};
use nightshift_protocol::schedule::Schedule;
use nightshift_protocol::signal::Signal;
use nightshift_protocol::time::TimestampMs;
use serde_json::Value;

pub use self::archive_rows::{ArtifactNames, CollectedRows, RowSink};
pub use self::campaign::{CampaignArchive, CampaignRecord, CreatedCampaign, NewCampaign, NewRun, Pruned};
pub use self::change::{Change, Changed, ClaimRequest, DeviceLane, Report, Reported};
pub use self::creation::{Creation, Once};
pub use self::error::StoreError;
use self::error::mismatch;
pub use self::handover::{FinishedHandover, HandoverRecord, HandoverStore, NewHandover, ReturnedHandover};
pub use self::kept::{ArtifactProgress, ModelCallRecord, TokenRecord};
pub use self::knowledge::{
    BoundFrom, KnowledgeStore, LessonQuery, LessonRecord, MAX_SEARCH_WORDS, NoteRecord, RetrievalRecord, ScoreRecord,
};
pub use self::read::{PageRequest, StoreGauges};
pub use self::request::{NewRequest, RequestAnswer, RequestFilter, RequestLease, RequestStanding, RequestStore};
pub use self::run::{Advance, Advanced, CreatedRun, OwnerFence, Ownership, RunRecord};
pub use self::server::{Notice, Pulse, ServerRecord};
pub use self::session::{SessionHolder, SessionRecord, SessionStore};
pub use self::step::{ExpiredLease, HeartbeatOutcome, Reservation, StepRecord, TryEnd};
pub use self::team::{Among, Placed, ShareRecord, TeamStore};
pub use self::watch::{CampaignMark, CampaignSum, ReadingRecord, RunMark, RunStamp, WatchStore};
pub use self::webhook::{DeliveryEnd, NewDelivery, WebhookRecord, WebhookStore};
pub use self::worker::{QuarantineRecord, WorkerRecord};
use crate::event::EventRecord;

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

    /// The status of a run, without the rest of it.
    async fn run_status(&self, id: &RunId) -> Result<RunStatus, StoreError>;

    /// Events after `after`, oldest first: at most `limit`, and fewer where they are large. None only where there are none.
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

    /// Gives all rows of a campaign to `sink`, as they are at one moment.
    async fn export_rows(&self, id: &CampaignId, sink: Arc<dyn RowSink>) -> Result<(), StoreError>;

    /// Everything of a campaign that fits into memory.
    async fn export_campaign(&self, id: &CampaignId) -> Result<CampaignArchive, StoreError> {
        let rows = Arc::new(CollectedRows::default());
        self.export_rows(id, rows.clone()).await?;
        rows.archive()
    }

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

    /// Creates something. With a key that was used for the same request before, nothing is created, and the answer of
    /// that time is given; the same key with another request is [`StoreError::IdempotencyConflict`].
    async fn create(&self, creation: Creation, once: Option<Once>) -> Result<Option<String>, StoreError>;

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

    /// Routes of steps that are ready, the route with the lowest rank first.
    async fn ready_routes(&self, limit: u32) -> Result<Vec<String>, StoreError>;

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

    /// As [`Store::artifact_progress`], for those who are about to name the artifact: one that is complete is not deleted
    /// as an old one before they have.
    async fn renew_artifact(
        &self,
        hash: &ArtifactHash,
        at: TimestampMs,
    ) -> Result<Option<ArtifactProgress>, StoreError>;

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

    /// Browsers that are signed in; none where a store keeps none.
    fn sessions(&self) -> Option<&dyn SessionStore> {
        None
    }

    /// What people leave beside campaigns; none where a store keeps none of it.
    fn team(&self) -> Option<&dyn TeamStore> {
        None
    }

    /// Addresses that are told what happens; none where a store keeps none.
    fn webhooks(&self) -> Option<&dyn WebhookStore> {
        None
    }

    /// Open model calls that outside agents answer; none where a store keeps none.
    fn requests(&self) -> Option<&dyn RequestStore> {
        None
    }

    /// Hand-overs of campaigns to other machines; none where a store knows none.
    fn handovers(&self) -> Option<&dyn HandoverStore> {
        None
    }

    /// What those need who watch; none where a store cannot be watched.
    fn watch(&self) -> Option<&dyn WatchStore> {
        None
    }

    /// Unfinished runs whose state has a format above this one: no server with it takes them over.
    async fn count_newer_runs(&self, state_format: u32) -> Result<u64, StoreError>;

    /// The database's clock, where several machines share the database. None where one process has it alone: then the
    /// machine's own clock is the only one.
    async fn database_now(&self) -> Result<Option<TimestampMs>, StoreError> {
        Ok(None)
    }

    /// Kind of database: `sqlite` or `postgres`.
    fn kind(&self) -> &'static str;
}
