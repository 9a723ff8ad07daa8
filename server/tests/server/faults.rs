//! A store that fails: every single write of a campaign may fail once, before it was done or after, and the run ends
//! as if nothing had happened.

use std::sync::Arc;
use std::time::Duration;

use nightshift_protocol::api::{CampaignCreated, Claim, Claimed, CreateCampaign, Page, StepView, TryOutcome};
use nightshift_protocol::run::{RunStatus, StepStatus};
use nightshift_store::fault::{FaultPoint, FaultyStore};
use reqwest::Method;
use tokio::task::JoinSet;

use crate::setup::{TestServer, WORKER, Wish, ok, open_store, until};
use crate::toy::{ROUTE, prepared_output};

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
    // The first write frees leases: a start that fails is repeated by whoever starts the server.
    let server = until("the start", || async { TestServer::try_on(store.clone(), &wish).await.ok() }).await;

    let created: CampaignCreated = until("the campaign", || async {
        let answer = server.create(&request, Some("once")).await;
        if answer.status().is_success() { Some(ok(answer).await) } else { None }
    })
    .await;
    let run = created.runs[0].clone();
    let worker = until("the registration", || async { server.try_register().await }).await;
    until("the worker's step", || async {
        let claim = Claim { free: vec![(ROUTE.to_owned(), 1)], wait_ms: 500 };
        let path = format!("/workers/{worker}/claim");
        let answer = server.call(Method::POST, &path, WORKER).json(&claim).send().await.unwrap();
        if !answer.status().is_success() {
            return None;
        }
        let step = ok::<Claimed>(answer).await.steps.pop()?;
        let done = || TryOutcome::Completed { output: Box::new(prepared_output()) };
        until("the report", || async {
            server.try_report(&worker, &step, done()).await.status().is_success().then_some(())
        })
        .await;
        Some(())
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
    // Heartbeats come with time, hence the number of writes differs a little from run to run.
    let numbers = 1..=undisturbed.writes + 2;
    let mut waiting: Vec<(FaultPoint, u64)> =
        numbers.flat_map(|number| [(FaultPoint::Before, number), (FaultPoint::After, number)]).collect();
    let mut running = JoinSet::new();
    let mut methods = std::collections::BTreeSet::new();
    loop {
        while running.len() < AT_ONCE
            && let Some((point, number)) = waiting.pop()
        {
            running.spawn(tokio::time::timeout(Duration::from_mins(2), campaign_under(point, number)));
        }
        let Some(done) = running.join_next().await else { break };
        methods.extend(done.unwrap().unwrap().fired);
    }
    for method in ["create_campaign", "advance", "claim", "report", "register_worker", "record_model_call"] {
        assert!(methods.contains(method), "no write of `{method}` failed: {methods:?}");
    }
}
