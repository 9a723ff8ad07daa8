//! Tests of several servers on one database: a run has one owner at a time, and continues after the death of any
//! server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nightshift_engine::clock::Clock;
use nightshift_engine::store::Store;
use nightshift_protocol::api::{Page, ReportResult, ServerView, TryOutcome};
use nightshift_protocol::id::RunId;
use nightshift_protocol::run::RunStatus;
use nightshift_protocol::time::TimestampMs;
use nightshift_server::SystemClock;
use nightshift_store::SqlStore;
use nightshift_testbed::postgres::{Cluster, Database};
use reqwest::StatusCode;
use tempfile::TempDir;

use crate::doomed::Doomed;
use crate::setup::{TestServer, Wish, open_postgres, open_store, until};
use crate::toy::{Behaviour, FakeAgents, PLAN, PREPARE, Stall, prepared_output};

/// Heartbeat interval of the tests.
const PULSE_MS: u64 = 300;

/// A database that several servers share.
pub(crate) enum Shared {
    /// Only one process may open it, so all servers share one store.
    Sqlite { store: Arc<SqlStore>, _folder: TempDir },
    /// Each server has a store of its own.
    Postgres(Box<Database>),
}

impl Shared {
    pub(crate) async fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self::Sqlite { store: open_store(&folder).await, _folder: folder }
    }

    pub(crate) async fn postgres() -> Self {
        let database = tokio::task::spawn_blocking(|| Cluster::shared().create_database().unwrap()).await.unwrap();
        Self::Postgres(Box::new(database))
    }

    async fn store(&self) -> Store {
        match self {
            Self::Sqlite { store, .. } => store.ports(),
            Self::Postgres(database) => open_postgres(&database.url).await.ports(),
        }
    }

    pub(crate) async fn server(&self, wish: Wish) -> TestServer {
        TestServer::on(self.store().await, wish).await
    }

    /// Starts a server that can be killed.
    fn doomed(&self, wish: Wish) -> Doomed {
        match self {
            Self::Sqlite { store, .. } => {
                let store = store.ports();
                Doomed::start(async move || TestServer::on(store, wish).await)
            }
            Self::Postgres(database) => {
                let url = database.url.clone();
                Doomed::start(async move || TestServer::on(open_postgres(&url).await.ports(), wish).await)
            }
        }
    }
}

pub(crate) fn replica() -> Wish {
    Wish { sole: false, pulse_ms: PULSE_MS, ..Wish::default() }
}

pub(crate) async fn on_both(test: impl AsyncFn(Shared)) {
    test(Shared::sqlite().await).await;
    test(Shared::postgres().await).await;
}

/// Claims the worker's step and reports it.
async fn do_the_work(server: &TestServer) {
    let worker = server.register().await;
    let step = server.claim_one(&worker).await;
    server.report(&worker, &step, TryOutcome::Completed { output: Box::new(prepared_output()) }).await;
}

async fn owner(server: &TestServer, run: &RunId) -> Option<String> {
    server.run(run).await.summary.owner.map(|owner| owner.to_string())
}

async fn kinds_of(server: &TestServer, run: &RunId) -> Vec<String> {
    server.until_event(run, "run_completed").await
}

/// A clock that is wrong by an hour.
struct Wrong(i64);

impl Clock for Wrong {
    fn now(&self) -> TimestampMs {
        TimestampMs(SystemClock.now().0 + self.0 * 3_600_000)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_whose_clock_is_wrong_neither_ends_others_nor_is_ended_by_them() {
    // On a busy machine, no server loses its lease of six seconds, and the lease of the step lasts until the end.
    let pulse = Duration::from_secs(2);
    let replica = || Wish { pulse_ms: 2_000, lease_ms: 120_000, ..replica() };
    let shared = Shared::postgres().await;
    let right = shared.server(replica()).await;
    let worker = right.register().await;
    let (_, run) = right.campaign().await;
    let held = right.claim_one(&worker).await;
    let mut servers = vec![right];
    for hours in [1, -1] {
        servers.push(shared.server(Wish { clock: Arc::new(Wrong(hours)), ..replica() }).await);
    }
    let ids = async |server: &TestServer| {
        let listed: Page<ServerView> = server.read("/servers").await;
        listed.items.into_iter().map(|server| server.id).collect::<Vec<_>>()
    };
    let at_first = ids(&servers[0]).await;
    assert_eq!(at_first.len(), 3);
    // Each of them does some work, and all send some heartbeats meanwhile.
    let began = Instant::now();
    for server in &servers {
        let (_, other) = server.campaign().await;
        do_the_work(server).await;
        server.until_status(&other, RunStatus::Completed).await;
    }
    until("three heartbeats", || async { (began.elapsed() > pulse * 3).then_some(()) }).await;
    assert_eq!(ids(&servers[0]).await, at_first, "no server had to begin anew");
    // The lease of the first clock is valid by all of them.
    let done = TryOutcome::Completed { output: Box::new(prepared_output()) };
    assert_eq!(servers[1].report(&worker, &held, done).await, ReportResult::Committed);
    servers[2].until_status(&run, RunStatus::Completed).await;
    for server in servers {
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_server_dies_the_other_one_continues_within_a_few_heartbeats() {
    on_both(async |shared| {
        // Its agents hang: the worker of the dead server holds the step. Its lease is long enough for a busy machine.
        let agents = FakeAgents::new(Behaviour::Hangs);
        let doomed = shared.doomed(Wish { agents, pulse_ms: 2_000, ..replica() });
        let (_, run) = doomed.campaign();
        doomed.with(async |server: &TestServer| do_the_work(server).await);
        doomed.with(async |server: &TestServer| {
            until("the agent's step", || async {
                let steps = server.run(&run).await.open_steps;
                steps.iter().any(|step| step.key == PLAN && step.worker.is_some()).then_some(())
            })
            .await;
        });
        // Read before there is another server that may take the run over.
        let before = doomed.with(async |server: &TestServer| owner(server, &run).await);
        let survivor = shared.server(replica()).await;
        doomed.kill();
        // It is dead after three heartbeats, six seconds, which is far below the timeout of this wait.
        survivor.until_status(&run, RunStatus::Completed).await;
        assert_ne!(owner(&survivor, &run).await, before);
        let kinds = kinds_of(&survivor, &run).await;
        assert_eq!(kinds.iter().filter(|kind| *kind == "step_completed").count(), 2, "{kinds:?}");
        survivor.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_a_server_stops_in_peace_the_other_one_goes_on_at_once() {
    on_both(async |shared| {
        // Without an orderly end of the first server, the takeover would need two minutes.
        let agents = FakeAgents::new(Behaviour::Hangs);
        let first = shared.server(Wish { agents, pulse_ms: 60_000, ..replica() }).await;
        let (_, run) = first.campaign().await;
        do_the_work(&first).await;
        until("the agent's step", || async {
            let steps = first.run(&run).await.open_steps;
            steps.iter().any(|step| step.key == PLAN && step.worker.is_some()).then_some(())
        })
        .await;
        // Started late, because its agents might have taken the step.
        let second = shared.server(replica()).await;
        first.stop().await;
        second.until_status(&run, RunStatus::Completed).await;
        second.stop().await;
    })
    .await;
}

/// On Postgres only. On SQLite the servers of a test share one store, and a stalled thread keeps the readers it waits for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_stalled_decides_nothing_when_it_comes_back() {
    let shared = Shared::postgres().await;
    // Created on another server, because a stalled server does not answer.
    let creator = shared.server(Wish { drives: false, ..replica() }).await;
    let (_, run) = creator.campaign().await;
    creator.stop().await;
    let stall = Arc::new(Stall::default());
    let stalled = shared.doomed(Wish { stall: Some(stall.clone()), agent_slots: 0, ..replica() });
    until("the stall", || async { stall.is_stuck().then_some(()) }).await;
    // The first server stalls in the middle of a decision, and the second one acquires the run.
    // Its own lease is long enough for a busy machine: nothing takes the run from it again.
    let other = shared.server(Wish { pulse_ms: 2_000, ..replica() }).await;
    until("the decision", || async {
        let steps = other.run(&run).await.open_steps;
        steps.iter().any(|step| step.key == PREPARE).then_some(())
    })
    .await;
    let taken_over = owner(&other, &run).await;
    stall.release();
    // It returns with a new lease, and leaves the run to its owner.
    until("the new life", || async {
        let servers: Page<ServerView> = other.read("/servers").await;
        (servers.items.iter().filter(|server| server.alive).count() == 2).then_some(())
    })
    .await;
    do_the_work(&other).await;
    other.until_status(&run, RunStatus::Completed).await;
    assert_eq!(owner(&other, &run).await, taken_over);
    let kinds = kinds_of(&other, &run).await;
    for kind in ["step_scheduled", "step_completed"] {
        assert_eq!(kinds.iter().filter(|seen| *seen == kind).count(), 2, "{kinds:?}");
    }
    stalled.kill();
    other.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_of_one_server_gets_the_steps_that_another_one_decides() {
    on_both(async |shared| {
        let (first, second) = (shared.server(replica()).await, shared.server(replica()).await);
        let worker = second.register().await;
        let request = first.request(&["softmax"]).await;
        let began = Instant::now();
        let (step, _) = tokio::join!(second.claim_one(&worker), first.create(&request, None));
        assert!(began.elapsed() < Duration::from_secs(19), "the notice did not reach the other server");
        // The run continues, whichever server gets the result.
        let done = TryOutcome::Completed { output: Box::new(prepared_output()) };
        second.report(&worker, &step, done).await;
        first.until_status(&step.run, RunStatus::Completed).await;
        first.stop().await;
        second.stop().await;
    })
    .await;
}

/// The report of a quick step reaches its owner while the owner still expects the notice of its own decision.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_to_another_server_right_after_the_decision_needs_no_heartbeat() {
    let shared = Shared::postgres().await;
    let wish = || Wish { pulse_ms: 60_000, ..replica() };
    let (owner, other) = (shared.server(wish()).await, shared.server(wish()).await);
    let worker = other.register().await;
    for _ in 0..5 {
        let request = owner.request(&["softmax"]).await;
        let (step, _) = tokio::join!(other.claim_one(&worker), owner.create(&request, None));
        let done = TryOutcome::Completed { output: Box::new(prepared_output()) };
        other.report(&worker, &step, done).await;
        owner.until_status(&step.run, RunStatus::Completed).await;
    }
    owner.stop().await;
    other.stop().await;
}

#[tokio::test]
async fn a_server_is_ready_while_its_lease_lasts() {
    let shared = Shared::sqlite().await;
    let server = shared.server(replica()).await;
    assert_eq!(server.get("/ready").send().await.unwrap().status(), StatusCode::NO_CONTENT);
    let servers: Page<ServerView> = server.read("/servers").await;
    let [alive] = servers.items.as_slice() else { panic!("{servers:?}") };
    assert!(alive.alive && alive.address.ends_with(&server.addr().port().to_string()));
    server.stop().await;
    let reading = shared.server(Wish { drives: false, ..replica() }).await;
    assert_eq!(reading.get("/ready").send().await.unwrap().status(), StatusCode::NO_CONTENT);
    let servers: Page<ServerView> = reading.read("/servers").await;
    assert!(servers.items.iter().all(|server| !server.alive), "{servers:?}");
    reading.stop().await;
}
