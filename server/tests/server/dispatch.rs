//! Tests of the dispatch of ready steps, and of its cost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nightshift_protocol::api::{
    Claim, Claimed, Drain, FreeSlots, Page, Report, ReportReply, ReportResult, TryOutcome, WorkerView,
};
use nightshift_protocol::run::RunStatus;
use nightshift_store::fault::FaultyStore;
use reqwest::Method;
use tokio::task::JoinSet;

use crate::setup::{TestServer, WORKER, Wish, ok, open_store, until};
use crate::toy::{Behaviour, FakeAgents, free, prepared_output};

/// Number of idle workers.
const HERD: usize = 1_000;
/// Maximum number of commits per step while they wait: of the driver, and a few claims.
const MAX_COMMITS: u64 = 12;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_step_wakes_no_herd_of_idle_workers() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(FaultyStore::counting(open_store(&folder).await.ports()));
    // The agents would write, too. The heartbeat may look once.
    let wish = Wish { agent_slots: 0, pulse_ms: 30_000, ..Wish::default() };
    let server = Arc::new(TestServer::on(store.ports(), wish).await);
    let worker = server.register().await;
    let mut herd = JoinSet::new();
    for _ in 0..HERD {
        let (server, worker) = (server.clone(), worker.clone());
        herd.spawn(async move { server.claim(&worker, 20_000).await });
    }
    let request = server.request(&["softmax"]).await;
    // Other waiting workers get no answer before their waiting time is over.
    let _: Page<WorkerView> = server.read("/workers").await;
    let before = store.writes();
    let created = server.create(&request, None).await;
    assert!(created.status().is_success());
    let began = Instant::now();
    let mut given = 0;
    while let Some(steps) = herd.join_next().await {
        given += steps.unwrap().len();
        if given == 1 {
            break;
        }
    }
    assert_eq!(given, 1);
    assert!(began.elapsed() < Duration::from_secs(19), "the step waited for a poll");
    let writes = store.writes() - before;
    assert!(writes <= MAX_COMMITS, "{writes} writes for one step");
    drop(herd);
}

#[tokio::test]
async fn steps_that_become_ready_together_go_to_all_who_wait() {
    let (server, _folder) = TestServer::start(Wish { agent_slots: 0, pulse_ms: 30_000, ..Wish::default() }).await;
    let request = server.request(&["a", "b", "c", "d", "e"]).await;
    let workers = futures::future::join_all((0..5).map(|_| server.register())).await;
    let claims = futures::future::join_all(workers.iter().map(|worker| server.claim(worker, 20_000)));
    let began = Instant::now();
    let (claimed, _) = tokio::join!(claims, server.create(&request, None));
    assert!(claimed.iter().all(|steps| steps.len() == 1), "a worker got no step");
    assert!(began.elapsed() < Duration::from_secs(19));
    server.stop().await;
}

#[tokio::test]
async fn a_report_brings_the_next_step_at_once() {
    let (server, _folder) = TestServer::start(Wish { agent_slots: 0, ..Wish::default() }).await;
    let request = server.request(&["a", "b"]).await;
    server.create(&request, None).await;
    let worker = server.register().await;
    let first = server.claim_one(&worker).await;
    until("the second step", || async {
        let steps = server.run(&server.other_run(&first).await).await.open_steps;
        (!steps.is_empty()).then_some(())
    })
    .await;
    let report = Report {
        worker: worker.clone(),
        epoch: first.epoch,
        result: TryOutcome::Completed { output: Box::new(prepared_output()) },
        free: Some(free()),
    };
    let path = format!("/steps/{}/report", first.step);
    let reply: ReportReply = ok(server.call(Method::POST, &path, WORKER).json(&report).send().await.unwrap()).await;
    assert_eq!((reply.result, reply.steps.len()), (ReportResult::Committed, 1));
    assert_ne!(reply.steps[0].run, first.run);
    assert_eq!(reply.steps[0].device, Some(0));
    server.stop().await;
}

#[tokio::test]
async fn a_worker_gets_nothing_for_what_is_not_free() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    server.campaign().await;
    let worker = server.register().await;
    let claim = Claim { free: FreeSlots { cpu: 1, devices: Vec::new() }, wait_ms: 300 };
    let path = format!("/workers/{worker}/claim");
    let claimed: Claimed = ok(server.call(Method::POST, &path, WORKER).json(&claim).send().await.unwrap()).await;
    assert!(claimed.steps.is_empty() && !claimed.draining);
    assert_eq!(server.claim_one(&worker).await.device, Some(0));
    server.stop().await;
}

#[tokio::test]
async fn a_draining_worker_learns_it_at_once_and_releases_its_steps() {
    let agents = FakeAgents::new(Behaviour::Hangs);
    let (server, _folder) = TestServer::start(Wish { agents, ..Wish::default() }).await;
    let (_, run) = server.campaign().await;
    let (ending, other) = (server.register().await, server.register().await);
    let step = server.claim_one(&ending).await;
    let drain = async |draining: bool| {
        let call = server.post(&format!("/workers/{ending}/drain")).json(&Drain { draining });
        assert!(call.send().await.unwrap().status().is_success());
    };
    let began = Instant::now();
    let claimed = async { ok::<Claimed>(server.try_claim(&ending, 20_000).await).await };
    let (claimed, ()) = tokio::join!(claimed, drain(true));
    assert!(claimed.draining && claimed.steps.is_empty());
    assert!(began.elapsed() < Duration::from_secs(19), "it heard of it when its claim was over");

    assert_eq!(server.report(&ending, &step, TryOutcome::Cancelled).await, ReportResult::Committed);
    let again = server.claim_one(&other).await;
    assert_eq!((&again.step, again.epoch), (&step.step, 2));
    let listed: Page<WorkerView> = server.read("/workers").await;
    assert!(listed.items.iter().any(|worker| worker.id == ending && worker.draining));
    assert_eq!(server.run(&run).await.summary.status, RunStatus::Running);

    // Draining can be revoked.
    drain(false).await;
    assert_eq!(server.report(&other, &again, TryOutcome::Cancelled).await, ReportResult::Committed);
    assert_eq!(server.claim_one(&ending).await.step, step.step);
    server.stop().await;
}
