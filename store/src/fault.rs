//! A store that fails on purpose, for tests. Each single write can fail once, before or after its commit.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures::stream::BoxStream;
use nightshift_engine::event::EventRecord;
use nightshift_engine::store::{
    ArchiveStore, ArtifactProgress, ArtifactStore, BudgetStore, CampaignArchive, CampaignRecord, CampaignStore, Change,
    ChangeStore, Changed, CreatedCampaign, CreatedRun, Creation, CreationStore, Database, DeviceStore, ExpiredLease,
    HeartbeatOutcome, LeaseStore, ModelCallRecord, ModelCallStore, MovedArtifacts, NewCampaign, Notice, Once,
    OwnerFence, Ownership, OwnershipStore, PageRequest, Pruned, Pulse, QuarantineRecord, QueueStore, Reported,
    Reservation, RetentionStore, RowSink, RunControlStore, RunRecord, RunStore, ServerRecord, ServerStore, StepRecord,
    Store, StoreError, StoreGauges, TokenStore, TryEnd, WorkerRecord, WorkerStore,
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

/// Wraps a store, counts its calls, and fails one call that writes once with [`StoreError::Other`].
///
/// Changes that are committed together are one write. A call is counted when it is made.
pub struct FaultyStore {
    inner: Store,
    fault: Option<Fault>,
    fired: AtomicBool,
    full: AtomicBool,
    writes: Mutex<BTreeMap<&'static str, u64>>,
    reads: AtomicU64,
}

impl FaultyStore {
    /// Creates a store that only counts.
    #[must_use]
    pub fn counting(inner: Store) -> Self {
        Self::with(inner, None)
    }

    /// Creates a store that fails one write once, or none.
    #[must_use]
    pub fn with(inner: Store, fault: Option<Fault>) -> Self {
        Self {
            inner,
            fault,
            fired: AtomicBool::new(false),
            full: AtomicBool::new(false),
            writes: Mutex::new(BTreeMap::new()),
            reads: AtomicU64::new(0),
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

    /// Returns the number of calls so far, of writes and reads.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.writes() + self.reads.load(Ordering::Relaxed)
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

/// Implements these ports. Every call is counted, except those in brackets; a call that writes may fail.
macro_rules! decorate {
    ($($field:ident: $port:ident {
        $($way:ident $method:ident($($name:ident: $type:ty),*) -> $answer:ty;)*
    } $([$($plain:ident($($plain_name:ident: $plain_type:ty),*) -> $plain_answer:ty;)*])?)*) => {
        impl FaultyStore {
            /// Returns the ports of this store. Those that it does not decorate are the inner store's.
            #[must_use]
            pub fn ports(self: &Arc<Self>) -> Store {
                Store { $($field: self.clone(),)* ..self.inner.clone() }
            }
        }

        $(#[async_trait]
        impl $port for FaultyStore {
            $(async fn $method(&self, $($name: $type),*) -> Result<$answer, StoreError> {
                let call = self.inner.$field.$method($($name),*);
                decorate!(@ $way self.$method(call))
            })*

            $($(fn $plain(&self, $($plain_name: $plain_type),*) -> $plain_answer {
                self.inner.$field.$plain($($plain_name),*)
            })*)?
        })*
    };
    (@ read $this:ident.$method:ident($call:ident)) => {{
        $this.reads.fetch_add(1, Ordering::Relaxed);
        $call.await
    }};
    (@ write $this:ident.$method:ident($call:ident)) => {
        $this.write(stringify!($method), $call).await
    };
}

decorate! {
    archives: ArchiveStore {
        read export_rows(id: &CampaignId, sink: Arc<dyn RowSink>) -> ();
        write import_campaign(archive: CampaignArchive, at: TimestampMs) -> CreatedCampaign;
    }
    artifacts: ArtifactStore {
        write put_artifact(hash: &ArtifactHash, bytes: &[u8], at: TimestampMs) -> ();
        read get_artifact(hash: &ArtifactHash) -> Vec<u8>;
        read artifact_progress(hash: &ArtifactHash) -> Option<ArtifactProgress>;
        write renew_artifact(hash: &ArtifactHash, at: TimestampMs) -> Option<ArtifactProgress>;
        write append_artifact(
            hash: &ArtifactHash, size_bytes: u64, offset: u64, bytes: &[u8], at: TimestampMs
        ) -> ArtifactProgress;
        read read_artifact(hash: &ArtifactHash, offset: u64, length: u64) -> Vec<u8>;
        write move_artifacts(after: Option<ArtifactHash>, at: TimestampMs) -> MovedArtifacts;
    }
    budgets: BudgetStore {
        read load_budget(campaign: &CampaignId) -> Vec<BudgetLine>;
        write set_budget(campaign: &CampaignId, caps: BudgetCaps, at: TimestampMs) -> ();
        write reserve(step: &StepId, epoch: u64, amounts: &[Amount], at: TimestampMs) -> Reservation;
        write settle(step: &StepId, epoch: u64, released: &[Amount], used: &[Amount], at: TimestampMs) -> ();
    }
    campaigns: CampaignStore {
        write create_campaign(new: NewCampaign) -> CreatedCampaign;
        read list_campaigns(page: PageRequest) -> Vec<CampaignRecord>;
        read load_campaign(id: &CampaignId) -> CampaignRecord;
        write set_schedule(campaign: &CampaignId, schedule: Option<Schedule>, at: TimestampMs) -> ();
        write set_weight(campaign: &CampaignId, weight: u32, at: TimestampMs) -> ();
        read find_ids(text: &str, limit: u32) -> (Vec<CampaignId>, Vec<RunId>);
    }
    changes: ChangeStore {
        write commit(changes: Vec<Change>) -> Vec<Changed>;
    }
    creations: CreationStore {
        write create(creation: Creation, once: Option<Once>) -> Option<String>;
    }
    database: Database {
        read gauges() -> StoreGauges;
        read database_now() -> Option<TimestampMs>;
    } [notices() -> BoxStream<'static, Notice>; kind() -> &'static str;]
    devices: DeviceStore {
        write set_quarantine(
            worker: &WorkerId, offers: serde_json::Value, quarantined: Vec<QuarantineRecord>, well: Vec<String>
        ) -> ();
        read list_quarantine() -> Vec<QuarantineRecord>;
        write release_device(device: &str, by: Option<&str>, at: TimestampMs) -> QuarantineRecord;
    }
    leases: LeaseStore {
        read load_step(id: &StepId) -> StepRecord;
        write heartbeat(
            worker: &WorkerId, leases: &[(StepId, u64)], at: TimestampMs, expires_at: TimestampMs
        ) -> HeartbeatOutcome;
        read expired_leases(at: TimestampMs, limit: u32) -> Vec<ExpiredLease>;
        write expire_lease(step: &StepId, epoch: u64, end: TryEnd, at: TimestampMs) -> Reported;
    }
    model_calls: ModelCallStore {
        read find_model_call(run: &RunId, step_key: &str, turn: u32, request_hash: &str) -> Option<ModelCallRecord>;
        write record_model_call(call: ModelCallRecord, artifacts: Vec<(ArtifactHash, Vec<u8>)>) -> ();
    }
    ownership: OwnershipStore {
        read runs_to_drive(limit: u32) -> Vec<RunId>;
        write acquire_runs(server: &ServerId, limit: u32, at: TimestampMs) -> Vec<(RunId, OwnerFence)>;
        write acquire_run(server: &ServerId, run: &RunId, at: TimestampMs) -> Ownership;
        read count_newer_runs(state_format: u32) -> u64;
    } [take_created(run: &RunId) -> Option<CreatedRun>;]
    queue: QueueStore {
        read ready_routes(limit: u32) -> Vec<String>;
        write fire_timers(at: TimestampMs, limit: u32) -> (u64, Option<TimestampMs>);
    }
    retention: RetentionStore {
        read campaigns_to_prune(before: TimestampMs, limit: u32) -> Vec<CampaignId>;
        write prune_campaign(id: &CampaignId, limit: u32) -> Pruned;
        write prune_artifacts(before: TimestampMs, limit: u32) -> Pruned;
        write collect_objects(before: TimestampMs, limit: u32) -> u64;
    }
    run_control: RunControlStore {
        write control_run(run: &RunId, transition: RunTransition, by: Option<&str>, at: TimestampMs) -> RunStatus;
        write signal_run(
            run: &RunId, signal: Signal, by: Option<&str>, idempotency: Option<(String, String)>, at: TimestampMs
        ) -> ();
        write set_priority(run: &RunId, priority: i32, at: TimestampMs) -> ();
        write retry_run(run: &RunId, key: Option<&str>, by: Option<&str>, at: TimestampMs) -> Vec<String>;
    }
    runs: RunStore {
        read list_runs(campaign: Option<&CampaignId>, status: Option<RunStatus>, page: PageRequest) -> Vec<RunRecord>;
        read load_run(id: &RunId) -> RunRecord;
        read run_status(id: &RunId) -> RunStatus;
        read events_after(run: &RunId, after: u64, limit: u32) -> Vec<EventRecord>;
        read list_step_heads(run: &RunId) -> Vec<StepRecord>;
    }
    servers: ServerStore {
        write register_server(server: ServerRecord, sole: bool) -> ();
        write pulse(server: &ServerId, at: TimestampMs, expires_at: TimestampMs) -> Pulse;
        write retire_server(server: &ServerId, at: TimestampMs) -> ();
        write reap_servers(at: TimestampMs) -> u64;
        read list_servers() -> Vec<ServerRecord>;
    }
    tokens: TokenStore {
        read list_tokens() -> Vec<TokenView>;
        write revoke_token(id: &TokenId, at: TimestampMs) -> ();
        read find_token(secret_hash: &str) -> Option<TokenView>;
        write touch_token(id: &TokenId, at: TimestampMs) -> ();
    }
    workers: WorkerStore {
        write register_worker(worker: WorkerRecord) -> ();
        read list_workers(limit: u32) -> Vec<WorkerRecord>;
        read load_worker(id: &WorkerId) -> WorkerRecord;
        write workers_seen(workers: &[WorkerId], at: TimestampMs) -> ();
        write drain_worker(id: &WorkerId, draining: bool) -> ();
        write forget_workers(before: TimestampMs) -> u64;
    }
}
