//! Tests of starting, stopping, and read-only servers.

use std::sync::Arc;

use axum::Router;
use nightshift_protocol::api::{CampaignCreated, Health, Page, StepView, TryOutcome};
use nightshift_protocol::run::RunStatus;
use nightshift_server::Server;
use nightshift_store::{ArtifactOptions, OpenOptions, SqlStore};
use reqwest::Method;

use crate::setup::{TestServer, WORKER, Wish, ok, open_store, refusal, refused};
use crate::toy::{PANICS, UNREADABLE, prepared_output};

#[tokio::test]
async fn a_port_that_is_in_use_is_named_with_the_remedy() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let folder = tempfile::tempdir().unwrap();
    let store = open_store(&folder).await;
    let wish = Wish::default();
    let mut config = wish.config();
    config.bind = server.addr();
    let error = Server::start(config, wish.parts(store.ports()), Router::new()).await.unwrap_err();
    assert_eq!(error.code(), "server.port_in_use");
    let message = error.to_string();
    assert!(message.contains(&server.addr().to_string()) && message.contains("--bind"), "{message}");
    server.stop().await;
}

#[tokio::test]
async fn settings_that_make_no_sense_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_store(&folder).await;
    let wish = Wish::default();
    let mut same_tokens = wish.config();
    same_tokens.worker_token = same_tokens.token.clone();
    let mut no_token = wish.config();
    no_token.token = String::new().into();
    let mut rare_heartbeat = wish.config();
    rare_heartbeat.heartbeat_ms = rare_heartbeat.lease_ms;
    let mut hectic = wish.config();
    hectic.pulse_ms = 1;
    for config in [same_tokens, no_token, rare_heartbeat, hectic] {
        let error = Server::start(config, wish.parts(store.ports()), Router::new()).await.unwrap_err();
        assert_eq!(error.code(), "config.server");
    }
}

#[tokio::test]
async fn a_server_that_only_reads_moves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_store(&folder).await;
    let server = TestServer::on(store.ports(), Wish { drives: false, ..Wish::default() }).await;
    let health: Health = server.read("/health").await;
    assert!(!health.drives);
    let (_, run) = server.campaign().await;
    let detail = server.run(&run).await;
    assert_eq!((detail.summary.status, detail.open_steps.len()), (RunStatus::Running, 0));
    assert_eq!(detail.summary.digest.task, "softmax");
    let log: nightshift_protocol::api::EventsPage = server.read(&format!("/runs/{run}/events?wait_ms=100")).await;
    assert_eq!(log.events.len(), 1);
    server.stop().await;

    // A driving server finds the runs of the other one.
    let server = TestServer::on(store.ports(), Wish::default()).await;
    server.until_event(&run, "step_scheduled").await;
    let steps: Page<StepView> = server.read(&format!("/runs/{run}/steps")).await;
    assert_eq!(steps.items.len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn a_run_that_cannot_be_driven_holds_up_no_other() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let request = server.request(&[UNREADABLE, PANICS, "softmax"]).await;
    let created: CampaignCreated = ok(server.create(&request, None).await).await;
    let worker = server.register().await;
    let step = server.claim_one(&worker).await;
    assert_eq!(step.run, created.runs[2]);
    server.report(&worker, &step, TryOutcome::Completed { output: Box::new(prepared_output()) }).await;
    server.until_status(&created.runs[2], RunStatus::Completed).await;
    for run in &created.runs[..2] {
        assert_eq!(server.run(run).await.summary.status, RunStatus::Running);
    }
    server.stop().await;
}

#[tokio::test]
async fn stopping_answers_what_is_held() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let worker = server.register().await;
    let (_, run) = server.campaign().await;
    server.until_event(&run, "step_scheduled").await;
    assert_eq!(server.claim(&worker, 1_000).await.len(), 1);
    let began = std::time::Instant::now();
    let claim = nightshift_protocol::api::Claim { free: crate::toy::free(), wait_ms: 20_000 };
    let held = tokio::spawn(server.call(Method::POST, &format!("/workers/{worker}/claim"), WORKER).json(&claim).send());
    // This runtime handles calls in order: the claim was sent when this call is answered.
    let _: Health = server.read("/health").await;
    server.stop().await;
    let answer = held.await.unwrap();
    assert!(began.elapsed() < std::time::Duration::from_secs(19), "the claim was held to its end");
    if let Ok(answer) = answer {
        assert!(answer.status().is_success());
    }
}

#[tokio::test]
async fn a_full_database_is_seen_in_the_health() {
    let folder = tempfile::tempdir().unwrap();
    let artifacts = ArtifactOptions { max_piece_bytes: usize::MAX, ..ArtifactOptions::default() };
    let options = OpenOptions { max_size_bytes: Some(2 << 20), artifacts, ..OpenOptions::default() };
    let store = Arc::new(SqlStore::open_sqlite(folder.path(), options).await.unwrap());
    let server = TestServer::on(store.ports(), Wish { drives: false, ..Wish::default() }).await;
    let bytes: Vec<u8> = (0..4_u32 << 20).map(|i| u8::try_from(i.wrapping_mul(2_654_435_761) >> 24).unwrap()).collect();
    let hash = nightshift_protocol::artifact::ArtifactHash::of(&bytes);
    let put = server.call(Method::PUT, &format!("/artifacts/{hash}"), WORKER).body(bytes).send().await.unwrap();
    assert_eq!(refused(put).await, refusal(507, "store.full"));
    assert_eq!(refused(server.get("/health").send().await.unwrap()).await, refusal(503, "store.full"));
    server.stop().await;
}
