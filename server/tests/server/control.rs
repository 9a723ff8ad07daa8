//! Tests of the control of runs and campaigns: signals, priorities, limits.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use nightshift_engine::store::{RunControlStore, Store, StoreError};
use nightshift_protocol::api::{
    CampaignCreated, CampaignDetail, Control, ControlAction, Controlled, CreateCampaign, EventsPage,
    IDEMPOTENCY_HEADER, RunSummary, SetPriority, TryOutcome,
};
use nightshift_protocol::budget::{Amount, BudgetCaps, BudgetLine, Resource};
use nightshift_protocol::campaign::{MAX_PRIORITY, MAX_WEIGHT};
use nightshift_protocol::id::RunId;
use nightshift_protocol::run::{RunStatus, RunTransition};
use nightshift_protocol::schedule::Schedule;
use nightshift_protocol::signal::{Gate, MAX_HINT_CHARS, Signal};
use nightshift_protocol::time::TimestampMs;
use reqwest::{Method, StatusCode};
use tokio::sync::Semaphore;

use crate::setup::{TestServer, WORKER, Wish, ok, open_store, refusal, refused, until};
use crate::toy::{CALL_TOKENS, prepared_output};

fn hint(text: &str) -> Signal {
    Signal::Hint { text: text.to_owned() }
}

async fn log(server: &TestServer, run: &RunId) -> EventsPage {
    server.read(&format!("/runs/{run}/events")).await
}

#[tokio::test]
async fn a_signal_is_appended_once_and_the_log_names_its_sender() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let (_, run) = server.campaign().await;
    let path = format!("/runs/{run}/signals");
    let give =
        |signal: Signal, key: &'static str| server.post(&path).header(IDEMPOTENCY_HEADER, key).json(&signal).send();
    for _ in 0..2 {
        let answer = give(hint("use shared memory"), "one").await.unwrap();
        assert_eq!(answer.status(), StatusCode::NO_CONTENT);
    }
    let other = give(hint("use registers"), "one").await.unwrap();
    assert_eq!(refused(other).await, refusal(409, "request.idempotency_conflict"));
    let signals: Vec<_> = log(&server, &run).await.events.into_iter().filter(|e| e.kind == "signal_received").collect();
    assert_eq!(signals.len(), 1);
    assert_eq!(
        (&signals[0].body["by"], &signals[0].body["signal"]["text"]),
        (&"operator".into(), &"use shared memory".into())
    );
    server.stop().await;
}

/// Controls runs, each after a permit.
struct Gated {
    inner: Arc<dyn RunControlStore>,
    permits: Semaphore,
    /// Names of the runs of which each call was made.
    calls: Mutex<Vec<RunId>>,
}

impl Gated {
    async fn begin(&self, run: &RunId) {
        self.calls.lock().unwrap().push(run.clone());
        self.permits.acquire().await.unwrap().forget();
    }
}

#[async_trait]
impl RunControlStore for Gated {
    async fn control_run(
        &self,
        run: &RunId,
        transition: RunTransition,
        by: Option<&str>,
        at: TimestampMs,
    ) -> Result<RunStatus, StoreError> {
        self.begin(run).await;
        self.inner.control_run(run, transition, by, at).await
    }

    async fn signal_run(
        &self,
        run: &RunId,
        signal: Signal,
        by: Option<&str>,
        idempotency: Option<(String, String)>,
        at: TimestampMs,
    ) -> Result<(), StoreError> {
        self.inner.signal_run(run, signal, by, idempotency, at).await
    }

    async fn set_priority(&self, run: &RunId, priority: i32, at: TimestampMs) -> Result<(), StoreError> {
        self.begin(run).await;
        self.inner.set_priority(run, priority, at).await
    }

    async fn retry_run(
        &self,
        run: &RunId,
        key: Option<&str>,
        by: Option<&str>,
        at: TimestampMs,
    ) -> Result<Vec<String>, StoreError> {
        self.inner.retry_run(run, key, by, at).await
    }
}

/// Returns whether a call has changed this run.
type IsChanged = fn(&RunSummary) -> bool;

#[tokio::test]
async fn a_campaign_is_changed_as_a_whole_although_its_client_disconnects() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_store(&folder).await.ports();
    let gated =
        Arc::new(Gated { inner: store.run_control.clone(), permits: Semaphore::new(0), calls: Mutex::default() });
    let server = TestServer::on(Store { run_control: gated.clone(), ..store }, Wish::default()).await;
    let request = server.request(&["a", "b", "c"]).await;
    let created: CampaignCreated = ok(server.create(&request, None).await).await;
    let path = |call: &str| format!("/campaigns/{}/{call}", created.campaign);
    let pause = Control { action: ControlAction::Pause };
    let calls: [(_, IsChanged); 2] = [
        (server.post(&path("priority")).json(&SetPriority { priority: 3 }), |run| run.priority == 3),
        (server.post(&path("control")).json(&pause), |run| run.status == RunStatus::Paused),
    ];
    for (call, is_changed) in calls {
        let call = tokio::spawn(call.send());
        until("the first change", || async { (gated.calls.lock().unwrap().len() == 1).then_some(()) }).await;
        call.abort();
        // The server has time to notice.
        for _ in 0..20 {
            server.bare(Method::GET, "/api/v1/health").send().await.unwrap();
        }
        gated.permits.add_permits(3);
        for run in &created.runs {
            until("a change of every run", || async { is_changed(&server.run(run).await.summary).then_some(()) }).await;
        }
        assert_eq!(std::mem::take(&mut *gated.calls.lock().unwrap()).len(), 3);
    }
    // Nothing is left to do. A further change would fail instead of waiting for a permit.
    gated.permits.close();
    let again: Controlled = ok(server.post(&path("control")).json(&pause).send().await.unwrap()).await;
    assert_eq!(again.runs.len(), 3);
    let again = server.post(&path("priority")).json(&SetPriority { priority: 3 }).send().await.unwrap();
    assert_eq!(again.status(), StatusCode::NO_CONTENT);
    assert!(gated.calls.lock().unwrap().is_empty());
    server.stop().await;
}

#[tokio::test]
async fn a_signal_that_no_prompt_would_take_is_refused() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let (_, run) = server.campaign().await;
    let path = format!("/runs/{run}/signals");
    let long = "é".repeat(MAX_HINT_CHARS + 1);
    let wrong = [hint(" "), hint(&long), Signal::Rejected { gate: Gate::Plan, reason: String::new() }];
    for signal in wrong {
        let answer = server.post(&path).json(&signal).send().await.unwrap();
        assert_eq!(refused(answer).await, refusal(400, "signal.invalid_text"));
    }
    let unknown = format!("/runs/run_{}/signals", "0".repeat(32));
    let answer = server.post(&unknown).json(&hint("x")).send().await.unwrap();
    assert_eq!(refused(answer).await, refusal(404, "run.not_found"));
    let worker = server.call(Method::POST, &path, WORKER).json(&hint("x")).send().await.unwrap();
    assert_eq!(refused(worker).await, refusal(403, "access.role_needed"));
    server.stop().await;
}

#[tokio::test]
async fn a_run_with_a_head_start_is_taken_first() {
    let (server, _folder) = TestServer::start(Wish { agent_slots: 0, ..Wish::default() }).await;
    let request = server.request(&["a", "b"]).await;
    let created: CampaignCreated = ok(server.create(&request, None).await).await;
    for run in &created.runs {
        server.until_event(run, "step_scheduled").await;
    }
    let path = format!("/runs/{}/priority", created.runs[1]);
    let set = |path: String, priority: i32| server.post(&path).json(&SetPriority { priority }).send();
    let wrong = set(path.clone(), MAX_PRIORITY + 1).await.unwrap();
    assert_eq!(refused(wrong).await, refusal(400, "campaign.invalid_priority"));
    assert!(set(path, 5).await.unwrap().status().is_success());
    let worker = server.register().await;
    assert_eq!(server.claim_one(&worker).await.run, created.runs[1]);
    assert_eq!(server.run(&created.runs[1]).await.summary.priority, 5);

    let whole = format!("/campaigns/{}/priority", created.campaign);
    assert!(set(whole, -3).await.unwrap().status().is_success());
    assert_eq!(server.run(&created.runs[0]).await.summary.priority, -3);
    server.stop().await;
}

#[tokio::test]
async fn limits_that_make_no_sense_are_refused() {
    type Change = fn(&mut CreateCampaign);
    fn schedule(window: &str, time_zone: &str) -> Schedule {
        Schedule { window: window.parse().unwrap(), time_zone: time_zone.to_owned() }
    }
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let good = server.request(&["softmax"]).await;
    let changes: &[(&str, Change)] = &[
        ("campaign.invalid_budget", |request| request.spec.budget.attempts = Some(0)),
        ("campaign.invalid_priority", |request| request.spec.priority = MAX_PRIORITY + 1),
        ("campaign.invalid_weight", |request| request.spec.weight = 0),
        ("campaign.invalid_goal", |request| request.spec.goal.candidates_per_round = Some(17)),
        ("campaign.invalid_goal", |request| {
            request.spec.strategy = "group".to_owned();
            request.spec.goal.candidates_per_round = Some(1);
        }),
        ("campaign.invalid_weight", |request| request.spec.weight = MAX_WEIGHT + 1),
        ("campaign.bad_schedule", |request| request.spec.schedule = Some(schedule("20:00-07:00", "Mars/Olympus"))),
        ("campaign.window_too_short", |request| request.spec.schedule = Some(schedule("20:00-20:01", "Europe/Berlin"))),
    ];
    for (code, change) in changes {
        let mut request = good.clone();
        change(&mut request);
        assert_eq!(refused(server.create(&request, None).await).await, refusal(400, code));
    }
    let mut request = good;
    request.spec.schedule = Some(schedule("20:00-07:30", "Europe/Berlin"));
    let created: CampaignCreated = ok(server.create(&request, None).await).await;
    let detail: CampaignDetail = server.read(&format!("/campaigns/{}", created.campaign)).await;
    assert_eq!(detail.summary.schedule, request.spec.schedule);
    server.stop().await;
}

#[tokio::test]
async fn model_calls_are_paid_from_the_budget_and_not_beyond_it() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let mut request = server.request(&["a", "b"]).await;
    request.spec.budget = BudgetCaps { tokens: Some(CALL_TOKENS + 1), ..BudgetCaps::default() };
    let created: CampaignCreated = ok(server.create(&request, None).await).await;
    let worker = server.register().await;
    for _ in &created.runs {
        let step = server.claim_one(&worker).await;
        server.report(&worker, &step, TryOutcome::Completed { output: Box::new(prepared_output()) }).await;
    }
    // The budget suffices for one call. The toy's other run cannot continue without its own call, and fails for that
    // reason.
    let mut ended = Vec::new();
    for run in &created.runs {
        let status = until("the end", || async {
            let status = server.run(run).await.summary.status;
            status.is_final().then_some(status)
        });
        ended.push(status.await);
    }
    ended.sort_by_key(|status| status.as_str());
    assert_eq!(ended, [RunStatus::Completed, RunStatus::Failed]);
    let detail: CampaignDetail = server.read(&format!("/campaigns/{}", created.campaign)).await;
    let tokens: &BudgetLine = detail.budget.iter().find(|line| line.resource == Resource::Tokens).unwrap();
    assert_eq!((tokens.used, tokens.reserved), (CALL_TOKENS, 0));
    let failed = detail.runs.into_iter().find_map(|run| run.failure).unwrap();
    assert_eq!(failed.code, "budget.exhausted");
    server.stop().await;
}

#[tokio::test]
async fn a_step_that_waits_for_a_budget_says_so() {
    let reserve = vec![Amount { resource: Resource::DeviceMs, amount: 60_000 }];
    let (server, _folder) = TestServer::start(Wish { reserve, agent_slots: 0, ..Wish::default() }).await;
    let mut request = server.request(&["a", "b"]).await;
    request.spec.budget = BudgetCaps { device_ms: Some(100_000), ..BudgetCaps::default() };
    let created: CampaignCreated = ok(server.create(&request, None).await).await;
    let reason = until("a blocked step", || async {
        for run in &created.runs {
            let steps = server.run(run).await.open_steps;
            let reason = steps.into_iter().find_map(|step| step.waiting_for);
            if let Some(reason) = reason.filter(|reason| reason.contains("budget")) {
                return Some(reason);
            }
        }
        None
    })
    .await;
    assert_eq!(reason, "the campaign's budget of device_ms: 0 used and 60000 reserved of 100000");
    // The unused part of the first reservation is available for the second.
    let worker = server.register().await;
    let step = server.claim_one(&worker).await;
    server.report(&worker, &step, TryOutcome::Completed { output: Box::new(prepared_output()) }).await;
    assert_ne!(server.claim_one(&worker).await.run, step.run);
    server.stop().await;
}

#[tokio::test]
async fn a_worker_cannot_tell_of_model_calls() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let (_, run) = server.campaign().await;
    let worker = server.register().await;
    let step = server.claim_one(&worker).await;
    let forged = serde_json::json!({
        "worker": worker, "epoch": step.epoch,
        "result": { "outcome": "failed", "failure": {
            "class": "fatal", "code": "x", "message": "x", "retry_after_ms": null,
            "calls": [{
                "model": "a/b", "scripted": false, "prompt_version": "1", "prompt": "0".repeat(64),
                "reply": "0".repeat(64), "input_tokens": 1, "output_tokens": 1, "price_microusd": 1_000_000,
                "latency_ms": 1, "turn": 1,
            }],
        } },
    });
    let path = format!("/steps/{}/report", step.step);
    let answer = server.call(Method::POST, &path, WORKER).json(&forged).send().await.unwrap();
    assert!(answer.status().is_success());
    server.until_status(&run, RunStatus::Failed).await;
    assert!(server.run(&run).await.summary.failure.unwrap().calls.is_empty());
    server.stop().await;
}
