//! Tests with a failing store: every single write of a campaign fails once, before or after its commit, and the run
//! ends as if nothing had happened.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use nightshift_engine::clock::Clock as _;
use nightshift_protocol::api::{
    CampaignCreated, Claim, Claimed, CreateCampaign, Page, ReportReply, ReportResult, StepView, TryOutcome,
};
use nightshift_protocol::run::{RunStatus, StepStatus};
use nightshift_server::SystemClock;
use nightshift_store::fault::{Fault, FaultyStore};
use reqwest::Method;
use tokio::task::JoinSet;

use crate::setup::{TestServer, WORKER, Wish, ok, open_store, refusal, refused, until};
use crate::toy::{Behaviour, FakeAgents, free, prepared_output};

/// Methods that each campaign calls at least once, so that a fault in their first call always occurs.
const METHODS: [&str; 5] = ["create_campaign", "commit", "register_server", "register_worker", "record_model_call"];
/// Number of servers at once.
const AT_ONCE: usize = 12;

/// Outcome under one fault.
struct Outcome {
    writes: BTreeMap<&'static str, u64>,
    fired: bool,
}

/// Runs a campaign with a client that repeats failed calls, as the real clients do.
async fn campaign_under(fault: Option<Fault>) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    let inner = open_store(&folder).await;
    // Artifacts and the idempotent request are prepared without faults.
    let request: CreateCampaign = {
        let quiet = TestServer::on(inner.ports(), Wish { drives: false, ..Wish::default() }).await;
        let request = quiet.request(&["softmax"]).await;
        quiet.stop().await;
        request
    };
    let store = Arc::new(FaultyStore::with(inner.ports(), fault));
    let wish = Wish { lease_ms: 1_000, heartbeat_ms: 200, ..Wish::default() };
    // The first write registers the server. A failed start is repeated.
    let server = until("the start", || async { TestServer::try_on(store.ports(), &wish).await.ok() }).await;

    let created: CampaignCreated = until("the campaign", || async {
        let answer = server.create(&request, Some("once")).await;
        if answer.status().is_success() { Some(ok(answer).await) } else { None }
    })
    .await;
    let run = created.runs[0].clone();
    let worker = until("the registration", || async { server.try_register().await }).await;
    until("the worker's step", || async {
        let claim = Claim { free: free(), wait_ms: 500 };
        let path = format!("/workers/{worker}/claim");
        let answer = server.call(Method::POST, &path, WORKER).json(&claim).send().await.unwrap();
        if !answer.status().is_success() {
            return None;
        }
        let step = ok::<Claimed>(answer).await.steps.pop()?;
        let done = || TryOutcome::Completed { output: Box::new(prepared_output()) };
        let reply: ReportReply = until("the report", || async {
            let answer = server.try_report(&worker, &step, done()).await;
            if answer.status().is_success() { Some(ok(answer).await) } else { None }
        })
        .await;
        // On a busy machine the lease may have expired before the report arrived. Then the step is leased again.
        (reply.result == ReportResult::Committed).then_some(())
    })
    .await;
    server.until_status(&run, RunStatus::Completed).await;

    let steps: Page<StepView> = server.read(&format!("/runs/{run}/steps")).await;
    assert!(steps.items.iter().all(|step| step.status == StepStatus::Completed));
    let kinds = server.until_event(&run, "run_completed").await;
    for kind in ["step_scheduled", "step_completed"] {
        assert_eq!(kinds.iter().filter(|seen| *seen == kind).count(), 2, "{fault:?}: {kinds:?}");
    }
    server.stop().await;
    assert_eq!(inner.find_violations().await.unwrap(), Vec::<String>::new(), "{fault:?}");
    Outcome { writes: store.writes_by_method(), fired: store.fired() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_single_write_may_fail_before_or_after_it_was_done() {
    let undisturbed = campaign_under(None).await;
    assert!(!undisturbed.fired);
    let faults = Fault::at_each(&undisturbed.writes);
    let fired = fail_each(&faults).await;
    // The number of heartbeats depends on time, so the last ones may be missing. Other first calls always occur.
    for fault in faults.iter().filter(|fault| fault.nth == 1 && METHODS.contains(&fault.method)) {
        assert!(fired.contains(fault), "{fault:?} never happened");
    }
    let writes = undisturbed.writes;
    assert!(METHODS.iter().all(|method| writes.contains_key(method)), "not each of {METHODS:?}: {writes:?}");
}

/// Runs a campaign under each of these faults. Returns the faults that occurred.
async fn fail_each(faults: &[Fault]) -> BTreeSet<Fault> {
    let mut waiting = faults.iter().copied();
    let mut running = JoinSet::new();
    let mut fired = BTreeSet::new();
    loop {
        while running.len() < AT_ONCE
            && let Some(fault) = waiting.next()
        {
            let campaign = async move { (fault, campaign_under(Some(fault)).await) };
            running.spawn(tokio::time::timeout(Duration::from_mins(2), campaign));
        }
        let Some(done) = running.join_next().await else { return fired };
        let (fault, outcome) = done.unwrap().unwrap();
        if outcome.fired {
            fired.insert(fault);
        }
    }
}

#[tokio::test]
async fn a_campaign_goes_on_by_itself_when_a_full_disk_has_space_again() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(FaultyStore::counting(open_store(&folder).await.ports()));
    let wish = Wish { lease_ms: 15_000, heartbeat_ms: 200, ..Wish::default() };
    let server = TestServer::on(store.ports(), wish).await;
    let (_, run) = server.campaign().await;
    let worker = server.register().await;
    let step = server.claim_one(&worker).await;
    let done = || TryOutcome::Completed { output: Box::new(prepared_output()) };

    store.set_full(true);
    let refused_report = server.try_report(&worker, &step, done()).await;
    assert_eq!(refused(refused_report).await, refusal(507, "store.full"));
    // The loops notice the failure too.
    until("the trouble", || async {
        let answer = server.bare(Method::GET, "/api/v1/health").send().await.unwrap();
        (refused(answer).await == refusal(503, "store.full")).then_some(())
    })
    .await;
    store.set_full(false);

    until("the repeated report", || async {
        // The old lease still holds, unless the machine was slow: then the step is leased again.
        if server.try_report(&worker, &step, done()).await.status().is_success() {
            for step in server.claim(&worker, 100).await {
                server.report(&worker, &step, done()).await;
            }
        }
        (server.run(&run).await.summary.status == RunStatus::Completed).then_some(())
    })
    .await;
    let answer = server.bare(Method::GET, "/api/v1/health").send().await.unwrap();
    assert!(answer.status().is_success(), "the trouble is over");
    server.stop().await;
}

#[tokio::test]
async fn an_answer_that_waits_for_space_outlives_its_lease_and_is_not_paid_for_again() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(FaultyStore::counting(open_store(&folder).await.ports()));
    let agents = FakeAgents::new(Behaviour::PlansWhenAnswered);
    let wish = Wish { agents: agents.clone(), lease_ms: 1_000, heartbeat_ms: 100, ..Wish::default() };
    let server = TestServer::on(store.ports(), wish).await;
    let (_, run) = server.campaign().await;
    let worker = server.register().await;
    let step = server.claim_one(&worker).await;
    server.report(&worker, &step, TryOutcome::Completed { output: Box::new(prepared_output()) }).await;
    until("the reservation", || async { store.writes_by_method().contains_key("reserve").then_some(()) }).await;

    store.set_full(true);
    agents.now(Behaviour::Plans);
    agents.answers.notify_one();
    // No heartbeat is written meanwhile, so that the first one after it finds the lease lost.
    let leases = store.ports().leases;
    until("the end of the lease", || async {
        let expired = leases.expired_leases(SystemClock.now(), 1).await.unwrap();
        (!expired.is_empty()).then_some(())
    })
    .await;
    store.set_full(false);

    server.until_status(&run, RunStatus::Completed).await;
    assert_eq!(agents.calls.load(Ordering::SeqCst), 1, "the answer was paid for again");
    server.stop().await;
}
