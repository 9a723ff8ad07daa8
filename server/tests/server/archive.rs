//! Tests of the export and import of a campaign.

use std::io::{Read, Write};

use nightshift_engine::store::{ModelCallRecord, ModelCallStore as _};
use nightshift_protocol::api::{CampaignCreated, CampaignDetail, EventsPage, TryOutcome};
use nightshift_protocol::archive::{ARCHIVE_FORMAT, ArchiveLine};
use nightshift_protocol::artifact::MAX_ARTIFACT_BYTES;
use nightshift_protocol::id::{CampaignId, RunId};
use nightshift_protocol::run::RunStatus;
use nightshift_protocol::time::TimestampMs;
use reqwest::Response;
use serde_json::{Value, json};

use crate::setup::{TestServer, Wish, ok, open_store, refusal, refused};
use crate::toy::prepared_output;

impl TestServer {
    async fn finished_campaign(&self) -> (CampaignId, RunId) {
        let (created, run) = self.campaign().await;
        let worker = self.register().await;
        let step = self.claim_one(&worker).await;
        self.report(&worker, &step, TryOutcome::Completed { output: Box::new(prepared_output()) }).await;
        self.until_status(&run, RunStatus::Completed).await;
        (created.campaign, run)
    }

    async fn archive(&self, campaign: &CampaignId) -> Vec<u8> {
        let answer = self.get(&format!("/campaigns/{campaign}/archive")).send().await.unwrap();
        assert!(answer.status().is_success());
        assert_eq!(answer.headers()["content-type"], "application/zstd");
        answer.bytes().await.unwrap().to_vec()
    }

    async fn import(&self, archive: Vec<u8>) -> Response {
        self.post("/import").header("content-type", "application/zstd").body(archive).send().await.unwrap()
    }
}

fn text(archive: &[u8]) -> String {
    let mut text = String::new();
    zstd::stream::read::Decoder::new(archive).unwrap().read_to_string(&mut text).unwrap();
    text
}

fn packed(text: &str) -> Vec<u8> {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

/// Its bytes are in several lines of the file.
#[tokio::test]
async fn an_artifact_that_is_larger_than_a_line_travels_in_parts() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_store(&folder).await;
    let server = TestServer::on(store.ports(), Wish::default()).await;
    let (campaign, run) = server.finished_campaign().await;
    let bytes = vec![7; MAX_ARTIFACT_BYTES + 5];
    let hash = server.put_artifact(&bytes).await;
    let call = ModelCallRecord {
        run,
        step_key: "plan".to_owned(),
        turn: 1,
        request_hash: "h".to_owned(),
        summary: json!({ "reply": hash }),
        released: Vec::new(),
        used: Vec::new(),
        at: TimestampMs(1),
    };
    store.record_model_call(call, Vec::new()).await.unwrap();
    let archive = server.archive(&campaign).await;
    assert!(text(&archive).lines().filter(|line| line.contains("\"part\"")).count() == 2);

    let (other, _other_folder) = TestServer::start(Wish::default()).await;
    for existed in [false, true] {
        let created: CampaignCreated = ok(other.import(archive.clone()).await).await;
        assert_eq!(created.existed, existed);
    }
    let answer = other.get(&format!("/artifacts/{hash}")).send().await.unwrap();
    assert!(answer.bytes().await.unwrap() == bytes);
    server.stop().await;
    other.stop().await;
}

#[tokio::test]
async fn a_campaign_is_rebuilt_elsewhere_with_its_log_and_artifacts() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let (campaign, run) = server.finished_campaign().await;
    let archive = server.archive(&campaign).await;
    let first: Value = serde_json::from_str(text(&archive).lines().next().unwrap()).unwrap();
    assert_eq!((first["format"].as_str(), first["campaign"].as_str()), (Some(ARCHIVE_FORMAT), Some(campaign.as_str())));
    let before: CampaignDetail = server.read(&format!("/campaigns/{campaign}")).await;
    let log: EventsPage = server.read(&format!("/runs/{run}/events")).await;

    let (other, _other_folder) = TestServer::start(Wish::default()).await;
    let created: CampaignCreated = ok(other.import(archive.clone()).await).await;
    assert_eq!((created.campaign.clone(), created.runs, created.existed), (campaign.clone(), vec![run.clone()], false));
    let after: CampaignDetail = other.read(&format!("/campaigns/{campaign}")).await;
    assert_eq!((after.spec, after.summary.runs), (before.spec.clone(), before.summary.runs));
    let rebuilt: EventsPage = other.read(&format!("/runs/{run}/events")).await;
    assert_eq!(rebuilt, log);
    let bundle = &before.spec.tasks[0].bundle;
    assert!(other.get(&format!("/artifacts/{bundle}")).send().await.unwrap().status().is_success());

    // Importing the same file again changes nothing, and exporting the rebuilt campaign gives the same file.
    let again: CampaignCreated = ok(other.import(archive.clone()).await).await;
    assert!(again.existed);
    let lines = |archive: &[u8]| text(archive).lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(lines(&other.archive(&campaign).await), lines(&archive));
    server.stop().await;
    other.stop().await;
}

#[tokio::test]
async fn a_damaged_archive_is_refused_with_the_reason_and_leaves_nothing_behind() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let (campaign, _) = server.finished_campaign().await;
    let archive = server.archive(&campaign).await;
    let text = text(&archive);
    server.stop().await;

    let (other, _other_folder) = TestServer::start(Wish::default()).await;
    let lines: Vec<&str> = text.lines().collect();
    let but_last = format!("{}\n", lines[..lines.len() - 1].join("\n"));
    let row = lines.iter().position(|line| matches!(serde_json::from_str(line), Ok(ArchiveLine::Row { .. }))).unwrap();
    let mut fewer = lines.clone();
    fewer.remove(row);
    let cases: [(&str, Vec<u8>, &str); 9] = [
        ("nothing", Vec::new(), "archive.unreadable"),
        ("noise", b"this is no archive at all, only some text".to_vec(), "archive.unreadable"),
        (
            "the export for reading",
            packed("{\"format\":\"nightshift-archive\",\"version\":1}\n"),
            "archive.wrong_version",
        ),
        ("another format", packed("{\"format\":\"tar\",\"version\":2}\n"), "archive.unreadable"),
        ("half of the file", archive[..archive.len() / 2].to_vec(), "archive.cut"),
        ("all but the last byte", archive[..archive.len() - 1].to_vec(), "archive.cut"),
        ("without its last line", packed(&but_last), "archive.cut"),
        ("without a row", packed(&format!("{}\n", fewer.join("\n"))), "archive.differs"),
        ("a later version", packed(&text.replacen("\"version\":2", "\"version\":3", 1)), "archive.wrong_version"),
    ];
    for (what, bytes, code) in cases {
        assert_eq!(refused(other.import(bytes).await).await, refusal(422, code), "{what}");
    }
    let campaigns: Value = other.read("/campaigns").await;
    assert_eq!(campaigns["items"].as_array().unwrap().len(), 0);
    // The valid file is still accepted.
    let created: CampaignCreated = ok(other.import(archive).await).await;
    assert_eq!(created.campaign, campaign);
    other.stop().await;
}

#[tokio::test]
async fn a_small_file_that_unfolds_without_end_is_refused() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 19).unwrap();
    let zeros = vec![b'0'; 1 << 20];
    for _ in 0..200 {
        encoder.write_all(&zeros).unwrap();
    }
    let bomb = encoder.finish().unwrap();
    assert!(bomb.len() < 1 << 20);
    assert_eq!(refused(server.import(bomb).await).await, refusal(413, "archive.too_large"));
    server.stop().await;
}

#[tokio::test]
async fn an_unfinished_run_comes_in_paused() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let (created, run) = server.campaign().await;
    let archive = server.archive(&created.campaign).await;
    let (other, _other_folder) = TestServer::start(Wish::default()).await;
    ok::<CampaignCreated>(other.import(archive).await).await;
    assert_eq!(other.run(&run).await.summary.status, RunStatus::Paused);
    let unknown = "/campaigns/cmp_00000000000000000000000000000000/archive";
    assert_eq!(refused(server.get(unknown).send().await.unwrap()).await, refusal(404, "campaign.not_found"));
    server.stop().await;
    other.stop().await;
}
