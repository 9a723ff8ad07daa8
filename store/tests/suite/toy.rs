//! Two small workflows, and a party that carries their steps out.

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

/// How long the server of a party lives: longer than any test.
const LIFE_MS: u64 = 7 * 24 * 60 * 60 * 1_000;

/// Where a step of a toy stands, as its workflow sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Seen {
    Scheduled,
    Completed(Value),
    Over,
}

/// The state of both workflows: the input, and what is known of each step.
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

/// What a toy decides in a state.
type Decide = fn(&State) -> Vec<Command>;

/// A workflow of which only the decisions differ.
pub(crate) struct Toy(Decide);

impl Toy {
    /// `first`, then `second`, then the end.
    pub(crate) fn sequence() -> Arc<dyn AnyWorkflow> {
        Arc::new(Self(|state| match (state.output("first"), state.output("second")) {
            (None, _) => vec![Command::Schedule(order("first"))],
            (Some(_), None) => vec![Command::Schedule(order("second"))],
            (Some(first), Some(second)) => vec![Command::Complete { result: json!([first, second]) }],
        }))
    }

    /// `split`, then three parts side by side, then `join`, then the end.
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

/// A workflow of a release that reads nothing of what this one wrote.
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
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<HandClock>,
    pub(crate) workflow: Arc<dyn AnyWorkflow>,
    pub(crate) driver: Driver,
    pub(crate) sweeper: Sweeper,
    pub(crate) server: ServerId,
    pub(crate) worker: WorkerId,
}

/// Rounds after which a run that is not over never will be.
const MAX_ROUNDS: u32 = 200;

impl Party {
    /// A party whose ids begin at `first_id`, so that a second life of the server makes new ones.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        workflow: Arc<dyn AnyWorkflow>,
        clock: Arc<HandClock>,
        first_id: u64,
    ) -> Self {
        let ids = Counter::starting_at(first_id);
        let driver = Driver::new(store.clone(), workflow.clone(), clock.clone(), ids.clone());
        let sweeper = Sweeper::new(store.clone(), clock.clone(), ids);
        let own = uuid::Uuid::from_u128(u128::from(first_id));
        let (server, worker) = (ServerId::from_uuid(own), WorkerId::from_uuid(own));
        Self { store, clock, workflow, driver, sweeper, server, worker }
    }

    /// Begins its life, after which every earlier one is dead, and makes its worker known; repeats what fails.
    pub(crate) async fn register(&self) {
        // What these parties are about is the leases: their server lives on, whatever the clock says.
        let mut server = server_record(self.server.clone(), self.clock.now());
        server.expires_at = self.clock.now().plus_ms(LIFE_MS);
        repeated(async || self.store.register_server(server.clone(), true).await).await;
        repeated(async || self.store.reap_servers(self.clock.now()).await).await;
        let worker = WorkerRecord {
            embedded: true,
            server: Some(self.server.clone()),
            ..worker_record(&self.worker, self.clock.now())
        };
        repeated(async || self.store.register_worker(worker.clone()).await).await;
    }

    /// One round of a server and a worker. Failures of the store are survived: the next round sees what became of them.
    pub(crate) async fn round(&self) {
        for run in self.store.runs_to_drive(100).await.unwrap() {
            match self.driver.drive(&run, None).await {
                Ok(_) | Err(DriveError::Store(StoreError::Other(_))) => {}
                Err(error) => panic!("{error}"),
            }
        }
        survive(self.sweeper.sweep().await);
        let claim = claim_request(&self.worker, 2, self.clock.now());
        let steps = survive(self.store.claim(claim).await).unwrap_or_default();
        let leases: Vec<_> = steps.iter().map(|step| (step.id.clone(), step.epoch)).collect();
        if !leases.is_empty() {
            let now = self.clock.now();
            survive(self.store.heartbeat(&self.worker, &leases, now, now.plus_ms(LEASE_MS)).await);
        }
        for step in steps {
            self.carry_out(&step).await;
        }
        self.clock.forward(1_000);
    }

    /// Carries a step out, and reports until somebody answers.
    async fn carry_out(&self, step: &StepRecord) {
        let end = TryEnd::Completed { output: json!({ "of": step.key, "input": step.input, "third": 1.0 / 3.0 }) };
        let report = report(step, end, self.clock.now());
        repeated(async || self.store.report(report.clone()).await).await;
    }

    /// Rounds until the run is over.
    pub(crate) async fn finish(&self, run: &RunId) {
        for _ in 0..MAX_ROUNDS {
            if self.store.load_run(run).await.unwrap().status.is_final() {
                return;
            }
            self.round().await;
        }
        panic!("the run is not over after {MAX_ROUNDS} rounds");
    }

    /// The stored state is the fold of the log up to where the run says.
    pub(crate) async fn assert_folds(&self, run: &RunId) {
        let record = self.store.load_run(run).await.unwrap();
        let events = self.store.events_after(run, 0, ALL).await.unwrap();
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

/// The value, or none after a failure of the kind that tests cause on purpose.
fn survive<T>(result: Result<T, StoreError>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(StoreError::Other(_)) => None,
        Err(error) => panic!("{error}"),
    }
}

/// The answer, at the latest to the third question: one write fails, once.
async fn repeated<T>(call: impl AsyncFn() -> Result<T, StoreError>) -> T {
    for _ in 0..3 {
        if let Some(answer) = survive(call().await) {
            return answer;
        }
    }
    panic!("nobody ever answered");
}
