//! Tests that only old data is deleted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nightshift_engine::clock::Clock;
use nightshift_protocol::api::{CampaignDetail, Prune, PruneDone, TryOutcome};
use nightshift_protocol::id::CampaignId;
use nightshift_protocol::run::RunStatus;
use nightshift_protocol::time::TimestampMs;
use nightshift_server::SystemClock;
use reqwest::StatusCode;

use crate::setup::{TestServer, Wish, ok, refusal, refused};
use crate::toy::prepared_output;

const DAY_MS: u64 = 24 * 3_600_000;

/// A clock that a test moves, ahead of the machine's.
#[derive(Default)]
struct Shifted(AtomicU64);

impl Clock for Shifted {
    fn now(&self) -> TimestampMs {
        SystemClock.now().plus_ms(self.0.load(Ordering::SeqCst))
    }
}

impl TestServer {
    async fn prune(&self, older_than_ms: u64, dry_run: bool) -> PruneDone {
        ok(self.post("/prune").json(&Prune { older_than_ms, dry_run }).send().await.unwrap()).await
    }

    async fn knows(&self, campaign: &CampaignId) -> bool {
        let answer = self.get(&format!("/campaigns/{campaign}")).send().await.unwrap();
        answer.status() == StatusCode::OK
    }
}

#[tokio::test]
async fn a_finished_campaign_goes_with_its_artifacts_and_an_unfinished_one_stays() {
    let clock = Arc::new(Shifted::default());
    let (server, _folder) = TestServer::start(Wish { clock: clock.clone(), ..Wish::default() }).await;
    let (old, run) = server.campaign().await;
    let worker = server.register().await;
    let step = server.claim_one(&worker).await;
    server.report(&worker, &step, TryOutcome::Completed { output: Box::new(prepared_output()) }).await;
    server.until_status(&run, RunStatus::Completed).await;
    let loose = server.put_artifact(b"named by nothing").await;
    let (open, _) = server.campaign().await;
    let detail: CampaignDetail = server.read(&format!("/campaigns/{}", open.campaign)).await;

    assert_eq!(server.prune(DAY_MS, false).await.campaigns, Vec::new(), "nothing is a day old");
    clock.0.store(2 * DAY_MS, Ordering::SeqCst);
    let fresh = server.put_artifact(b"stored a moment ago").await;
    let dry = server.prune(DAY_MS, true).await;
    assert_eq!((dry.campaigns, dry.rows, dry.artifacts), (vec![old.campaign.clone()], 0, 0));
    assert!(server.knows(&old.campaign).await);

    let done = server.prune(DAY_MS, false).await;
    assert_eq!((done.campaigns, done.more), (vec![old.campaign.clone()], false));
    assert!(done.rows > 0 && done.artifacts > 0, "{} rows, {} artifacts", done.rows, done.artifacts);
    assert!(!server.knows(&old.campaign).await && server.knows(&open.campaign).await);
    let status = async |hash: &nightshift_protocol::artifact::ArtifactHash| {
        server.get(&format!("/artifacts/{hash}")).send().await.unwrap().status()
    };
    assert_eq!(status(&loose).await, StatusCode::NOT_FOUND);
    assert_eq!(status(&fresh).await, StatusCode::OK);
    assert_eq!(status(&detail.spec.tasks[0].bundle).await, StatusCode::OK, "the open campaign names it");
    let again = server.prune(DAY_MS, false).await;
    assert_eq!((again.campaigns.len(), again.rows, again.artifacts), (0, 0, 0));
    server.stop().await;
}

#[tokio::test]
async fn an_artifact_in_upload_is_not_deleted() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let answer = server.post("/prune").json(&Prune { older_than_ms: 0, dry_run: false }).send().await.unwrap();
    assert_eq!(refused(answer).await, refusal(400, "request.invalid"));
    server.stop().await;
}

#[tokio::test]
async fn deletions_at_the_same_time_do_not_stop_each_other() {
    let clock = Arc::new(Shifted::default());
    let (server, _folder) = TestServer::start(Wish { clock: clock.clone(), ..Wish::default() }).await;
    let mut old = Vec::new();
    for _ in 0..8 {
        let (created, run) = server.campaign().await;
        let cancel = serde_json::json!({ "action": "cancel" });
        server.post(&format!("/runs/{run}/control")).json(&cancel).send().await.unwrap();
        server.until_status(&run, RunStatus::Cancelled).await;
        old.push(created.campaign);
    }
    clock.0.store(2 * DAY_MS, Ordering::SeqCst);
    let done = futures::future::join_all((0..4).map(|_| server.prune(DAY_MS, false))).await;
    let mut deleted: Vec<CampaignId> = done.into_iter().flat_map(|done| done.campaigns).collect();
    deleted.sort();
    old.sort();
    assert_eq!(deleted, old, "each campaign by one of the calls");
    server.stop().await;
}

#[tokio::test]
async fn a_server_that_keeps_for_a_day_deletes_by_itself() {
    let clock = Arc::new(Shifted::default());
    let folder = tempfile::tempdir().unwrap();
    let store = crate::setup::open_store(&folder).await;
    let wish = Wish { clock: clock.clone(), ..Wish::default() };
    let server = TestServer::on(store.ports(), wish).await;
    let (old, run) = server.campaign().await;
    server.post(&format!("/runs/{run}/control")).json(&serde_json::json!({ "action": "cancel" })).send().await.unwrap();
    server.until_status(&run, RunStatus::Cancelled).await;
    server.stop().await;

    // A server prunes at its start, and every hour after that.
    clock.0.store(2 * DAY_MS, Ordering::SeqCst);
    let keeps = Wish { clock: clock.clone(), retention: Some(std::time::Duration::from_hours(24)), ..Wish::default() };
    let server = TestServer::on(store.ports(), keeps).await;
    crate::setup::until("the deletion", || async { (!server.knows(&old.campaign).await).then_some(()) }).await;
    server.stop().await;
}
