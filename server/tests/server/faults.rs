//! A store that fails: every single write of a campaign may fail once, before it was done or after, and the run ends
//! as if nothing had happened.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use nightshift_protocol::api::{
    CampaignCreated, Claim, Claimed, CreateCampaign, Page, ReportReply, ReportResult, StepView, TryOutcome,
};
use nightshift_protocol::run::{RunStatus, StepStatus};
use nightshift_store::fault::{FaultPoint, FaultyStore};
use reqwest::Method;
use tokio::task::JoinSet;

use crate::setup::{TestServer, WORKER, Wish, ok, open_store, refusal, refused, until};
use crate::toy::{free, prepared_output};

/// Methods of which a write has to fail.
const METHODS: [&str; 5] = ["create_campaign", "commit", "register_server", "register_worker", "record_model_call"];
/// Rounds in which they have to.
const MAX_ROUNDS: u32 = 8;
/// By how many writes each round goes further than the one before.
const FURTHER: u64 = 8;
/// Servers at once.
const AT_ONCE: usize = 12;

/// What happened under one fault.
struct Outcome {
    writes: u64,
    fired: Option<&'static str>,
}

/// A client that repeats what did not succeed, as the real ones do.
async fn campaign_under(point: FaultPoint, number: u64) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    let inner = open_store(&folder).await;
    // Artifacts and the idempotent request are prepared without faults.
    let request: CreateCampaign = {
        let quiet = TestServer::on(inner.clone(), Wish { drives: false, ..Wish::default() }).await;
        let request = quiet.request(&["softmax"]).await;
        quiet.stop().await;
        request
    };
    let store = Arc::new(FaultyStore::failing(inner.clone(), number, point));
    let wish = Wish { lease_ms: 1_000, heartbeat_ms: 200, ..Wish::default() };
    // The first write makes the server known: a start that fails is repeated by whoever starts the server.
    let server = until("the start", || async { TestServer::try_on(store.clone(), &wish).await.ok() }).await;

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
        // On a busy machine the lease may have run out before the report came: then the step is given out again.
        (reply.result == ReportResult::Committed).then_some(())
    })
    .await;
    server.until_status(&run, RunStatus::Completed).await;

    let steps: Page<StepView> = server.read(&format!("/runs/{run}/steps")).await;
    assert!(steps.items.iter().all(|step| step.status == StepStatus::Completed));
    let kinds = server.until_event(&run, "run_completed").await;
    for kind in ["step_scheduled", "step_completed"] {
        assert_eq!(kinds.iter().filter(|seen| *seen == kind).count(), 2, "{point:?} {number}: {kinds:?}");
    }
    server.stop().await;
    assert_eq!(inner.find_violations().await.unwrap(), Vec::<String>::new(), "{point:?} {number}");
    Outcome { writes: store.writes(), fired: store.fired() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_single_write_may_fail_before_or_after_it_was_done() {
    let undisturbed = campaign_under(FaultPoint::Before, 0).await;
    assert_eq!(undisturbed.fired, None);
    // Heartbeats come with time: on a busy machine there are more of them, and a write that happens once comes later than
    // it did undisturbed, or is missed by a round. Rounds go further and further until each method was hit.
    let mut methods = BTreeSet::new();
    let mut writes = undisturbed.writes + 2;
    for _round in 0..MAX_ROUNDS {
        methods.extend(fail_each(writes).await);
        if METHODS.iter().all(|method| methods.contains(method)) {
            return;
        }
        writes += FURTHER;
    }
    panic!("not every one of {METHODS:?} failed: {methods:?}");
}

/// Fails each of the first writes, before and after it was done; the methods that failed.
async fn fail_each(writes: u64) -> BTreeSet<&'static str> {
    let mut waiting: Vec<(FaultPoint, u64)> =
        (1..=writes).flat_map(|number| [(FaultPoint::Before, number), (FaultPoint::After, number)]).collect();
    let mut running = JoinSet::new();
    let mut methods = BTreeSet::new();
    loop {
        while running.len() < AT_ONCE
            && let Some((point, number)) = waiting.pop()
        {
            running.spawn(tokio::time::timeout(Duration::from_mins(2), campaign_under(point, number)));
        }
        let Some(done) = running.join_next().await else { return methods };
        methods.extend(done.unwrap().unwrap().fired);
    }
}

#[tokio::test]
async fn a_campaign_goes_on_by_itself_when_a_full_disk_has_space_again() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(FaultyStore::counting(open_store(&folder).await));
    let wish = Wish { lease_ms: 1_000, heartbeat_ms: 200, ..Wish::default() };
    let server = TestServer::on(store.clone(), wish).await;
    let (_, run) = server.campaign().await;
    let worker = server.register().await;
    let step = server.claim_one(&worker).await;
    let done = || TryOutcome::Completed { output: Box::new(prepared_output()) };

    store.set_full(true);
    let refused_report = server.try_report(&worker, &step, done()).await;
    assert_eq!(refused(refused_report).await, refusal(507, "store.full"));
    // The loops notice too, and the lease runs out meanwhile.
    until("the trouble", || async {
        let answer = server.bare(Method::GET, "/api/v1/health").send().await.unwrap();
        (refused(answer).await == refusal(503, "store.full")).then_some(())
    })
    .await;
    store.set_full(false);

    until("the repeated report", || async {
        // Either the old lease still holds, or the step is given out again.
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
