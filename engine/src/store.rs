//! The port to the database.
//!
//! Every method is one atomic transaction, acknowledged after it is durable. Every method that changes a step re-checks
//! its status and the lease epoch: a late report changes nothing. The same transaction decides by [`crate::admission`]
//! whether a wanted step waits for a machine, a time or a budget.

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
pub use self::kept::{ArtifactProgress, ModelCallRecord, MovedArtifacts, TokenRecord, store_unpacked};
pub use self::knowledge::{
    BoundFrom, KnowledgeStore, LessonQuery, LessonRecord, MAX_SEARCH_WORDS, NoteRecord, RetrievalRecord, ScoreRecord,
};
pub use self::read::{PageRequest, StoreGauges};
pub use self::request::{NewRequest, RequestAnswer, RequestFilter, RequestLease, RequestStanding, RequestStore};
pub use self::run::{Advance, Advanced, CreatedRun, OwnerFence, Ownership, RunRecord};
pub use self::server::{ChangedRun, Notice, Pulse, ServerRecord};
pub use self::session::{SessionHolder, SessionRecord, SessionStore};
pub use self::step::{ExpiredLease, HeartbeatOutcome, Reservation, StepRecord, TryEnd};
pub use self::team::{Among, Placed, ShareRecord, TeamStore};
pub use self::watch::{CampaignMark, CampaignSum, ReadingRecord, RunMark, RunStamp, WatchStore};
pub use self::webhook::{DeliveryEnd, NewDelivery, WebhookRecord, WebhookStore};
pub use self::worker::{QuarantineRecord, WorkerRecord};
use crate::event::EventRecord;

/// The port to the database. See the module's documentation.
#[async_trait]
pub trait Store: Send + Sync {
    // --- campaigns and runs ---

    /// Creates a campaign with its runs, or finds the one that was created with the same idempotency key.
    async fn create_campaign(&self, new: NewCampaign) -> Result<CreatedCampaign, StoreError>;

    /// Lists campaigns, newest first.
    async fn list_campaigns(&self, page: PageRequest) -> Result<Vec<CampaignRecord>, StoreError>;

    /// Loads one campaign.
    async fn load_campaign(&self, id: &CampaignId) -> Result<CampaignRecord, StoreError>;

    /// Lists runs without their state, newest first. Runs of one campaign come in the order of its tasks.
    async fn list_runs(
        &self,
        campaign: Option<&CampaignId>,
        status: Option<RunStatus>,
        page: PageRequest,
    ) -> Result<Vec<RunRecord>, StoreError>;

    /// Loads one run with its state.
    async fn load_run(&self, id: &RunId) -> Result<RunRecord, StoreError>;

    /// Returns the work list of the driver. It holds unfinished runs whose log has an unfolded event that requires a
    /// decision, and cancelled runs without leases.
    async fn runs_to_drive(&self, limit: u32) -> Result<Vec<RunId>, StoreError>;

    /// Returns the status of a run.
    async fn run_status(&self, id: &RunId) -> Result<RunStatus, StoreError>;

    /// Returns events after `after`, oldest first: at most `limit`, and fewer if they are large. Returns an empty list
    /// only if no further events exist.
    async fn events_after(&self, run: &RunId, after: u64, limit: u32) -> Result<Vec<EventRecord>, StoreError>;

    /// Commits hot changes in one transaction, in their order.
    ///
    /// Each change is atomic. A change that fails its check (a lost lease, a conflict) does not affect the others. An
    /// error affects all of them.
    async fn commit(&self, changes: Vec<Change>) -> Result<Vec<Changed>, StoreError>;

    /// Commits a decision. If the run ends, its open steps are cancelled and their leases end.
    async fn advance(&self, advance: Advance) -> Result<Advanced, StoreError> {
        match self.commit(vec![Change::Advance(Box::new(advance))]).await?.pop() {
            Some(Changed::Advanced(advanced)) => Ok(advanced),
            _ => Err(mismatch()),
        }
    }

    /// Pauses, resumes or cancels a run: changes the status and appends the event. `by` names the caller.
    ///
    /// Steps of the run leave the ready list or return to it. Cancelling cancels scheduled steps at once. Leased steps
    /// end with their lease.
    async fn control_run(
        &self,
        run: &RunId,
        transition: RunTransition,
        by: Option<&str>,
        at: TimestampMs,
    ) -> Result<RunStatus, StoreError>;

    /// Appends a signal to the run's log. Repeating a signal with the same key appends nothing.
    async fn signal_run(
        &self,
        run: &RunId,
        signal: Signal,
        by: Option<&str>,
        idempotency: Option<(String, String)>,
        at: TimestampMs,
    ) -> Result<(), StoreError>;

    /// Changes the priority of a run's steps, including steps that are ready.
    async fn set_priority(&self, run: &RunId, priority: i32, at: TimestampMs) -> Result<(), StoreError>;

    /// Schedules failed steps of a failed run again (all, or one) with fresh tries, and sets the run to running.
    ///
    /// Steps that were cancelled because the run failed are scheduled too.
    async fn retry_run(
        &self,
        run: &RunId,
        key: Option<&str>,
        by: Option<&str>,
        at: TimestampMs,
    ) -> Result<Vec<String>, StoreError>;

    // --- campaigns as a whole ---

    /// Returns the budget of a campaign: one line per resource.
    async fn load_budget(&self, campaign: &CampaignId) -> Result<Vec<BudgetLine>, StoreError>;

    /// Changes the caps of a campaign. Steps that waited for a budget are admitted again.
    async fn set_budget(&self, campaign: &CampaignId, caps: BudgetCaps, at: TimestampMs) -> Result<(), StoreError>;

    /// Changes when a campaign may work. Steps that are ready or wait for a window are admitted again.
    async fn set_schedule(
        &self,
        campaign: &CampaignId,
        schedule: Option<Schedule>,
        at: TimestampMs,
    ) -> Result<(), StoreError>;

    /// Changes the campaign's share relative to other campaigns.
    async fn set_weight(&self, campaign: &CampaignId, weight: u32, at: TimestampMs) -> Result<(), StoreError>;

    /// Reserves an amount for a leased step, before the work that may use it up.
    async fn reserve(
        &self,
        step: &StepId,
        epoch: u64,
        amounts: &[Amount],
        at: TimestampMs,
    ) -> Result<Reservation, StoreError>;

    /// Releases a reservation of [`Store::reserve`] and records the used part. For work that
    /// [`Store::record_model_call`] does not record.
    async fn settle(
        &self,
        step: &StepId,
        epoch: u64,
        released: &[Amount],
        used: &[Amount],
        at: TimestampMs,
    ) -> Result<(), StoreError>;

    /// Writes all rows of a campaign to `sink`, as a consistent snapshot.
    async fn export_rows(&self, id: &CampaignId, sink: Arc<dyn RowSink>) -> Result<(), StoreError>;

    /// Returns a whole campaign in memory.
    async fn export_campaign(&self, id: &CampaignId) -> Result<CampaignArchive, StoreError> {
        let rows = Arc::new(CollectedRows::default());
        self.export_rows(id, rows.clone()).await?;
        rows.archive()
    }

    /// Stores an archive whose artifacts are stored already. Unfinished runs are imported as paused.
    ///
    /// An identical campaign of the same id is left unchanged (`existed`). A different one is refused.
    async fn import_campaign(&self, archive: CampaignArchive, at: TimestampMs) -> Result<CreatedCampaign, StoreError>;

    /// Returns finished campaigns whose last run ended before `before`, oldest first.
    async fn campaigns_to_prune(&self, before: TimestampMs, limit: u32) -> Result<Vec<CampaignId>, StoreError>;

    /// Deletes a chunk of a finished campaign, at most about `limit` rows. Refuses an unfinished campaign.
    async fn prune_campaign(&self, id: &CampaignId, limit: u32) -> Result<Pruned, StoreError>;

    /// Deletes unreferenced artifacts that were stored before `before`.
    async fn prune_artifacts(&self, before: TimestampMs, limit: u32) -> Result<Pruned, StoreError>;

    /// Deletes objects of the object store that no artifact has: of deleted artifacts, and of uploads that were begun
    /// before `before` and never ended. Returns their number, at most `limit`.
    async fn collect_objects(&self, before: TimestampMs, limit: u32) -> Result<u64, StoreError>;

    /// Moves some artifacts, in the order of their hashes, from the database into the object store.
    ///
    /// It verifies each hash, and works while other servers do the same and while the artifacts are read.
    async fn move_artifacts(&self, after: Option<ArtifactHash>, at: TimestampMs) -> Result<MovedArtifacts, StoreError>;

    // --- servers ---

    /// Registers a server lease.
    ///
    /// `sole` says that this process has locked the database, so no other server can be alive. All earlier leases end
    /// at once then.
    async fn register_server(&self, server: ServerRecord, sole: bool) -> Result<(), StoreError>;

    /// Sends a heartbeat: keeps a server alive until `expires_at` and returns where work is due.
    async fn pulse(&self, server: &ServerId, at: TimestampMs, expires_at: TimestampMs) -> Result<Pulse, StoreError>;

    /// Ends a server lease in an orderly way: its runs belong to no server.
    async fn retire_server(&self, server: &ServerId, at: TimestampMs) -> Result<(), StoreError>;

    /// Frees the leases of embedded workers of dead servers and deletes those servers. Returns the number of freed
    /// leases.
    ///
    /// The lost tries do not count.
    async fn reap_servers(&self, at: TimestampMs) -> Result<u64, StoreError>;

    /// Lists the known server leases, newest first.
    async fn list_servers(&self) -> Result<Vec<ServerRecord>, StoreError>;

    /// Acquires runs that wait for a decision and belong to this server, to no server or to a dead server.
    ///
    /// A run that changes its owner gets a higher owner epoch.
    async fn acquire_runs(
        &self,
        server: &ServerId,
        limit: u32,
        at: TimestampMs,
    ) -> Result<Vec<(RunId, OwnerFence)>, StoreError>;

    /// Acquires one run that may wait for a decision. See [`Store::acquire_runs`].
    async fn acquire_run(&self, server: &ServerId, run: &RunId, at: TimestampMs) -> Result<Ownership, StoreError>;

    /// Removes and returns this process's copy of a run that it created, so that the first decision needs no read.
    ///
    /// The copy may be outdated; the commit of the decision detects that. Returning `None` is always correct.
    fn take_created(&self, _: &RunId) -> Option<CreatedRun> {
        None
    }

    /// Returns a stream of notices about commits of this process and of others on the same database.
    ///
    /// Notices are sent after the commit, outside of any transaction, in batches. A receiver that is too slow gets
    /// [`Notice::Unknown`] in place of dropped notices.
    fn notices(&self) -> BoxStream<'static, Notice>;

    // --- access ---

    /// Creates something, at most once per idempotency key.
    ///
    /// Repeating the request with its key creates nothing and returns the first answer. The same key with another
    /// request is [`StoreError::IdempotencyConflict`].
    async fn create(&self, creation: Creation, once: Option<Once>) -> Result<Option<String>, StoreError>;

    /// Lists tokens, newest first.
    async fn list_tokens(&self) -> Result<Vec<TokenView>, StoreError>;

    /// Revokes a token. Repeating it changes nothing.
    async fn revoke_token(&self, id: &TokenId, at: TimestampMs) -> Result<(), StoreError>;

    /// Finds the token by the hash of its secret, including revoked and expired tokens.
    async fn find_token(&self, secret_hash: &str) -> Result<Option<TokenView>, StoreError>;

    /// Records that a token was used.
    async fn touch_token(&self, id: &TokenId, at: TimestampMs) -> Result<(), StoreError>;

    /// Returns gauges for operators.
    async fn gauges(&self) -> Result<StoreGauges, StoreError>;

    /// Finds campaigns and runs whose id or its digits begin with the text, or whose id ends with it. Returns at most
    /// `limit` of each.
    async fn find_ids(&self, text: &str, limit: u32) -> Result<(Vec<CampaignId>, Vec<RunId>), StoreError>;

    // --- steps ---

    /// Lists the steps of a run in the order of their scheduling.
    async fn list_steps(&self, run: &RunId) -> Result<Vec<StepRecord>, StoreError>;

    /// Lists the steps of a run in the order of their scheduling, without the large fields. Input reads as `null`,
    /// output as none.
    async fn list_step_heads(&self, run: &RunId) -> Result<Vec<StepRecord>, StoreError>;

    /// Loads one step.
    async fn load_step(&self, id: &StepId) -> Result<StepRecord, StoreError>;

    /// Leases ready steps to a worker, in the order of their rank, each under a new epoch.
    async fn claim(&self, claim: ClaimRequest) -> Result<Vec<StepRecord>, StoreError> {
        match self.commit(vec![Change::Claim(claim)]).await?.pop() {
            Some(Changed::Claimed(steps)) => Ok(steps),
            _ => Err(mismatch()),
        }
    }

    /// Returns the routes of ready steps, the route with the lowest rank first.
    async fn ready_routes(&self, limit: u32) -> Result<Vec<String>, StoreError>;

    /// Extends the leases whose epoch matches and which have not expired.
    async fn heartbeat(
        &self,
        worker: &WorkerId,
        leases: &[(StepId, u64)],
        at: TimestampMs,
        expires_at: TimestampMs,
    ) -> Result<HeartbeatOutcome, StoreError>;

    /// Commits how a try ended, if the fence holds. A second copy of a committed report returns `Committed`.
    async fn report(&self, report: Report) -> Result<Reported, StoreError> {
        match self.commit(vec![Change::Report(report)]).await?.pop() {
            Some(Changed::Reported(reported)) => Ok(reported),
            _ => Err(mismatch()),
        }
    }

    /// Returns leases that expired before `at`.
    async fn expired_leases(&self, at: TimestampMs, limit: u32) -> Result<Vec<ExpiredLease>, StoreError>;

    /// Ends an expired lease, after checking epoch and expiry again. The step is tried again, fails, or is cancelled.
    ///
    /// Reservations of calls without an answer count as used. Device time counts up to the reservation.
    async fn expire_lease(
        &self,
        step: &StepId,
        epoch: u64,
        end: TryEnd,
        at: TimestampMs,
    ) -> Result<Reported, StoreError>;

    /// Admits steps again whose waiting time is over, and ready steps that could not end before their campaign's window
    /// closes.
    ///
    /// Returns how many became ready, and when the next timer is due.
    async fn fire_timers(&self, at: TimestampMs, limit: u32) -> Result<(u64, Option<TimestampMs>), StoreError>;

    // --- workers ---

    /// Registers a worker.
    async fn register_worker(&self, worker: WorkerRecord) -> Result<(), StoreError>;

    /// Lists workers, most recently seen first.
    async fn list_workers(&self, limit: u32) -> Result<Vec<WorkerRecord>, StoreError>;

    /// Loads one worker.
    async fn load_worker(&self, id: &WorkerId) -> Result<WorkerRecord, StoreError>;

    /// Records that workers were seen. Unknown workers are skipped.
    async fn workers_seen(&self, workers: &[WorkerId], at: TimestampMs) -> Result<(), StoreError>;

    /// Asks a worker to take no new steps, or to resume.
    async fn drain_worker(&self, id: &WorkerId, draining: bool) -> Result<(), StoreError>;

    /// Stores a worker's report about its devices: the offers, the quarantined devices, and the driver's names of
    /// healthy devices.
    ///
    /// A known quarantine keeps its start and its release.
    async fn set_quarantine(
        &self,
        worker: &WorkerId,
        offers: Value,
        quarantined: Vec<QuarantineRecord>,
        well: Vec<String>,
    ) -> Result<(), StoreError>;

    /// Lists quarantined devices, newest first.
    async fn list_quarantine(&self) -> Result<Vec<QuarantineRecord>, StoreError>;

    /// Records a request to release a device from quarantine. Remaining entries of a deleted worker are deleted.
    async fn release_device(
        &self,
        device: &str,
        by: Option<&str>,
        at: TimestampMs,
    ) -> Result<QuarantineRecord, StoreError>;

    /// Deletes workers without leases that were last seen before `before`. Their steps keep the worker's id.
    async fn forget_workers(&self, before: TimestampMs) -> Result<u64, StoreError>;

    // --- artifacts and model calls ---

    /// Stores a whole blob. Storing it again changes nothing.
    async fn put_artifact(&self, hash: &ArtifactHash, bytes: &[u8], at: TimestampMs) -> Result<(), StoreError>;

    /// Loads a blob.
    async fn get_artifact(&self, hash: &ArtifactHash) -> Result<Vec<u8>, StoreError>;

    /// Returns the upload progress of an artifact, or none if no part of it is stored.
    async fn artifact_progress(&self, hash: &ArtifactHash) -> Result<Option<ArtifactProgress>, StoreError>;

    /// Returns the upload progress before the caller references the artifact. The call protects a complete artifact
    /// from pruning until then.
    async fn renew_artifact(
        &self,
        hash: &ArtifactHash,
        at: TimestampMs,
    ) -> Result<Option<ArtifactProgress>, StoreError>;

    /// Appends a part of an artifact at `offset`, which must equal [`ArtifactProgress::stored_bytes`].
    ///
    /// Another offset is `Refused` with `artifact.wrong_offset`. The last part checks the hash. A wrong hash
    /// (`artifact.wrong_hash`) deletes all parts.
    async fn append_artifact(
        &self,
        hash: &ArtifactHash,
        size_bytes: u64,
        offset: u64,
        bytes: &[u8],
        at: TimestampMs,
    ) -> Result<ArtifactProgress, StoreError>;

    /// Reads a part of a complete artifact: at most `length` bytes from `offset`.
    async fn read_artifact(&self, hash: &ArtifactHash, offset: u64, length: u64) -> Result<Vec<u8>, StoreError>;

    /// Finds the answer to a model call, if it was committed.
    async fn find_model_call(
        &self,
        run: &RunId,
        step_key: &str,
        turn: u32,
        request_hash: &str,
    ) -> Result<Option<ModelCallRecord>, StoreError>;

    /// Commits an answered model call with its reply. Repeating it changes nothing.
    async fn record_model_call(
        &self,
        call: ModelCallRecord,
        artifacts: Vec<(ArtifactHash, Vec<u8>)>,
    ) -> Result<(), StoreError>;

    /// Returns the port for notes, lessons and later scores, if the store supports it.
    fn knowledge(&self) -> Option<&dyn KnowledgeStore> {
        None
    }

    /// Returns the port for browser sessions, if the store supports it.
    fn sessions(&self) -> Option<&dyn SessionStore> {
        None
    }

    /// Returns the port for notes, tags, pins, views and links, if the store supports it.
    fn team(&self) -> Option<&dyn TeamStore> {
        None
    }

    /// Returns the port for webhooks, if the store supports it.
    fn webhooks(&self) -> Option<&dyn WebhookStore> {
        None
    }

    /// Returns the port for model calls that outside agents answer, if the store supports it.
    fn requests(&self) -> Option<&dyn RequestStore> {
        None
    }

    /// Returns the port for hand-overs of campaigns to other machines, if the store supports it.
    fn handovers(&self) -> Option<&dyn HandoverStore> {
        None
    }

    /// Returns the port for observing changes, if the store supports it.
    fn watch(&self) -> Option<&dyn WatchStore> {
        None
    }

    /// Counts unfinished runs whose state has a higher format. No server with this format acquires them.
    async fn count_newer_runs(&self, state_format: u32) -> Result<u64, StoreError>;

    /// Returns the database's clock where several machines share the database. Returns none where one process has it
    /// alone and uses the machine's clock.
    async fn database_now(&self) -> Result<Option<TimestampMs>, StoreError> {
        Ok(None)
    }

    /// Returns the kind of database: `sqlite` or `postgres`.
    fn kind(&self) -> &'static str;
}
