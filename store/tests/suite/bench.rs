//! Test environment: a store on either database, a manual clock, and helper functions.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use nightshift_engine::clock::{Clock, Random};
use nightshift_engine::event::Event;
use nightshift_engine::retry::RetryPolicy;
use nightshift_engine::store::{
    Advance, BudgetStore, CampaignStore, ChangeStore, ClaimRequest, CreatedCampaign, LeaseStore, NewCampaign, NewRun,
    OwnershipStore, Report, Reported, RunStore, ServerRecord, ServerStore, StepRecord, TryEnd, WorkerRecord,
    WorkerStore,
};
use nightshift_engine::workflow::{StatePart, StepOrder, StoredState};
use nightshift_protocol::budget::{Amount, BudgetCaps, BudgetLine, Resource};
use nightshift_protocol::id::{CampaignId, RunId, ServerId, StepId, WorkerId};
use nightshift_protocol::machine::Needs;
use nightshift_protocol::run::RunTransition;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::time::TimestampMs;
use nightshift_store::{ArtifactOptions, SqlStore};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::place::{Kind, Place};

/// Duration of a lease.
pub(crate) const LEASE_MS: u64 = 15_000;
/// Duration of a server lease without a heartbeat.
pub(crate) const LIFE_MS: u64 = 10_000;
/// More than the number of events in any test.
pub(crate) const ALL: u32 = 10_000;

/// Makes a test of each function, on SQLite and on Postgres. The compiler warns about a function that is not listed.
macro_rules! on_both {
    ($($test:ident),+ $(,)?) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $test() {
                super::$test($crate::bench::Bench::on($crate::place::Kind::Sqlite).await).await;
            })+
        }
        mod postgres {
            $(#[tokio::test]
            async fn $test() {
                super::$test($crate::bench::Bench::on($crate::place::Kind::Postgres).await).await;
            })+
        }
    };
}
pub(crate) use on_both;

/// A manual clock.
pub(crate) struct HandClock(AtomicI64);

impl HandClock {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(1_000_000)))
    }

    pub(crate) fn forward(&self, duration_ms: i64) {
        self.0.fetch_add(duration_ms, Ordering::SeqCst);
    }

    pub(crate) fn set(&self, moment: TimestampMs) {
        self.0.store(moment.0, Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn now(&self) -> TimestampMs {
        TimestampMs(self.0.load(Ordering::SeqCst))
    }
}

/// Sequential numbers instead of random ones.
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
    pub(crate) place: Place,
    pub(crate) store: Arc<SqlStore>,
    pub(crate) clock: Arc<HandClock>,
    ids: Arc<Counter>,
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
        cost_ms: 1_000,
        reserve: Vec::new(),
    }
}

pub(crate) fn done(output: Value) -> TryEnd {
    TryEnd::Completed { output }
}

pub(crate) fn lost() -> StepFailure {
    StepFailure::retriable("worker.lost", "not heard of")
}

pub(crate) fn amount(resource: Resource, amount: u64) -> Amount {
    Amount { resource, amount }
}

impl Bench {
    pub(crate) async fn on(kind: Kind) -> Self {
        Self::at(Place::new(kind)).await
    }

    pub(crate) async fn at(place: Place) -> Self {
        let store = place.open().await;
        Self { place, store, clock: HandClock::new(), ids: Counter::starting_at(1) }
    }

    /// Closes the store and opens the same database again, with other settings for artifacts.
    pub(crate) async fn reopen_with(&mut self, artifacts: ArtifactOptions) {
        self.store.close().await.unwrap();
        self.store = Arc::new(self.place.try_open_with(artifacts).await.unwrap());
    }

    pub(crate) fn kind(&self) -> Kind {
        self.place.kind()
    }

    /// Creates another one on the same kind of database.
    pub(crate) async fn another(&self) -> Self {
        Self::on(self.kind()).await
    }

    /// Closes the store and opens the same database again.
    pub(crate) async fn reopen(&mut self) {
        self.store.close().await.unwrap();
        self.store = self.place.open().await;
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
            budget: BudgetCaps::default(),
            schedule: None,
            priority: 0,
            weight: 1,
            owner: None,
            runs: (0..runs)
                .map(|n| NewRun { id: RunId::from_uuid(self.uuid()), input: json!({ "n": n }), digest: json!({}) })
                .collect(),
        }
    }

    pub(crate) async fn create(&self, new: NewCampaign) -> CreatedCampaign {
        self.store.create_campaign(new).await.unwrap()
    }

    pub(crate) async fn run(&self) -> RunId {
        self.create(self.new_campaign(1)).await.runs.remove(0)
    }

    /// Creates a campaign of one run with these caps.
    pub(crate) async fn run_with_budget(&self, budget: BudgetCaps) -> (CampaignId, RunId) {
        let mut created = self.create(NewCampaign { budget, ..self.new_campaign(1) }).await;
        (created.id, created.runs.remove(0))
    }

    pub(crate) async fn line(&self, campaign: &CampaignId, resource: Resource) -> BudgetLine {
        let lines = self.store.load_budget(campaign).await.unwrap();
        lines.into_iter().find(|line| line.resource == resource).unwrap()
    }

    /// Returns the used and reserved amounts.
    pub(crate) async fn spent(&self, campaign: &CampaignId, resource: Resource) -> (u64, u64) {
        let line = self.line(campaign, resource).await;
        (line.used, line.reserved)
    }

    /// Returns a decision from the stored state, over the whole log.
    pub(crate) async fn decision(&self, run: &RunId) -> Advance {
        let record = self.store.load_run(run).await.unwrap();
        Advance {
            run: run.clone(),
            revision: record.revision,
            folded_seq: record.last_seq,
            expects_last_seq: None,
            state: Some(state(record.last_seq)),
            digest: json!({}),
            schedule: Vec::new(),
            end: None,
            awaits: Vec::new(),
            fence: None,
            at: self.now(),
        }
    }

    pub(crate) async fn schedule(&self, run: &RunId, keys: &[&str]) {
        self.schedule_orders(run, keys.iter().map(|key| order(key)).collect()).await;
    }

    pub(crate) async fn schedule_orders(&self, run: &RunId, orders: Vec<StepOrder>) {
        let mut decision = self.decision(run).await;
        decision.schedule = orders.into_iter().map(|order| (StepId::from_uuid(self.uuid()), order)).collect();
        assert!(self.store.advance(decision).await.unwrap().is_committed());
    }

    pub(crate) async fn complete_run(&self, run: &RunId) {
        let mut decision = self.decision(run).await;
        decision.end = Some((RunTransition::Complete, Event::RunCompleted { result: json!(1) }));
        assert!(self.store.advance(decision).await.unwrap().is_committed());
    }

    pub(crate) async fn fail_run(&self, run: &RunId, failure: StepFailure) {
        let mut decision = self.decision(run).await;
        decision.end = Some((RunTransition::Fail, Event::RunFailed { failure }));
        assert!(self.store.advance(decision).await.unwrap().is_committed());
    }

    pub(crate) async fn worker(&self) -> WorkerId {
        self.register_worker(None).await
    }

    /// Registers a worker of a server's process.
    pub(crate) async fn embedded_worker(&self, server: &ServerId) -> WorkerId {
        self.register_worker(Some(server.clone())).await
    }

    async fn register_worker(&self, server: Option<ServerId>) -> WorkerId {
        let id = WorkerId::from_uuid(self.uuid());
        self.store
            .register_worker(WorkerRecord { embedded: server.is_some(), server, ..worker_record(&id, self.now()) })
            .await
            .unwrap();
        id
    }

    /// Registers a server lease that lasts for [`LIFE_MS`].
    pub(crate) async fn server(&self) -> ServerId {
        self.register_server(false).await
    }

    /// Registers a server lease that ends all earlier ones.
    pub(crate) async fn sole_server(&self) -> ServerId {
        self.register_server(true).await
    }

    async fn register_server(&self, sole: bool) -> ServerId {
        let server = server_record(ServerId::from_uuid(self.uuid()), self.now());
        let id = server.id.clone();
        self.store.register_server(server, sole).await.unwrap();
        id
    }

    pub(crate) async fn claim(&self, worker: &WorkerId, count: u32) -> Vec<StepRecord> {
        self.store.claim(self.claim_request(worker, count)).await.unwrap()
    }

    pub(crate) fn claim_request(&self, worker: &WorkerId, count: u32) -> ClaimRequest {
        claim_request(worker, count, self.now())
    }

    pub(crate) async fn report(&self, step: &StepRecord, end: TryEnd) -> Reported {
        self.report_used(step, end, Vec::new()).await
    }

    pub(crate) async fn report_used(&self, step: &StepRecord, end: TryEnd, used: Vec<Amount>) -> Reported {
        self.store.report(Report { used, ..report(step, end, self.now()) }).await.unwrap()
    }

    pub(crate) async fn step(&self, run: &RunId, key: &str) -> StepRecord {
        let steps = steps(&self.store, run).await;
        steps.into_iter().find(|step| step.key == key).unwrap()
    }

    pub(crate) async fn events(&self, run: &RunId) -> Vec<Event> {
        events(self.store.as_ref(), run).await
    }

    /// Returns the names of events, with the step's key.
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

    /// Checks the invariants of the store.
    pub(crate) async fn assert_sound(&self) {
        assert_eq!(self.store.find_violations().await.unwrap(), Vec::<String>::new());
    }
}

pub(crate) fn worker_record(id: &WorkerId, at: TimestampMs) -> WorkerRecord {
    WorkerRecord {
        id: id.clone(),
        name: "bench".to_owned(),
        embedded: false,
        offers: json!({ "cpu_slots": 2 }),
        version: "0.1.0".to_owned(),
        last_seen_at: at,
        leases: 0,
        server: None,
        draining: false,
    }
}

pub(crate) fn server_record(id: ServerId, at: TimestampMs) -> ServerRecord {
    ServerRecord {
        id,
        name: "bench".to_owned(),
        version: "0.1.0".to_owned(),
        state_format: 1,
        address: "127.0.0.1:7878".to_owned(),
        started_at: at,
        expires_at: at.plus_ms(LIFE_MS),
    }
}

pub(crate) fn claim_request(worker: &WorkerId, count: u32, at: TimestampMs) -> ClaimRequest {
    ClaimRequest {
        worker: worker.clone(),
        routes: vec![route()],
        cpu_slots: count,
        devices: Vec::new(),
        at,
        expires_at: at.plus_ms(LEASE_MS),
    }
}

pub(crate) fn report(step: &StepRecord, end: TryEnd, at: TimestampMs) -> Report {
    Report { step: step.id.clone(), epoch: step.epoch, end, used: Vec::new(), at }
}

/// Returns the steps of a run with input and output.
pub(crate) async fn steps(store: &SqlStore, run: &RunId) -> Vec<StepRecord> {
    let mut steps = Vec::new();
    for head in store.list_step_heads(run).await.unwrap() {
        steps.push(store.load_step(&head.id).await.unwrap());
    }
    steps
}

pub(crate) async fn events(store: &SqlStore, run: &RunId) -> Vec<Event> {
    let records = store.events_after(run, 0, ALL).await.unwrap();
    for (index, record) in records.iter().enumerate() {
        assert_eq!(record.seq, u64::try_from(index).unwrap() + 1, "the log has no gaps");
    }
    records.into_iter().map(|record| record.event).collect()
}

/// Returns a state after this many events: a field in its head, one in a part, and a list of parts of which the first
/// one changes.
pub(crate) fn state(folded: u64) -> StoredState {
    let part = |field: &str, number, value| StatePart { field: field.to_owned(), number, value };
    let parts = vec![part("input", 0, json!("x")), part("seen", 1, json!(folded)), part("seen", 2, json!({}))];
    StoredState { head: json!({ "folded": folded }), parts }
}
