//! A store in a throw-away folder, a clock that is set by hand, and short words for what tests do.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use nightshift_engine::clock::{Clock, Random};
use nightshift_engine::event::Event;
use nightshift_engine::retry::RetryPolicy;
use nightshift_engine::store::{
    Advance, Advanced, ClaimRequest, NewCampaign, NewRun, Reported, StepRecord, Store, TryEnd, WorkerRecord,
};
use nightshift_engine::workflow::StepOrder;
use nightshift_protocol::id::{CampaignId, RunId, StepId, WorkerId};
use nightshift_protocol::machine::Needs;
use nightshift_protocol::run::RunTransition;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::time::TimestampMs;
use nightshift_store::{OpenOptions, SqliteStore};
use serde_json::{Value, json};
use tempfile::TempDir;
use uuid::Uuid;

/// How long a lease lasts in these tests.
pub(crate) const LEASE_MS: u64 = 15_000;
/// Events are never more than this in a test.
pub(crate) const ALL: u32 = 10_000;

/// Set by hand.
pub(crate) struct HandClock(AtomicI64);

impl HandClock {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(1_000_000)))
    }

    pub(crate) fn forward(&self, duration_ms: i64) {
        self.0.fetch_add(duration_ms, Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn now(&self) -> TimestampMs {
        TimestampMs(self.0.load(Ordering::SeqCst))
    }
}

/// Counts instead.
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn starting_at(first: u64) -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(first)))
    }
}

impl Random for Counter {
    fn uuid(&self) -> u128 {
        u128::from(self.0.fetch_add(1, Ordering::SeqCst))
    }

    fn unit(&self) -> f64 {
        0.5
    }
}

pub(crate) struct Bench {
    pub(crate) folder: TempDir,
    pub(crate) store: Arc<SqliteStore>,
    pub(crate) clock: Arc<HandClock>,
    ids: Arc<Counter>,
}

pub(crate) async fn open(folder: &Path) -> Arc<SqliteStore> {
    Arc::new(SqliteStore::open(folder, OpenOptions::default()).await.unwrap())
}

pub(crate) fn route() -> String {
    Needs::agent().route()
}

pub(crate) fn order(key: &str) -> StepOrder {
    StepOrder {
        key: key.to_owned(),
        kind: "plan".to_owned(),
        needs: Needs::agent(),
        input: json!({ "of": key }),
        timeout_ms: 60_000,
        retry: RetryPolicy::default(),
    }
}

pub(crate) fn done(output: Value) -> TryEnd {
    TryEnd::Completed { output }
}

pub(crate) fn lost() -> StepFailure {
    StepFailure::retriable("worker.lost", "not heard of")
}

impl Bench {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path()).await;
        Self { folder, store, clock: HandClock::new(), ids: Counter::starting_at(1) }
    }

    /// Closes the store and opens the same folder again.
    pub(crate) async fn reopen(&mut self) {
        self.store.close().await.unwrap();
        self.store = open(self.folder.path()).await;
    }

    pub(crate) fn now(&self) -> TimestampMs {
        self.clock.now()
    }

    pub(crate) fn uuid(&self) -> Uuid {
        Uuid::from_u128(self.ids.uuid())
    }

    pub(crate) fn new_campaign(&self, runs: usize) -> NewCampaign {
        NewCampaign {
            id: CampaignId::from_uuid(self.uuid()),
            name: "night".to_owned(),
            spec: json!({ "schema": 1 }),
            at: self.now(),
            idempotency: None,
            runs: (0..runs)
                .map(|n| NewRun { id: RunId::from_uuid(self.uuid()), input: json!({ "n": n }), digest: json!({}) })
                .collect(),
        }
    }

    pub(crate) async fn run(&self) -> RunId {
        self.store.create_campaign(self.new_campaign(1)).await.unwrap().runs.remove(0)
    }

    /// A decision from what is stored now, over the whole log.
    pub(crate) async fn decision(&self, run: &RunId) -> Advance {
        let record = self.store.load_run(run).await.unwrap();
        Advance {
            run: run.clone(),
            revision: record.revision,
            folded_seq: record.last_seq,
            state: json!({ "folded": record.last_seq }),
            digest: json!({}),
            schedule: Vec::new(),
            end: None,
            at: self.now(),
        }
    }

    pub(crate) async fn schedule(&self, run: &RunId, keys: &[&str]) {
        let mut decision = self.decision(run).await;
        decision.schedule = keys.iter().map(|key| (StepId::from_uuid(self.uuid()), order(key))).collect();
        assert_eq!(self.store.advance(decision).await.unwrap(), Advanced::Committed);
    }

    pub(crate) async fn complete_run(&self, run: &RunId) {
        let mut decision = self.decision(run).await;
        decision.end = Some((RunTransition::Complete, Event::RunCompleted { result: json!(1) }));
        assert_eq!(self.store.advance(decision).await.unwrap(), Advanced::Committed);
    }

    pub(crate) async fn fail_run(&self, run: &RunId, failure: StepFailure) {
        let mut decision = self.decision(run).await;
        decision.end = Some((RunTransition::Fail, Event::RunFailed { failure }));
        assert_eq!(self.store.advance(decision).await.unwrap(), Advanced::Committed);
    }

    pub(crate) async fn worker(&self) -> WorkerId {
        self.worker_like(false).await
    }

    pub(crate) async fn worker_like(&self, embedded: bool) -> WorkerId {
        let id = WorkerId::from_uuid(self.uuid());
        let worker = WorkerRecord {
            id: id.clone(),
            name: "bench".to_owned(),
            embedded,
            offers: json!({ "cpu_slots": 2 }),
            version: "0.1.0".to_owned(),
            last_seen_at: self.now(),
            leases: 0,
        };
        self.store.register_worker(worker).await.unwrap();
        id
    }

    pub(crate) async fn claim(&self, worker: &WorkerId, count: u32) -> Vec<StepRecord> {
        self.store.claim(self.claim_request(worker, count)).await.unwrap()
    }

    pub(crate) fn claim_request(&self, worker: &WorkerId, count: u32) -> ClaimRequest {
        ClaimRequest {
            worker: worker.clone(),
            free: vec![(route(), count)],
            at: self.now(),
            expires_at: self.now().plus_ms(LEASE_MS),
        }
    }

    pub(crate) async fn report(&self, step: &StepRecord, end: TryEnd) -> Reported {
        self.store.report(&step.id, step.epoch, end, self.now()).await.unwrap()
    }

    pub(crate) async fn step(&self, run: &RunId, key: &str) -> StepRecord {
        let steps = self.store.list_steps(run).await.unwrap();
        steps.into_iter().find(|step| step.key == key).unwrap()
    }

    pub(crate) async fn events(&self, run: &RunId) -> Vec<Event> {
        events(self.store.as_ref(), run).await
    }

    /// Names of events, with the step's key.
    pub(crate) async fn log(&self, run: &RunId) -> Vec<String> {
        let line = |event: Event| match event.step_key() {
            None => event.kind().to_owned(),
            Some(key) => format!("{} {key}", event.kind()),
        };
        self.events(run).await.into_iter().map(line).collect()
    }

    pub(crate) async fn to_drive(&self) -> Vec<RunId> {
        self.store.runs_to_drive(100).await.unwrap()
    }

    /// No rule of the store is broken.
    pub(crate) async fn assert_sound(&self) {
        assert_eq!(self.store.find_violations().await.unwrap(), Vec::<String>::new());
    }
}

pub(crate) async fn events(store: &dyn Store, run: &RunId) -> Vec<Event> {
    let records = store.events_after(run, 0, ALL).await.unwrap();
    for (index, record) in records.iter().enumerate() {
        assert_eq!(record.seq, u64::try_from(index).unwrap() + 1, "the log has no gaps");
    }
    records.into_iter().map(|record| record.event).collect()
}
