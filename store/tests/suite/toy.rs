//! Two small workflows, and a driver and worker that execute them.

use std::collections::BTreeMap;
use std::sync::Arc;

use nightshift_engine::driver::Driver;
use nightshift_engine::event::Event;
use nightshift_engine::store::{StepRecord, Store, StoreError, TryEnd, WorkerRecord};
use nightshift_engine::sweeper::Sweeper;
use nightshift_engine::workflow::{AnyWorkflow, Command, Workflow, WorkflowError};
use nightshift_engine::{clock::Clock, driver::DriveError};
use nightshift_protocol::id::{RunId, ServerId, WorkerId};
use nightshift_protocol::time::TimestampMs;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::bench::{ALL, Counter, HandClock, LEASE_MS, claim_request, order, report, server_record, worker_record};

/// Duration of the server lease: longer than any test.
const LIFE_MS: u64 = 7 * 24 * 60 * 60 * 1_000;

/// The state of a step, as its workflow sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Seen {
    Scheduled,
    Completed(Value),
    Over,
}

/// The state of both workflows: the input, and the state of each step.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
struct State {
    input: Value,
    steps: BTreeMap<String, Seen>,
    events: u64,
}

impl State {
    fn output(&self, key: &str) -> Option<&Value> {
        match self.steps.get(key) {
            Some(Seen::Completed(output)) => Some(output),
            _ => None,
        }
    }
}

/// The decision function of a toy.
type Decide = fn(&State) -> Vec<Command>;

/// A workflow with a given decision function.
pub(crate) struct Toy(Decide);

impl Toy {
    /// Returns the workflow `first`, then `second`, then the end.
    pub(crate) fn sequence() -> Arc<dyn AnyWorkflow> {
        Arc::new(Self(|state| match (state.output("first"), state.output("second")) {
            (None, _) => vec![Command::Schedule(order("first"))],
            (Some(_), None) => vec![Command::Schedule(order("second"))],
            (Some(first), Some(second)) => vec![Command::Complete { result: json!([first, second]) }],
        }))
    }

    /// Returns the workflow `split`, then three parallel parts, then `join`, then the end.
    pub(crate) fn fan() -> Arc<dyn AnyWorkflow> {
        Arc::new(Self(|state| {
            if state.output("split").is_none() {
                return vec![Command::Schedule(order("split"))];
            }
            let parts = ["part1", "part2", "part3"];
            if parts.iter().any(|part| state.output(part).is_none()) {
                return parts.into_iter().map(|part| Command::Schedule(order(part))).collect();
            }
            match state.output("join") {
                None => vec![Command::Schedule(order("join"))],
                Some(result) => vec![Command::Complete { result: result.clone() }],
            }
        }))
    }
}

impl Workflow for Toy {
    type State = Value;

    fn apply(&self, state: Option<Value>, event: &Event) -> Result<Value, WorkflowError> {
        let unreadable =
            |error: serde_json::Error| WorkflowError::Unreadable { what: "state", message: error.to_string() };
        let mut state: State = match state {
            Some(state) => serde_json::from_value(state).map_err(unreadable)?,
            None => State::default(),
        };
        state.events += 1;
        match event {
            Event::RunCreated { input } => state.input = input.clone(),
            Event::StepScheduled { key } => {
                state.steps.entry(key.clone()).or_insert(Seen::Scheduled);
            }
            Event::StepCompleted { key, output } => {
                state.steps.insert(key.clone(), Seen::Completed(output.clone()));
            }
            Event::StepFailed { key, .. } | Event::StepCancelled { key } => {
                state.steps.insert(key.clone(), Seen::Over);
            }
            Event::RunRetried { keys, .. } => {
                state.steps.extend(keys.iter().map(|key| (key.clone(), Seen::Scheduled)));
            }
            _ => {}
        }
        serde_json::to_value(state).map_err(unreadable)
    }

    fn decide(&self, state: &Value) -> Result<Vec<Command>, WorkflowError> {
        let state: State = serde_json::from_value(state.clone())
            .map_err(|error| WorkflowError::Unreadable { what: "state", message: error.to_string() })?;
        Ok((self.0)(&state))
    }

    fn digest(&self, state: &Value) -> Result<Value, WorkflowError> {
        Ok(json!({ "events": state["events"] }))
    }
}

/// A workflow of a release that cannot read the data of this one.
pub(crate) struct Stranger;

impl Workflow for Stranger {
    type State = Value;

    fn apply(&self, _state: Option<Value>, _event: &Event) -> Result<Value, WorkflowError> {
        Err(WorkflowError::Unreadable { what: "state", message: "it is of another world".to_owned() })
    }

    fn decide(&self, _state: &Value) -> Result<Vec<Command>, WorkflowError> {
        Ok(Vec::new())
    }

    fn digest(&self, _state: &Value) -> Result<Value, WorkflowError> {
        Ok(json!({}))
    }
}

/// Driver, sweeper and worker over one store.
pub(crate) struct Party {
    pub(crate) store: Store,
    pub(crate) clock: Arc<HandClock>,
    pub(crate) workflow: Arc<dyn AnyWorkflow>,
    pub(crate) driver: Driver,
    pub(crate) sweeper: Sweeper,
    pub(crate) server: ServerId,
    pub(crate) worker: WorkerId,
}

/// Number of rounds after which a run counts as stuck.
const MAX_ROUNDS: u32 = 200;

impl Party {
    /// Creates a party with ids from `first_id` on, so that a second server lease gets new ones.
    pub(crate) fn new(store: Store, workflow: Arc<dyn AnyWorkflow>, clock: Arc<HandClock>, first_id: u64) -> Self {
        let ids = Counter::starting_at(first_id);
        let driver =
            Driver::new(store.runs.clone(), store.changes.clone(), workflow.clone(), clock.clone(), ids.clone());
        let (servers, leases, queue) = (store.servers.clone(), store.leases.clone(), store.queue.clone());
        let sweeper = Sweeper::new(servers, leases, queue, clock.clone(), ids);
        let own = uuid::Uuid::from_u128(u128::from(first_id));
        let (server, worker) = (ServerId::from_uuid(own), WorkerId::from_uuid(own));
        Self { store, clock, workflow, driver, sweeper, server, worker }
    }

    /// Registers a server lease that ends all earlier ones, and the worker; repeats failed calls.
    pub(crate) async fn register(&self) {
        // The tests are about step leases, so the server lease never expires.
        let mut server = server_record(self.server.clone(), self.clock.now());
        server.expires_at = self.clock.now().plus_ms(LIFE_MS);
        repeated(async || self.store.servers.register_server(server.clone(), true).await).await;
        repeated(async || self.store.servers.reap_servers(self.clock.now()).await).await;
        let worker = WorkerRecord {
            embedded: true,
            server: Some(self.server.clone()),
            ..worker_record(&self.worker, self.clock.now())
        };
        repeated(async || self.store.workers.register_worker(worker.clone()).await).await;
    }

    /// Runs one round of a server and a worker. The next round continues after a failure of the store.
    pub(crate) async fn round(&self) {
        for run in self.store.ownership.runs_to_drive(100).await.unwrap() {
            match self.driver.drive(&run, None).await {
                Ok(_) | Err(DriveError::Store(StoreError::Other(_))) => {}
                Err(error) => panic!("{error}"),
            }
        }
        survive(self.sweeper.sweep().await);
        let claim = claim_request(&self.worker, 2, self.clock.now());
        let steps = survive(self.store.changes.claim(claim).await).unwrap_or_default();
        let leases: Vec<_> = steps.iter().map(|step| (step.id.clone(), step.epoch)).collect();
        if !leases.is_empty() {
            let now = self.clock.now();
            survive(self.store.leases.heartbeat(&self.worker, &leases, now, now.plus_ms(LEASE_MS)).await);
        }
        for step in steps {
            self.carry_out(&step).await;
        }
        self.clock.forward(1_000);
    }

    /// Carries a step out, and reports until it gets an answer.
    async fn carry_out(&self, step: &StepRecord) {
        let end = TryEnd::Completed { output: json!({ "of": step.key, "input": step.input, "third": 1.0 / 3.0 }) };
        let report = report(step, end, self.clock.now());
        repeated(async || self.store.changes.report(report.clone()).await).await;
    }

    /// Runs rounds until the run has ended.
    pub(crate) async fn finish(&self, run: &RunId) {
        for _ in 0..MAX_ROUNDS {
            if self.store.runs.load_run(run).await.unwrap().status.is_final() {
                return;
            }
            self.round().await;
        }
        panic!("the run is not over after {MAX_ROUNDS} rounds");
    }

    /// Checks that the stored state is the fold of the log up to the stored position.
    pub(crate) async fn assert_folds(&self, run: &RunId) {
        let record = self.store.runs.load_run(run).await.unwrap();
        let events = self.store.runs.events_after(run, 0, ALL).await.unwrap();
        let mut state = None;
        for event in events.iter().filter(|event| event.seq <= record.folded_seq) {
            state = Some(self.workflow.apply(state, &event.event).unwrap());
        }
        let state = state.map(|state| self.workflow.write(&state, None).unwrap().document());
        assert_eq!(record.state, state);
    }

    pub(crate) fn now(&self) -> TimestampMs {
        self.clock.now()
    }
}

/// Returns the value, or none after an injected failure.
fn survive<T>(result: Result<T, StoreError>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(StoreError::Other(_)) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Returns the answer after at most three calls, because one write fails once.
async fn repeated<T>(call: impl AsyncFn() -> Result<T, StoreError>) -> T {
    for _ in 0..3 {
        if let Some(answer) = survive(call().await) {
            return answer;
        }
    }
    panic!("no call was answered");
}
