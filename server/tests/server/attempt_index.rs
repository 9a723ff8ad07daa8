//! Tests of the index of attempts over runs of the real strategies: reading only what changed gives what reading everything
//! gives.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use nightshift_engine::clock::Clock as _;
use nightshift_engine::driver::Driver;
use nightshift_engine::event::{Event, EventRecord};
use nightshift_engine::store::{
    CampaignStore as _, ChangeStore as _, ClaimRequest, DeviceLane, NewCampaign, NewRun, PageRequest, Report, Reported,
    RunRecord, RunStore, StepRecord, Store, StoreError, TryEnd, WorkerRecord, WorkerStore as _,
};
use nightshift_engine::workflow::{StoredState, WorkflowError};
use nightshift_optimizer::strategy::{ChangedAttempts, StrategyWorkflow, changed_attempts, view};
use nightshift_protocol::api::{AttemptPage, AttemptQuery};
use nightshift_protocol::budget::BudgetCaps;
use nightshift_protocol::id::{CampaignId, RunId, WorkerId};
use nightshift_protocol::machine::DeviceUse;
use nightshift_protocol::run::RunStatus;
use nightshift_protocol::step::StepKind;
use nightshift_protocol::task::Target;
use nightshift_server::{ChangesFn, Indexer, OsRandom, SystemClock};
use nightshift_store::{AttemptIndex, SqlStore};
use nightshift_testbed::postgres::Cluster;
use reqwest::StatusCode;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::setup::{TestServer, Wish, open_postgres, open_store};

/// Number of times that only changes were read.
static READ_CHANGES: AtomicUsize = AtomicUsize::new(0);

fn counted(changed: StoredState, known: u32) -> Result<Option<ChangedAttempts>, WorkflowError> {
    let changed = changed_attempts(changed, known)?;
    READ_CHANGES.fetch_add(usize::from(changed.is_some()), Ordering::SeqCst);
    Ok(changed)
}

fn indexer(store: &Arc<SqlStore>, changes: ChangesFn) -> Indexer {
    Indexer::new(store.ports(), store.clone(), view, changes)
}

fn recorded(history: &str) -> Vec<Event> {
    let recorded: Value = serde_json::from_str(history).unwrap();
    serde_json::from_value(recorded["events"].clone()).unwrap()
}

/// A run that repeats a recorded one.
struct Replay {
    store: Arc<SqlStore>,
    driver: Driver,
    worker: WorkerId,
    run: RunId,
    open: HashMap<String, StepRecord>,
}

impl Replay {
    async fn begin(store: &Arc<SqlStore>, input: Value) -> Self {
        let (run, worker) = (RunId::from_uuid(Uuid::now_v7()), WorkerId::from_uuid(Uuid::now_v7()));
        let at = SystemClock.now();
        let campaign = NewCampaign {
            id: CampaignId::from_uuid(Uuid::now_v7()),
            name: "replay".to_owned(),
            spec: json!({}),
            at,
            idempotency: None,
            budget: BudgetCaps::default(),
            schedule: None,
            priority: 0,
            weight: 1,
            owner: None,
            runs: vec![NewRun { id: run.clone(), input, digest: json!({}) }],
        };
        store.create_campaign(campaign).await.unwrap();
        let record = WorkerRecord {
            id: worker.clone(),
            name: "replay".to_owned(),
            embedded: false,
            offers: json!({}),
            version: String::new(),
            last_seen_at: at,
            leases: 0,
            server: None,
            draining: false,
        };
        store.register_worker(record).await.unwrap();
        let driver = Driver::new(
            store.clone(),
            store.clone(),
            Arc::new(StrategyWorkflow),
            Arc::new(SystemClock),
            Arc::new(OsRandom),
        );
        Self { store: store.clone(), driver, worker, run, open: HashMap::new() }
    }

    /// Drives the run and takes its steps.
    async fn go_on(&mut self) {
        self.driver.drive(&self.run, None).await.unwrap();
        loop {
            let steps = self.store.claim(self.claim()).await.unwrap();
            if steps.is_empty() {
                return;
            }
            self.open.extend(steps.into_iter().map(|step| (step.key.clone(), step)));
        }
    }

    async fn complete(&mut self, key: &str, output: Value) {
        let step = self.open.remove(key).unwrap();
        let end = TryEnd::Completed { output };
        let report = Report { step: step.id, epoch: step.epoch, end, used: Vec::new(), at: SystemClock.now() };
        assert_eq!(self.store.report(report).await.unwrap(), Reported::Committed);
    }

    fn claim(&self) -> ClaimRequest {
        let at = SystemClock.now();
        let targets = [Target::Cpu, Target::Cuda];
        let needs =
            targets.into_iter().flat_map(|target| StepKind::ALL.into_iter().map(move |kind| kind.needs(target)));
        let (without, with): (Vec<_>, Vec<_>) = needs.partition(|needs| needs.device == DeviceUse::None);
        let devices = (0..16).map(|device| DeviceLane {
            device,
            exclusive: with.iter().map(nightshift_protocol::machine::Needs::route).collect(),
            shared: Vec::new(),
            shared_slots: 0,
        });
        ClaimRequest {
            worker: self.worker.clone(),
            routes: without.iter().map(nightshift_protocol::machine::Needs::route).collect(),
            cpu_slots: 16,
            devices: devices.collect(),
            at,
            expires_at: at.plus_ms(600_000),
        }
    }

    /// What the index contains of this run: the rows, and the keys of its texts.
    async fn indexed(&self) -> (AttemptPage, Vec<String>) {
        let run = self.run.to_string();
        let query = AttemptQuery::from_pairs([("run", run.as_str()), ("order", "asc"), ("limit", "500")]).unwrap();
        let documents = self.store.documents_of(&self.run, None).await.unwrap();
        let mut documents: Vec<String> = documents.iter().map(|key| format!("{key:?}")).collect();
        documents.sort();
        (self.store.list_attempts(&query).await.unwrap(), documents)
    }
}

async fn changes_give_what_the_whole_gives(store: Arc<SqlStore>) {
    let histories = [
        include_str!("../../../optimizer/tests/corpus/history/fixed_within_an_attempt.json"),
        include_str!("../../../optimizer/tests/corpus/history/group_of_three.json"),
        include_str!("../../../optimizer/tests/corpus/history/stagnated_after_a_replan.json"),
        include_str!("../../../optimizer/tests/corpus/history/agent_session.json"),
    ];
    for history in histories {
        let before = READ_CHANGES.load(Ordering::SeqCst);
        let incremental = indexer(&store, counted);
        let mut events = recorded(history).into_iter();
        let Some(Event::RunCreated { input }) = events.next() else { panic!("a log begins with its run") };
        let mut replay = Replay::begin(&store, input).await;
        let mut steps = 0;
        for event in events {
            let Event::StepCompleted { key, output } = event else { continue };
            replay.go_on().await;
            incremental.update(std::slice::from_ref(&replay.run)).await.unwrap();
            let (rows, documents) = replay.indexed().await;
            // An indexer that remembers nothing writes every row.
            indexer(&store, changed_attempts).update(std::slice::from_ref(&replay.run)).await.unwrap();
            let whole = replay.indexed().await;
            assert_eq!(rows.items, whole.0.items, "before {key}");
            assert_eq!(documents, whole.1, "before {key}");
            replay.complete(&key, output).await;
            steps += 1;
        }
        replay.go_on().await;
        incremental.update(std::slice::from_ref(&replay.run)).await.unwrap();
        let (rows, _) = replay.indexed().await;
        assert!(!rows.items.is_empty() && rows.items.iter().all(|row| row.finished_at.is_some()));
        assert!(store.runs_behind(nightshift_server::ATTEMPT_INDEX_FORM, 0, 10).await.unwrap().is_empty());
        let read = READ_CHANGES.load(Ordering::SeqCst) - before;
        assert!(read * 2 > steps, "of {steps} steps only {read} were read as changes");
    }
}

#[tokio::test]
async fn reading_what_changed_gives_what_reading_everything_gives() {
    let folder = tempfile::tempdir().unwrap();
    changes_give_what_the_whole_gives(open_store(&folder).await).await;
    let database = tokio::task::spawn_blocking(|| Cluster::shared().create_database().unwrap()).await.unwrap();
    let store = open_postgres(&database.url).await;
    changes_give_what_the_whole_gives(store).await;
}

/// Runs of a store that cannot read one of them.
struct OneUnreadable {
    inner: Arc<SqlStore>,
    run: RunId,
}

#[async_trait]
impl RunStore for OneUnreadable {
    async fn list_runs(
        &self,
        campaign: Option<&CampaignId>,
        status: Option<RunStatus>,
        page: PageRequest,
    ) -> Result<Vec<RunRecord>, StoreError> {
        self.inner.list_runs(campaign, status, page).await
    }

    async fn load_run(&self, id: &RunId) -> Result<RunRecord, StoreError> {
        if *id == self.run {
            return Err(StoreError::Other("this run cannot be read, on purpose".to_owned()));
        }
        self.inner.load_run(id).await
    }

    async fn run_status(&self, id: &RunId) -> Result<RunStatus, StoreError> {
        self.inner.run_status(id).await
    }

    async fn events_after(&self, run: &RunId, after: u64, limit: u32) -> Result<Vec<EventRecord>, StoreError> {
        self.inner.events_after(run, after, limit).await
    }

    async fn list_step_heads(&self, run: &RunId) -> Result<Vec<StepRecord>, StoreError> {
        self.inner.list_step_heads(run).await
    }
}

#[tokio::test]
async fn a_run_that_cannot_be_read_does_not_hold_up_later_ones() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_store(&folder).await;
    let history = include_str!("../../../optimizer/tests/corpus/history/repaired_to_the_target.json");
    let Some(Event::RunCreated { input }) = recorded(history).into_iter().next() else { panic!("no run") };
    let mut runs = Vec::new();
    for _ in 0..45 {
        let mut replay = Replay::begin(&store, input.clone()).await;
        replay.go_on().await;
        runs.push(replay.run);
    }
    let unreadable = runs.remove(0);
    let failing = Arc::new(OneUnreadable { inner: store.clone(), run: unreadable.clone() });
    let ports = Store { runs: failing, ..store.ports() };
    let indexer = Indexer::new(ports.clone(), store.clone(), view, changed_attempts);
    let failed = indexer.update_all(None).await.unwrap().unwrap();
    assert!(failed.to_string().contains("on purpose"), "{failed}");
    assert_eq!(store.runs_behind(nightshift_server::ATTEMPT_INDEX_FORM, 0, 100).await.unwrap(), [unreadable]);
    // A server without loops lists the other runs.
    let wish = Wish { drives: false, attempts: Some(store.clone()), ..Wish::default() };
    let server = TestServer::on(ports, wish).await;
    let answer = server.get("/attempts").send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    server.stop().await;
}

#[tokio::test]
async fn a_run_that_does_not_exist_does_not_hold_up_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_store(&folder).await;
    let history = include_str!("../../../optimizer/tests/corpus/history/repaired_to_the_target.json");
    let Some(Event::RunCreated { input }) = recorded(history).into_iter().next() else { panic!("no run") };
    let mut runs = vec![RunId::from_uuid(Uuid::now_v7())];
    for _ in 0..3 {
        let mut replay = Replay::begin(&store, input.clone()).await;
        replay.go_on().await;
        runs.push(replay.run);
    }
    assert_eq!(store.runs_behind(nightshift_server::ATTEMPT_INDEX_FORM, 0, 10).await.unwrap(), runs[1..]);
    indexer(&store, changed_attempts).update(&runs).await.unwrap();
    assert!(store.runs_behind(nightshift_server::ATTEMPT_INDEX_FORM, 0, 10).await.unwrap().is_empty());
}
