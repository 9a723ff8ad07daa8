//! A store that fails on purpose, for tests. Each single write can fail once, before or after its commit.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures::stream::BoxStream;
use nightshift_engine::event::EventRecord;
use nightshift_engine::store::{
    ArtifactProgress, CampaignArchive, CampaignRecord, Change, Changed, CreatedCampaign, CreatedRun, Creation,
    ExpiredLease, HandoverStore, HeartbeatOutcome, KnowledgeStore, ModelCallRecord, MovedArtifacts, NewCampaign,
    Notice, Once, OwnerFence, Ownership, PageRequest, Pruned, Pulse, QuarantineRecord, Reported, RequestStore,
    Reservation, RowSink, RunRecord, ServerRecord, StepRecord, Store, StoreError, StoreGauges, TryEnd, WorkerRecord,
};
use nightshift_protocol::access::TokenView;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::budget::{Amount, BudgetCaps, BudgetLine};
use nightshift_protocol::id::{CampaignId, RunId, ServerId, StepId, TokenId, WorkerId};
use nightshift_protocol::run::{RunStatus, RunTransition};
use nightshift_protocol::schedule::Schedule;
use nightshift_protocol::signal::Signal;
use nightshift_protocol::time::TimestampMs;

/// The point at which a write fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultPoint {
    /// Before the write reaches the store: nothing is changed.
    Before,
    /// After the commit: the answer is lost.
    After,
}

/// The write that fails, and the point of failure.
///
/// It is identified by its method and not by its position among all writes. Heartbeats depend on time and shift that
/// position on a busy machine, but the first `create_campaign` stays the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// The method of the store.
    pub method: &'static str,
    /// Number of the call of this method, from 1.
    pub nth: u64,
    /// The point of failure.
    pub point: FaultPoint,
}

impl Fault {
    /// Returns one fault before and one after each of these writes, given the counts of
    /// [`FaultyStore::writes_by_method`].
    #[must_use]
    pub fn at_each(writes: &BTreeMap<&'static str, u64>) -> Vec<Self> {
        let calls = writes.iter().flat_map(|(&method, &calls)| (1..=calls).map(move |nth| (method, nth)));
        let points = [FaultPoint::Before, FaultPoint::After];
        calls.flat_map(|(method, nth)| points.map(|point| Self { method, nth, point })).collect()
    }
}

/// Wraps a store, counts the calls of methods that write, and fails one of them once with [`StoreError::Other`].
///
/// Read-only methods are forwarded without counting. Changes that are committed together are one write. A call is
/// counted when it is made.
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    fault: Option<Fault>,
    fired: AtomicBool,
    full: AtomicBool,
    writes: Mutex<BTreeMap<&'static str, u64>>,
}

impl FaultyStore {
    /// Creates a store that only counts.
    #[must_use]
    pub fn counting(inner: Arc<dyn Store>) -> Self {
        Self::with(inner, None)
    }

    /// Creates a store that fails one write once, or none.
    #[must_use]
    pub fn with(inner: Arc<dyn Store>, fault: Option<Fault>) -> Self {
        Self {
            inner,
            fault,
            fired: AtomicBool::new(false),
            full: AtomicBool::new(false),
            writes: Mutex::new(BTreeMap::new()),
        }
    }

    /// Sets whether every write fails with [`StoreError::Full`], as on a full disk.
    pub fn set_full(&self, full: bool) {
        self.full.store(full, Ordering::SeqCst);
    }

    /// Returns the number of write calls so far.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.writes_by_method().values().sum()
    }

    /// Returns the number of write calls per method so far.
    #[must_use]
    pub fn writes_by_method(&self) -> BTreeMap<&'static str, u64> {
        self.writes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns whether the selected write occurred and failed.
    #[must_use]
    pub fn fired(&self) -> bool {
        self.fired.load(Ordering::SeqCst)
    }

    /// Counts a call of this method. Returns its number.
    fn count(&self, method: &'static str) -> u64 {
        let mut writes = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
        let calls = writes.entry(method).or_default();
        *calls += 1;
        *calls
    }

    async fn write<T: Send>(
        &self,
        method: &'static str,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let nth = self.count(method);
        if self.full.load(Ordering::SeqCst) {
            return Err(StoreError::Full(format!("no space is left, on purpose (`{method}` {nth})")));
        }
        let Some(fault) = self.fault.filter(|fault| fault.method == method && fault.nth == nth) else {
            return call.await;
        };
        self.fired.store(true, Ordering::SeqCst);
        match fault.point {
            FaultPoint::Before => Err(StoreError::Other(format!("on purpose, before `{method}` {nth}"))),
            FaultPoint::After => {
                // An error of the store itself is more informative.
                call.await?;
                Err(StoreError::Other(format!("on purpose, after `{method}` {nth}")))
            }
        }
    }
}

/// Forwards the whole port to the inner store. Calls that write are counted, calls that read are not.
macro_rules! hand_through {
    ($($way:ident $method:ident($($name:ident: $type:ty),*) -> $answer:ty;)*) => {
        #[async_trait]
        impl Store for FaultyStore {
            $(async fn $method(&self, $($name: $type),*) -> Result<$answer, StoreError> {
                hand_through!(@ $way self.$method($($name),*))
            })*

            fn take_created(&self, run: &RunId) -> Option<CreatedRun> {
                self.inner.take_created(run)
            }

            fn notices(&self) -> BoxStream<'static, Notice> {
                self.inner.notices()
            }

            fn requests(&self) -> Option<&dyn RequestStore> {
                self.inner.requests()
            }

            fn handovers(&self) -> Option<&dyn HandoverStore> {
                self.inner.handovers()
            }

            fn knowledge(&self) -> Option<&dyn KnowledgeStore> {
                self.inner.knowledge()
            }

            fn kind(&self) -> &'static str {
                self.inner.kind()
            }
        }
    };
    (@ read $this:ident.$method:ident($($name:ident),*)) => {
        $this.inner.$method($($name),*).await
    };
    (@ write $this:ident.$method:ident($($name:ident),*)) => {
        $this.write(stringify!($method), $this.inner.$method($($name),*)).await
    };
}

hand_through! {
    write create_campaign(new: NewCampaign) -> CreatedCampaign;
    read list_campaigns(page: PageRequest) -> Vec<CampaignRecord>;
    read load_campaign(id: &CampaignId) -> CampaignRecord;
    read list_runs(campaign: Option<&CampaignId>, status: Option<RunStatus>, page: PageRequest) -> Vec<RunRecord>;
    read load_run(id: &RunId) -> RunRecord;
    read runs_to_drive(limit: u32) -> Vec<RunId>;
    read run_status(id: &RunId) -> RunStatus;
    read events_after(run: &RunId, after: u64, limit: u32) -> Vec<EventRecord>;
    write commit(changes: Vec<Change>) -> Vec<Changed>;
    write control_run(run: &RunId, transition: RunTransition, by: Option<&str>, at: TimestampMs) -> RunStatus;
    write signal_run(
        run: &RunId, signal: Signal, by: Option<&str>, idempotency: Option<(String, String)>, at: TimestampMs
    ) -> ();
    write set_priority(run: &RunId, priority: i32, at: TimestampMs) -> ();
    write retry_run(run: &RunId, key: Option<&str>, by: Option<&str>, at: TimestampMs) -> Vec<String>;
    read load_budget(campaign: &CampaignId) -> Vec<BudgetLine>;
    write set_budget(campaign: &CampaignId, caps: BudgetCaps, at: TimestampMs) -> ();
    write set_schedule(campaign: &CampaignId, schedule: Option<Schedule>, at: TimestampMs) -> ();
    write set_weight(campaign: &CampaignId, weight: u32, at: TimestampMs) -> ();
    write reserve(step: &StepId, epoch: u64, amounts: &[Amount], at: TimestampMs) -> Reservation;
    write settle(step: &StepId, epoch: u64, released: &[Amount], used: &[Amount], at: TimestampMs) -> ();
    read export_rows(id: &CampaignId, sink: Arc<dyn RowSink>) -> ();
    write import_campaign(archive: CampaignArchive, at: TimestampMs) -> CreatedCampaign;
    read campaigns_to_prune(before: TimestampMs, limit: u32) -> Vec<CampaignId>;
    write prune_campaign(id: &CampaignId, limit: u32) -> Pruned;
    write prune_artifacts(before: TimestampMs, limit: u32) -> Pruned;
    write collect_objects(before: TimestampMs, limit: u32) -> u64;
    write move_artifacts(after: Option<ArtifactHash>, at: TimestampMs) -> MovedArtifacts;
    write register_server(server: ServerRecord, sole: bool) -> ();
    write pulse(server: &ServerId, at: TimestampMs, expires_at: TimestampMs) -> Pulse;
    write retire_server(server: &ServerId, at: TimestampMs) -> ();
    write reap_servers(at: TimestampMs) -> u64;
    read list_servers() -> Vec<ServerRecord>;
    read count_newer_runs(state_format: u32) -> u64;
    read database_now() -> Option<TimestampMs>;
    write acquire_runs(server: &ServerId, limit: u32, at: TimestampMs) -> Vec<(RunId, OwnerFence)>;
    write acquire_run(server: &ServerId, run: &RunId, at: TimestampMs) -> Ownership;
    write create(creation: Creation, once: Option<Once>) -> Option<String>;
    read list_tokens() -> Vec<TokenView>;
    write revoke_token(id: &TokenId, at: TimestampMs) -> ();
    read find_token(secret_hash: &str) -> Option<TokenView>;
    write touch_token(id: &TokenId, at: TimestampMs) -> ();
    read gauges() -> StoreGauges;
    read find_ids(text: &str, limit: u32) -> (Vec<CampaignId>, Vec<RunId>);
    read list_steps(run: &RunId) -> Vec<StepRecord>;
    read list_step_heads(run: &RunId) -> Vec<StepRecord>;
    read load_step(id: &StepId) -> StepRecord;
    read ready_routes(limit: u32) -> Vec<String>;
    write heartbeat(
        worker: &WorkerId, leases: &[(StepId, u64)], at: TimestampMs, expires_at: TimestampMs
    ) -> HeartbeatOutcome;
    read expired_leases(at: TimestampMs, limit: u32) -> Vec<ExpiredLease>;
    write expire_lease(step: &StepId, epoch: u64, end: TryEnd, at: TimestampMs) -> Reported;
    write fire_timers(at: TimestampMs, limit: u32) -> (u64, Option<TimestampMs>);
    write register_worker(worker: WorkerRecord) -> ();
    read list_workers(limit: u32) -> Vec<WorkerRecord>;
    read load_worker(id: &WorkerId) -> WorkerRecord;
    write workers_seen(workers: &[WorkerId], at: TimestampMs) -> ();
    write drain_worker(id: &WorkerId, draining: bool) -> ();
    write set_quarantine(
        worker: &WorkerId, offers: serde_json::Value, quarantined: Vec<QuarantineRecord>, well: Vec<String>
    ) -> ();
    read list_quarantine() -> Vec<QuarantineRecord>;
    write release_device(device: &str, by: Option<&str>, at: TimestampMs) -> QuarantineRecord;
    write forget_workers(before: TimestampMs) -> u64;
    write put_artifact(hash: &ArtifactHash, bytes: &[u8], at: TimestampMs) -> ();
    read get_artifact(hash: &ArtifactHash) -> Vec<u8>;
    read artifact_progress(hash: &ArtifactHash) -> Option<ArtifactProgress>;
    write renew_artifact(hash: &ArtifactHash, at: TimestampMs) -> Option<ArtifactProgress>;
    write append_artifact(
        hash: &ArtifactHash, size_bytes: u64, offset: u64, bytes: &[u8], at: TimestampMs
    ) -> ArtifactProgress;
    read read_artifact(hash: &ArtifactHash, offset: u64, length: u64) -> Vec<u8>;
    read find_model_call(run: &RunId, step_key: &str, turn: u32, request_hash: &str) -> Option<ModelCallRecord>;
    write record_model_call(call: ModelCallRecord, artifacts: Vec<(ArtifactHash, Vec<u8>)>) -> ();
}
