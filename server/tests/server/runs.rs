//! Tests of reading runs: detail, log, steps, and reasons for waiting.

use std::time::{Duration, Instant};

use nightshift_engine::retry::RetryPolicy;
use nightshift_protocol::api::{Control, ControlAction, EventsPage, Page, RegisterWorker, StepView, TryOutcome};
use nightshift_protocol::id::RunId;
use nightshift_protocol::machine::Offers;
use nightshift_protocol::run::{RunStatus, StepStatus};
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::task::Target;
use reqwest::{Method, StatusCode};
use serde_json::json;

use crate::setup::{TestServer, WORKER, Wish, until};
use crate::toy::{PLAN, PREPARE, offers, prepared_output};

async fn waiting_for(server: &TestServer, run: &RunId) -> Option<String> {
    server.run(run).await.open_steps.first().and_then(|step| step.waiting_for.clone())
}

#[tokio::test]
async fn a_waiting_step_says_why() {
    let retry = RetryPolicy { max_tries: 3, first_delay_ms: 40_000, max_delay_ms: 40_000 };
    let (server, _folder) = TestServer::start(Wish { retry, ..Wish::default() }).await;
    let (_, run) = server.campaign().await;
    let reason = until("a scheduled step", || waiting_for(&server, &run)).await;
    assert_eq!(
        reason,
        "no worker offers worker/cpu/exclusive: no worker is alive; `nightshift work` on a machine that has it starts one"
    );

    let worker = server.register().await;
    assert_eq!(
        waiting_for(&server, &run).await.unwrap(),
        "a worker that offers worker/cpu/exclusive is about to take it"
    );
    let control = async |action| {
        let answer = server.post(&format!("/runs/{run}/control")).json(&Control { action }).send().await.unwrap();
        assert!(answer.status().is_success());
    };
    control(ControlAction::Pause).await;
    assert_eq!(waiting_for(&server, &run).await.unwrap(), "the run is paused");
    assert!(server.claim(&worker, 0).await.is_empty(), "a step of a paused run was given out");
    control(ControlAction::Resume).await;

    let step = server.claim_one(&worker).await;
    assert_eq!(waiting_for(&server, &run).await, None);
    let (_, second) = server.campaign().await;
    let busy = until("a second scheduled step", || waiting_for(&server, &second)).await;
    assert_eq!(busy, "the only worker that offers worker/cpu/exclusive is busy");

    let failed = TryOutcome::Failed { failure: StepFailure::retriable("worker.busy", "no memory") };
    server.report(&worker, &step, failed).await;
    let retrying = waiting_for(&server, &run).await.unwrap();
    assert!(retrying.starts_with("retry in ") && retrying.ends_with(" s after worker.busy: no memory"), "{retrying}");
    let log: EventsPage = server.read(&format!("/runs/{run}/events")).await;
    let retried = log.events.iter().find(|event| event.kind == "step_retried").unwrap();
    assert_eq!(retried.step_key.as_deref(), Some(step.key.as_str()));
    assert_eq!(retried.body["failure"]["code"], "worker.busy");
    server.stop().await;
}

#[tokio::test]
async fn no_worker_is_reported_missing_while_the_embedded_worker_starts() {
    let (server, _folder) = TestServer::start(Wish { own_workers: 1, ..Wish::default() }).await;
    let (_, run) = server.campaign().await;
    let starting = until("a scheduled step", || waiting_for(&server, &run)).await;
    assert_eq!(starting, "the worker of this server is starting");
    // Other tokens cannot claim to be embedded.
    let register = async |token: &str| {
        let offers = Offers { targets: vec![Target::Cuda], ..offers() };
        let worker = RegisterWorker { name: "box".to_owned(), embedded: true, offers, version: "0".to_owned() };
        let answer = server.call(Method::POST, "/workers", token).json(&worker).send().await.unwrap();
        assert!(answer.status().is_success());
    };
    register(WORKER).await;
    assert_eq!(waiting_for(&server, &run).await.unwrap(), "the worker of this server is starting");
    register(&server.embedded_token()).await;
    let lacking = waiting_for(&server, &run).await.unwrap();
    assert!(lacking.contains("2 workers are alive, they lack target cpu"), "{lacking}");
    server.stop().await;
}

#[tokio::test]
async fn the_log_is_held_until_something_happens() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let (_, run) = server.campaign().await;
    server.until_event(&run, "step_scheduled").await;
    let log: EventsPage = server.read(&format!("/runs/{run}/events")).await;
    let last = log.events.last().unwrap().seq;
    assert_eq!(log.events.iter().map(|event| event.seq).collect::<Vec<_>>(), (1..=last).collect::<Vec<_>>());

    let worker = server.register().await;
    let step = server.claim_one(&worker).await;
    let began = Instant::now();
    let path = format!("/runs/{run}/events?after={last}&wait_ms=20000");
    let (page, _) = tokio::join!(server.read::<EventsPage>(&path), async {
        tokio::task::yield_now().await;
        server.report(&worker, &step, TryOutcome::Completed { output: Box::new(prepared_output()) }).await
    });
    assert!(began.elapsed() < Duration::from_secs(19), "the call was held to its end");
    assert_eq!((page.events[0].seq, page.events[0].kind.as_str()), (last + 1, "step_completed"));
    assert_eq!(page.events[0].step_key.as_deref(), Some(PREPARE));
    assert_eq!(page.events[0].body["event"], "step_completed");

    // A finished run gets no more events: the call ends at once.
    server.until_status(&run, RunStatus::Completed).await;
    let log: EventsPage = server.read(&format!("/runs/{run}/events")).await;
    let end = log.events.last().unwrap().seq;
    let began = Instant::now();
    let page: EventsPage = server.read(&format!("/runs/{run}/events?after={end}&wait_ms=20000")).await;
    assert!(page.events.is_empty() && page.status == RunStatus::Completed);
    assert!(began.elapsed() < Duration::from_secs(19));
    server.stop().await;
}

#[tokio::test]
async fn a_finished_run_shows_all_its_steps() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let (created, run) = server.campaign().await;
    let worker = server.register().await;
    let step = server.claim_one(&worker).await;
    server.report(&worker, &step, TryOutcome::Completed { output: Box::new(prepared_output()) }).await;
    server.until_status(&run, RunStatus::Completed).await;
    let detail = server.run(&run).await;
    assert!(detail.open_steps.is_empty());
    assert_eq!(detail.summary.campaign, created.campaign);
    assert_eq!(detail.summary.digest.activity, "2 steps done");
    assert!(detail.summary.finished_at.is_some());
    let steps: Page<StepView> = server.read(&format!("/runs/{run}/steps")).await;
    let shown: Vec<_> = steps.items.iter().map(|step| (step.key.as_str(), step.status, step.tries)).collect();
    assert_eq!(shown, [(PREPARE, StepStatus::Completed, 1), (PLAN, StepStatus::Completed, 1)]);
    assert_eq!(steps.items[0].worker, Some(worker));
    server.stop().await;
}

/// Returns status and version of the answer to a reading call that names a version.
async fn versioned(server: &TestServer, path: &str, known: Option<&str>) -> (StatusCode, String) {
    let mut call = server.get(path);
    if let Some(known) = known {
        call = call.header("if-none-match", known);
    }
    let answer = call.send().await.unwrap();
    let (status, version) = (answer.status(), answer.headers()["etag"].to_str().unwrap().to_owned());
    assert_eq!(answer.bytes().await.unwrap().is_empty(), status == StatusCode::NOT_MODIFIED);
    (status, version)
}

#[tokio::test]
async fn a_run_and_its_campaign_are_sent_again_only_when_they_changed() {
    let (server, _folder) = TestServer::start(Wish { drives: false, ..Wish::default() }).await;
    let (created, run) = server.campaign().await;
    for path in [format!("/runs/{run}"), format!("/campaigns/{}", created.campaign)] {
        let (status, first) = versioned(&server, &path, None).await;
        assert_eq!(status, StatusCode::OK, "{path}");
        assert_eq!(versioned(&server, &path, Some(&first)).await, (StatusCode::NOT_MODIFIED, first.clone()), "{path}");
        let priority = format!("{path}/priority");
        let moved = server.post(&priority).json(&json!({"priority": path.len()})).send().await.unwrap();
        assert_eq!(moved.status(), StatusCode::NO_CONTENT);
        let (status, second) = versioned(&server, &path, Some(&first)).await;
        assert_eq!(status, StatusCode::OK, "{path}");
        assert_ne!(second, first, "{path}");
    }
    server.stop().await;
}
