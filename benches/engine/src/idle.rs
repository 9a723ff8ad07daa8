//! A store that counts the calls to it. A call is one transaction or one read, of a few statements.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use futures::stream::BoxStream;
use nightshift_engine::event::EventRecord;
use nightshift_engine::store::{
    ArtifactProgress, CampaignArchive, CampaignRecord, Change, Changed, CreatedCampaign, CreatedRun, Creation,
    ExpiredLease, HeartbeatOutcome, ModelCallRecord, MovedArtifacts, NewCampaign, Notice, Once, OwnerFence, Ownership,
    PageRequest, Pruned, Pulse, QuarantineRecord, Reported, Reservation, RowSink, RunRecord, ServerRecord, StepRecord,
    Store, StoreError, StoreGauges, TryEnd, WorkerRecord,
};
use nightshift_protocol::access::TokenView;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::budget::{Amount, BudgetCaps, BudgetLine};
use nightshift_protocol::id::{CampaignId, RunId, ServerId, StepId, TokenId, WorkerId};
use nightshift_protocol::run::{RunStatus, RunTransition};
use nightshift_protocol::schedule::Schedule;
use nightshift_protocol::signal::Signal;
use nightshift_protocol::time::TimestampMs;

/// The store, counted.
pub(crate) struct Counted {
    inner: Arc<dyn Store>,
    calls: AtomicU64,
}

impl Counted {
    pub(crate) fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, calls: AtomicU64::new(0) }
    }

    /// Calls so far.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }
}

/// Passes every call on, and counts it.
macro_rules! counted {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)*) => {
        #[async_trait]
        impl Store for Counted {
            $(
                async fn $name(&self $(, $argument: $kind)*) -> Result<$answer, StoreError> {
                    self.calls.fetch_add(1, Ordering::Relaxed);
                    self.inner.$name($($argument),*).await
                }
            )*

            fn take_created(&self, run: &RunId) -> Option<CreatedRun> {
                self.inner.take_created(run)
            }

            fn notices(&self) -> BoxStream<'static, Notice> {
                self.inner.notices()
            }

            fn kind(&self) -> &'static str {
                self.inner.kind()
            }
        }
    };
}

counted! {
    create_campaign(new: NewCampaign) -> CreatedCampaign;
    list_campaigns(page: PageRequest) -> Vec<CampaignRecord>;
    load_campaign(id: &CampaignId) -> CampaignRecord;
    list_runs(campaign: Option<&CampaignId>, status: Option<RunStatus>, page: PageRequest) -> Vec<RunRecord>;
    load_run(id: &RunId) -> RunRecord;
    runs_to_drive(limit: u32) -> Vec<RunId>;
    run_status(id: &RunId) -> RunStatus;
    events_after(run: &RunId, after: u64, limit: u32) -> Vec<EventRecord>;
    commit(changes: Vec<Change>) -> Vec<Changed>;
    control_run(run: &RunId, transition: RunTransition, by: Option<&str>, at: TimestampMs) -> RunStatus;
    signal_run(run: &RunId, signal: Signal, by: Option<&str>, idempotency: Option<(String, String)>, at: TimestampMs) -> ();
    set_priority(run: &RunId, priority: i32, at: TimestampMs) -> ();
    retry_run(run: &RunId, key: Option<&str>, by: Option<&str>, at: TimestampMs) -> Vec<String>;
    load_budget(campaign: &CampaignId) -> Vec<BudgetLine>;
    set_budget(campaign: &CampaignId, caps: BudgetCaps, at: TimestampMs) -> ();
    set_schedule(campaign: &CampaignId, schedule: Option<Schedule>, at: TimestampMs) -> ();
    set_weight(campaign: &CampaignId, weight: u32, at: TimestampMs) -> ();
    reserve(step: &StepId, epoch: u64, amounts: &[Amount], at: TimestampMs) -> Reservation;
    settle(step: &StepId, epoch: u64, released: &[Amount], used: &[Amount], at: TimestampMs) -> ();
    export_rows(id: &CampaignId, sink: Arc<dyn RowSink>) -> ();
    import_campaign(archive: CampaignArchive, at: TimestampMs) -> CreatedCampaign;
    campaigns_to_prune(before: TimestampMs, limit: u32) -> Vec<CampaignId>;
    prune_campaign(id: &CampaignId, limit: u32) -> Pruned;
    prune_artifacts(before: TimestampMs, limit: u32) -> Pruned;
    collect_objects(before: TimestampMs, limit: u32) -> u64;
    move_artifacts(after: Option<ArtifactHash>, at: TimestampMs) -> MovedArtifacts;
    register_server(server: ServerRecord, sole: bool) -> ();
    pulse(server: &ServerId, at: TimestampMs, expires_at: TimestampMs) -> Pulse;
    retire_server(server: &ServerId, at: TimestampMs) -> ();
    reap_servers(at: TimestampMs) -> u64;
    list_servers() -> Vec<ServerRecord>;
    count_newer_runs(state_format: u32) -> u64;
    database_now() -> Option<TimestampMs>;
    acquire_runs(server: &ServerId, limit: u32, at: TimestampMs) -> Vec<(RunId, OwnerFence)>;
    acquire_run(server: &ServerId, run: &RunId, at: TimestampMs) -> Ownership;
    create(creation: Creation, once: Option<Once>) -> Option<String>;
    list_tokens() -> Vec<TokenView>;
    revoke_token(id: &TokenId, at: TimestampMs) -> ();
    find_token(secret_hash: &str) -> Option<TokenView>;
    touch_token(id: &TokenId, at: TimestampMs) -> ();
    gauges() -> StoreGauges;
    find_ids(text: &str, limit: u32) -> (Vec<CampaignId>, Vec<RunId>);
    list_steps(run: &RunId) -> Vec<StepRecord>;
    list_step_heads(run: &RunId) -> Vec<StepRecord>;
    load_step(id: &StepId) -> StepRecord;
    ready_routes(limit: u32) -> Vec<String>;
    heartbeat(worker: &WorkerId, leases: &[(StepId, u64)], at: TimestampMs, expires_at: TimestampMs) -> HeartbeatOutcome;
    expired_leases(at: TimestampMs, limit: u32) -> Vec<ExpiredLease>;
    expire_lease(step: &StepId, epoch: u64, end: TryEnd, at: TimestampMs) -> Reported;
    fire_timers(at: TimestampMs, limit: u32) -> (u64, Option<TimestampMs>);
    register_worker(worker: WorkerRecord) -> ();
    list_workers(limit: u32) -> Vec<WorkerRecord>;
    load_worker(id: &WorkerId) -> WorkerRecord;
    workers_seen(workers: &[WorkerId], at: TimestampMs) -> ();
    drain_worker(id: &WorkerId, draining: bool) -> ();
    set_quarantine(
        worker: &WorkerId, offers: serde_json::Value, quarantined: Vec<QuarantineRecord>, well: Vec<String>
    ) -> ();
    list_quarantine() -> Vec<QuarantineRecord>;
    release_device(device: &str, by: Option<&str>, at: TimestampMs) -> QuarantineRecord;
    forget_workers(before: TimestampMs) -> u64;
    put_artifact(hash: &ArtifactHash, bytes: &[u8], at: TimestampMs) -> ();
    get_artifact(hash: &ArtifactHash) -> Vec<u8>;
    artifact_progress(hash: &ArtifactHash) -> Option<ArtifactProgress>;
    renew_artifact(hash: &ArtifactHash, at: TimestampMs) -> Option<ArtifactProgress>;
    append_artifact(hash: &ArtifactHash, size_bytes: u64, offset: u64, bytes: &[u8], at: TimestampMs) -> ArtifactProgress;
    read_artifact(hash: &ArtifactHash, offset: u64, length: u64) -> Vec<u8>;
    find_model_call(run: &RunId, step_key: &str, turn: u32, request_hash: &str) -> Option<ModelCallRecord>;
    record_model_call(call: ModelCallRecord, artifacts: Vec<(ArtifactHash, Vec<u8>)>) -> ();
}
