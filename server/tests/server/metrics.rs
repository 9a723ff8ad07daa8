//! Tests of the page for Prometheus.

#![expect(clippy::float_cmp, reason = "counts are whole numbers, which are exact")]

use std::collections::HashMap;

use nightshift_protocol::api::TryOutcome;
use nightshift_protocol::budget::BudgetCaps;
use nightshift_protocol::run::RunStatus;
use nightshift_protocol::step::StepFailure;
use reqwest::{Method, StatusCode};

use crate::setup::{OPERATOR, TestServer, WORKER, Wish, ok, refusal, refused, until};
use crate::toy::prepared_output;

impl TestServer {
    /// Returns every sample of the page by name and labels.
    async fn samples(&self) -> HashMap<String, f64> {
        let answer = self.bare(Method::GET, "/metrics").bearer_auth(OPERATOR).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        assert!(answer.headers()["content-type"].to_str().unwrap().starts_with("application/openmetrics-text"));
        let page = answer.text().await.unwrap();
        assert!(page.ends_with("# EOF\n"));
        page.lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| {
                let (name, value) = line.rsplit_once(' ').unwrap();
                (name.to_owned(), value.parse().unwrap())
            })
            .collect()
    }
}

#[tokio::test]
async fn a_run_leaves_its_numbers() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let mut request = server.request(&["softmax"]).await;
    request.spec.budget = BudgetCaps { tokens: Some(5_000), ..BudgetCaps::default() };
    let created: nightshift_protocol::api::CampaignCreated = ok(server.create(&request, None).await).await;
    let worker = server.register().await;
    let step = server.claim_one(&worker).await;
    // During the run. Data of the store may be some seconds old.
    let samples = server.samples().await;
    assert_eq!(samples["nightshift_leases"], 1.0);
    assert_eq!(samples["nightshift_runs{status=\"running\"}"], 1.0);
    assert_eq!(samples["nightshift_workers{status=\"alive\"}"], 2.0, "the machine, and the agents");
    let route = format!("nightshift_oldest_lease_age_seconds{{route=\"{}\"}}", step.route);
    assert!(samples[&route] >= 0.0);
    assert!(samples["nightshift_devices{target=\"cpu\",state=\"usable\"}"] >= 1.0, "the machine has one");
    assert_eq!(samples["nightshift_devices_in_use{used=\"exclusive\"}"], 1.0, "the step has it");
    let cap = format!("nightshift_budget_cap{{campaign=\"{}\",resource=\"tokens\"}}", created.campaign);
    assert_eq!(samples[&cap], 5_000.0);

    let failure = StepFailure::retriable("toolchain.failed", "the test wants it");
    server.report(&worker, &step, TryOutcome::Failed { failure }).await;
    let step = server.claim_one(&worker).await;
    let done = || TryOutcome::Completed { output: Box::new(prepared_output()) };
    server.report(&worker, &step, done()).await;
    // A second copy is not a second try, and a report under another fence is too late.
    server.report(&worker, &step, done()).await;
    let late = nightshift_protocol::api::LeasedStep { epoch: step.epoch + 7, ..step.clone() };
    server.report(&worker, &late, done()).await;
    server.until_status(&created.runs[0], RunStatus::Completed).await;

    let samples = server.samples().await;
    let at = |name: &str| samples.get(name).copied().unwrap_or_default();
    let tries = |outcome: &str| {
        at(&format!("nightshift_step_duration_seconds_count{{kind=\"prepare_task\",outcome=\"{outcome}\"}}"))
    };
    assert_eq!((tries("retried"), tries("completed")), (1.0, 1.0));
    assert_eq!(at("nightshift_step_retries_total{kind=\"prepare_task\"}"), 1.0);
    assert_eq!(at("nightshift_step_duration_seconds_count{kind=\"plan\",outcome=\"completed\"}"), 1.0);
    assert_eq!(at("nightshift_reports_total{result=\"late\"}"), 1.0);
    assert!(at("nightshift_claimed_steps_total") >= 3.0);
    assert!(at("nightshift_store_commit_duration_seconds_count{result=\"committed\"}") >= 5.0);
    assert!(at("nightshift_device_seconds_total{kind=\"prepare_task\"}") > 0.0);
    assert!(samples.keys().any(|name| name.starts_with("nightshift_model_calls_total{model=")), "the plan asked");
    let reports = "nightshift_http_requests_total{method=\"POST\",route=\"/api/v1/steps/{id}/report\",status=\"200\"}";
    assert!(at(reports) >= 3.0, "{:?}", samples.keys().filter(|name| name.contains("http")).collect::<Vec<_>>());
    server.stop().await;
}

#[tokio::test]
async fn a_lease_that_runs_out_is_counted() {
    let wish = Wish { lease_ms: 300, heartbeat_ms: 100, ..Wish::default() };
    let (server, _folder) = TestServer::start(wish).await;
    server.campaign().await;
    let worker = server.register().await;
    server.claim_one(&worker).await;
    until("the loss of the lease", || async {
        let samples = server.samples().await;
        (samples.get("nightshift_leases_lost_total{kind=\"prepare_task\"}") == Some(&1.0)).then_some(())
    })
    .await;
    server.stop().await;
}

#[tokio::test]
async fn the_numbers_are_read_like_everything_else() {
    let (server, _folder) = TestServer::start(Wish { reads_need_token: true, ..Wish::default() }).await;
    let open = server.bare(Method::GET, "/metrics").send().await.unwrap();
    assert_eq!(refused(open).await, refusal(401, "auth.required"));
    let worker = server.bare(Method::GET, "/metrics").bearer_auth(WORKER).send().await.unwrap();
    assert_eq!(refused(worker).await, refusal(403, "access.role_needed"));
    server.samples().await;
    server.stop().await;
    let (server, _folder) = TestServer::start(Wish::default()).await;
    assert_eq!(server.bare(Method::GET, "/metrics").send().await.unwrap().status(), StatusCode::OK);
    server.stop().await;
}
