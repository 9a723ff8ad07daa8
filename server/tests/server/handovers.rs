//! Tests of a hand-over to another server and back, over HTTP.

use std::io::{Read, Write};

use nightshift_engine::store::{ArchiveStore as _, ArtifactStore as _, CampaignArchive, RunControlStore as _};
use nightshift_protocol::api::{
    CampaignDetail, CampaignPage, Control, ControlAction, HandoverDetail, HandoverFinished, HandoverState, TryOutcome,
};
use nightshift_protocol::archive::{ARCHIVE_FORMAT, ARCHIVE_VERSION, ArchiveDigest, ArchiveLine, Manifest};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::handover::{Direction, HandoverHeader, HandoverReader, UnpackedHandover};
use nightshift_protocol::id::CampaignId;
use nightshift_protocol::run::{RunStatus, RunTransition};
use nightshift_protocol::time::TimestampMs;
use reqwest::{Response, StatusCode};
use serde_json::{Value, json};

use crate::setup::{TestServer, WORKER, Wish, ok, open_store, refusal, refused};
use crate::toy::prepared_output;

impl TestServer {
    async fn hand_over(&self, campaign: &CampaignId, wait_s: u32) -> Response {
        self.post(&format!("/campaigns/{campaign}/handover")).json(&json!({ "wait_s": wait_s })).send().await.unwrap()
    }

    async fn handover_file(&self, campaign: &CampaignId, wish: Value) -> Response {
        self.post(&format!("/campaigns/{campaign}/handover/file")).json(&wish).send().await.unwrap()
    }

    async fn unpacked(&self, campaign: &CampaignId, wish: Value) -> UnpackedHandover {
        let answer = self.handover_file(campaign, wish).await;
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.headers()["content-type"], "application/zstd");
        let mut text = String::new();
        zstd::stream::read::Decoder::new(&answer.bytes().await.unwrap()[..])
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        let mut reader = HandoverReader::default();
        for line in text.lines() {
            reader.accept(line.as_bytes()).unwrap();
        }
        reader.finish().unwrap()
    }

    async fn finish(&self, file: Vec<u8>) -> Response {
        self.post("/handovers/finish").body(file).send().await.unwrap()
    }
}

/// Returns a result with these rows, sealed with this key.
fn result(header: &HandoverHeader, rows: &[Value], key: &str) -> Vec<u8> {
    result_with(header, rows, &[], key)
}

fn result_with(header: &HandoverHeader, rows: &[Value], artifacts: &[&[u8]], key: &str) -> Vec<u8> {
    let header = HandoverHeader { direction: Direction::Back, key: None, runs: Vec::new(), ..header.clone() };
    let mut digest = ArchiveDigest::default();
    for row in rows {
        digest.row(row).unwrap();
    }
    for bytes in artifacts {
        digest.artifact(&ArtifactHash::of(bytes));
    }
    let digest = digest.text();
    let manifest = Manifest {
        format: ARCHIVE_FORMAT.to_owned(),
        version: ARCHIVE_VERSION,
        campaign: header.campaign.clone(),
        exported_at: TimestampMs(1),
        rows: u64::try_from(rows.len()).unwrap(),
        artifacts: u64::try_from(artifacts.len()).unwrap(),
        digest: digest.clone(),
    };
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    encoder.write_all(header.first_lines(manifest, key).unwrap().as_bytes()).unwrap();
    for row in rows {
        encoder.write_all(ArchiveLine::Row { row: row.clone() }.to_text().unwrap().as_bytes()).unwrap();
    }
    for bytes in artifacts {
        let line = ArchiveLine::artifact(ArtifactHash::of(bytes), bytes).to_text().unwrap();
        encoder.write_all(line.as_bytes()).unwrap();
    }
    encoder.write_all(ArchiveLine::End { digest }.to_text().unwrap().as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_campaign_is_carried_on_elsewhere_and_its_results_are_taken_in_once() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let (created, run) = server.campaign().await;
    let campaign = created.campaign;
    let worker = server.register().await;
    let held = server.claim_one(&worker).await;
    let out: HandoverDetail = ok(server.hand_over(&campaign, 0).await).await;
    assert_eq!((out.state, &out.campaign), (HandoverState::Out, &campaign));
    assert_eq!(refused(server.hand_over(&campaign, 0).await).await, refusal(409, "campaign.handed_over"));
    let control = Control { action: ControlAction::Resume };
    for path in [format!("/runs/{run}/control"), format!("/campaigns/{campaign}/control")] {
        let answer = server.post(&path).json(&control).send().await.unwrap();
        assert_eq!(refused(answer).await, refusal(409, "campaign.handed_over"), "{path}");
    }
    let detail: CampaignDetail = server.read(&format!("/campaigns/{campaign}")).await;
    assert_eq!(detail.summary.handover.as_ref(), Some(&out));
    let page: CampaignPage = server.read("/campaigns").await;
    assert_eq!(page.items[0].handover.as_ref(), Some(&out));

    let file = server.unpacked(&campaign, json!({})).await;
    let key = file.header.key.clone().unwrap();
    file.authenticate(&key).unwrap();
    assert_eq!((file.header.direction, &file.header.runs), (Direction::Out, &vec![run.clone()]));
    assert_eq!(
        server.unpacked(&campaign, json!({})).await.archive.rows,
        file.archive.rows,
        "the content is always the same"
    );
    // An artifact that this server does not have must be included, because it would not be returned otherwise.
    let unknown = ArtifactHash::of(b"made elsewhere");
    let without: Vec<&ArtifactHash> = file.archive.artifacts.iter().chain([&unknown]).collect();
    let lean = server.unpacked(&campaign, json!({ "without": without })).await;
    assert!(!file.archive.artifacts.is_empty());
    assert_eq!((lean.header.left_out, lean.archive.artifacts), (file.archive.artifacts.clone(), Vec::new()));

    // The other server.
    let far_folder = tempfile::tempdir().unwrap();
    let store = open_store(&far_folder).await;
    for hash in &file.archive.artifacts {
        let bytes = server.get(&format!("/artifacts/{hash}")).send().await.unwrap().bytes().await.unwrap();
        store.put_artifact(hash, &bytes, TimestampMs(1)).await.unwrap();
    }
    let archive = CampaignArchive { rows: file.archive.rows.clone(), artifacts: file.archive.artifacts.clone() };
    store.import_campaign(archive, TimestampMs(1)).await.unwrap();
    let far = TestServer::on(store.ports(), Wish { agent_slots: 0, ..Wish::default() }).await;
    store.control_run(&run, RunTransition::Resume, None, TimestampMs(2)).await.unwrap();
    let far_worker = far.register().await;
    let step = far.claim_one(&far_worker).await;
    assert!(step.epoch > held.epoch);
    far.report(&far_worker, &step, TryOutcome::Completed { output: Box::new(prepared_output()) }).await;
    far.until_event(&run, "step_completed").await;
    far.stop().await;
    let rows = store.export_campaign(&campaign).await.unwrap().rows;

    // The worker with the step reports late, and changes nothing.
    let before = server.unpacked(&campaign, json!({})).await.archive.rows;
    let late = server.try_report(&worker, &held, TryOutcome::Completed { output: Box::new(prepared_output()) }).await;
    assert!(late.status().is_success());
    assert_eq!(server.unpacked(&campaign, json!({})).await.archive.rows, before, "events and steps as before");
    let returned = result(&file.header, &rows, &key);
    let finished: HandoverFinished = ok(server.finish(returned.clone()).await).await;
    assert_eq!((finished.repeated, finished.handover.state), (false, HandoverState::Finished));
    assert!(ok::<HandoverFinished>(server.finish(returned).await).await.repeated);
    server.until_status(&run, RunStatus::Completed).await;
    let detail: CampaignDetail = server.read(&format!("/campaigns/{campaign}")).await;
    assert_eq!(detail.summary.handover, None);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_do_not_belong_are_refused_with_the_reason_and_change_nothing() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let (created, run) = server.campaign().await;
    let campaign = created.campaign;
    assert_eq!(refused(server.handover_file(&campaign, json!({})).await).await, refusal(409, "handover.none"));
    let cancel = format!("/campaigns/{campaign}/handover/cancel");
    assert_eq!(refused(server.post(&cancel).send().await.unwrap()).await, refusal(409, "handover.none"));
    assert_eq!(refused(server.hand_over(&campaign, 9_999).await).await, refusal(400, "request.invalid"));
    ok::<HandoverDetail>(server.hand_over(&campaign, 5).await).await;
    let file = server.unpacked(&campaign, json!({})).await;
    let (header, key) = (file.header.clone(), file.header.key.clone().unwrap());
    let rows = &file.archive.rows;
    let good = result(&header, rows, &key);
    let wrong_key = "00".repeat(32);
    let newer = HandoverHeader { state_format: 99, ..header.clone() };
    let other = HandoverHeader { handover: format!("hnd_{:032x}", 7).parse().unwrap(), ..header.clone() };
    let whole = server.handover_file(&campaign, json!({})).await.bytes().await.unwrap().to_vec();
    for (file, status, code) in [
        (good[..good.len() / 2].to_vec(), 422, "archive.cut"),
        (b"a letter".to_vec(), 422, "archive.unreadable"),
        (whole, 422, "handover.wrong_direction"),
        (result(&newer, rows, &key), 422, "handover.newer_release"),
        (result(&header, rows, &wrong_key), 422, "handover.tampered"),
        (result(&other, rows, &key), 409, "handover.unknown"),
    ] {
        assert_eq!(refused(server.finish(file).await).await, refusal(status, code));
    }
    // Nothing of a file that was made without the key is stored.
    let forged = result_with(&header, rows, &[b"from elsewhere"], &wrong_key);
    assert_eq!(refused(server.finish(forged).await).await, refusal(422, "handover.tampered"));
    let stored = server.get(&format!("/artifacts/{}", ArtifactHash::of(b"from elsewhere"))).send().await.unwrap();
    assert_eq!(stored.status(), StatusCode::NOT_FOUND);
    assert_eq!(server.run(&run).await.summary.status, RunStatus::Paused);
    let worker = server.call(reqwest::Method::POST, "/handovers/finish", WORKER).body(good.clone()).send().await;
    assert_eq!(worker.unwrap().status(), StatusCode::FORBIDDEN);
    let cancelled: HandoverDetail = ok(server.post(&cancel).send().await.unwrap()).await;
    assert_eq!(cancelled.state, HandoverState::Cancelled);
    assert_eq!(refused(server.finish(good).await).await, refusal(409, "handover.cancelled"));
    assert_eq!(server.run(&run).await.summary.status, RunStatus::Running);
    server.stop().await;
}
