//! Tests of tables: formats, filters, and permissions.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use nightshift_protocol::api::{AttemptPage, Page, RunSummary, StepView, TableFormat, TableName, WorkerView};
use nightshift_protocol::signal::{MAX_HINT_CHARS, Signal};
use nightshift_protocol::time::TimestampMs;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::Field;
use reqwest::{Response, StatusCode};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::attempts::{indexed_run, start};
use crate::setup::{TestServer, Wish, ok, open_store, refusal, refused};

/// Returns the lines of a CSV file by column names.
async fn csv(server: &TestServer, path: &str) -> Vec<BTreeMap<String, String>> {
    let answer = server.get(path).send().await.unwrap();
    let (status, bytes) = (answer.status(), answer.bytes().await.unwrap());
    assert_eq!(status, StatusCode::OK, "{path}: {}", String::from_utf8_lossy(&bytes));
    let mut reader = csv::Reader::from_reader(bytes.as_ref());
    reader.deserialize().map(|line| line.unwrap()).collect()
}

fn header<'a>(answer: &'a Response, name: &str) -> &'a str {
    answer.headers()[name].to_str().unwrap()
}

#[tokio::test]
async fn attempts_are_the_same_in_every_format() {
    let (server, _store, _folder) = start().await;
    let run = indexed_run(&server).await;
    let page: AttemptPage = server.read(&format!("/attempts?run={run}&order=asc")).await;
    let path = format!("/tables/attempts?run={run}&order=asc&format=");

    let lines = csv(&server, &format!("{path}csv")).await;
    let json: Vec<Value> = server.read(&format!("{path}json")).await;
    let file: Bytes = server.get(&format!("{path}parquet")).send().await.unwrap().bytes().await.unwrap();
    let rows: Vec<BTreeMap<String, Field>> = SerializedFileReader::new(file)
        .unwrap()
        .get_row_iter(None)
        .unwrap()
        .map(|row| row.unwrap().get_column_iter().map(|(name, field)| (name.clone(), field.clone())).collect())
        .collect();
    assert_eq!((lines.len(), json.len(), rows.len()), (3, 3, 3));
    for (place, attempt) in page.items.iter().enumerate() {
        let (line, object, row) = (&lines[place], &json[place], &rows[place]);
        assert!(line.keys().eq(row.keys()) && line.keys().all(|name| object.get(name).is_some()), "{line:?} {row:?}");
        assert_eq!(line["attempt"], attempt.number.to_string());
        assert_eq!(object["attempt"], attempt.number);
        assert_eq!(row["attempt"], Field::Long(i64::from(attempt.number)));
        let speedup = attempt.speedup.map(|speedup| speedup.estimate);
        assert_eq!(line["speedup"], speedup.map(|speedup| speedup.to_string()).unwrap_or_default());
        assert_eq!(object["speedup"].as_f64(), speedup);
        assert_eq!(row["speedup"], speedup.map_or(Field::Null, Field::Double));
        let over_fastest = attempt.speedup_over_fastest.map(|speedup| speedup.estimate);
        assert_eq!(over_fastest.is_some(), speedup.is_some(), "the fastest baseline is known");
        assert_eq!(line["speedup_over_fastest"], over_fastest.map(|speedup| speedup.to_string()).unwrap_or_default());
        assert_eq!(object["speedup_over_fastest"].as_f64(), over_fastest);
        assert_eq!(row["speedup_over_fastest"], over_fastest.map_or(Field::Null, Field::Double));
        assert_eq!(row["created_at"], Field::TimestampMillis(attempt.created_at.0));
        assert_eq!(object["created_at"], line["created_at"].as_str());
        assert!(line["created_at"].ends_with('Z') && line["created_at"].contains('T'), "{line:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_table_says_what_it_is_and_how_it_is_called() {
    let (server, _store, _folder) = start().await;
    for format in TableFormat::ALL {
        let path = format!("/tables/campaigns?format={}", format.as_str());
        let answer = server.get(&path).send().await.unwrap();
        assert_eq!(header(&answer, "content-type"), format.media_type());
        let name = format!("attachment; filename=\"campaigns.{}\"", format.as_str());
        assert_eq!(header(&answer, "content-disposition"), name);
        assert_eq!(header(&answer, "x-content-type-options"), "nosniff");
    }
    let lines = csv(&server, "/tables/campaigns").await;
    assert!(lines.is_empty(), "CSV unless another format is asked for: {lines:?}");
    server.stop().await;
}

#[tokio::test]
async fn every_filter_of_the_list_counts_for_its_table() {
    let (server, _store, _folder) = start().await;
    let run = indexed_run(&server).await;
    indexed_run(&server).await;
    let page: AttemptPage = server.read(&format!("/attempts?run={run}")).await;
    let campaign = &page.items[0].campaign;
    let filters = [
        format!("campaign={campaign}"),
        format!("run={run}"),
        "task=softmax".to_owned(),
        "task=other".to_owned(),
        "model=scripted".to_owned(),
        "strategy=beam".to_owned(),
        "device=a%20processor".to_owned(),
        "outcome=compile_failed,incorrect".to_owned(),
        "stage=draft".to_owned(),
        "correct=true".to_owned(),
        "confirmed=true".to_owned(),
        "min_speedup=1".to_owned(),
        "max_speedup=1".to_owned(),
        "min_speedup_over_fastest=1".to_owned(),
        "max_speedup_over_fastest=1".to_owned(),
        "min_reward=1".to_owned(),
        "max_reward=1".to_owned(),
        "q=stitch%20processor".to_owned(),
        "sort=speedup&order=asc".to_owned(),
        "sort=speedup_over_fastest".to_owned(),
    ];
    let mut sizes = BTreeMap::new();
    for filter in filters {
        let page: AttemptPage = server.read(&format!("/attempts?{filter}")).await;
        let listed: Vec<_> = page.items.iter().map(|row| (row.run.to_string(), row.number.to_string())).collect();
        let lines = csv(&server, &format!("/tables/attempts?{filter}")).await;
        let tabled: Vec<_> = lines.iter().map(|line| (line["run"].clone(), line["attempt"].clone())).collect();
        assert_eq!(tabled, listed, "{filter}");
        sizes.insert(filter, tabled.len());
    }
    assert!(sizes.values().any(|size| *size == 0) && sizes.values().any(|size| *size == 6), "{sizes:?}");
    assert_eq!(csv(&server, &format!("/tables/runs?campaign={campaign}")).await.len(), 1);
    assert_eq!(csv(&server, "/tables/runs").await.len(), 2);
    assert!(csv(&server, "/tables/runs?status=failed").await.is_empty());
    assert_eq!(csv(&server, "/tables/campaigns?q=NIGHT&status=unfinished").await.len(), 2);
    assert!(csv(&server, "/tables/campaigns?status=failed").await.is_empty());
    let task = csv(&server, &format!("/tables/tasks?run={run}")).await.remove(0);
    assert_eq!(task["attempts"], "3");
    assert_ne!(task["best_speedup_over_fastest"], "");
    let model = csv(&server, "/tables/models").await.remove(0);
    assert_eq!((model["fast_1_over_fastest"].as_str(), model["fast_3_over_fastest"].as_str()), ("1", "0"));
    assert_eq!(model["median_best_speedup_over_fastest"], task["best_speedup_over_fastest"]);
    assert!(csv(&server, "/tables/models?model=other").await.is_empty());
    server.stop().await;
}

#[tokio::test]
async fn a_list_of_several_pages_is_one_table() {
    // No loop works on these runs.
    let (server, _folder) = TestServer::start(Wish { drives: false, ..Wish::default() }).await;
    let (created, run) = server.campaign().await;
    // More than one page of the store.
    for _ in 0..2 {
        let names: Vec<String> = (0..300).map(|number| format!("task{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let request = server.request(&names).await;
        ok::<Value>(server.create(&request, None).await).await;
    }
    let lines = csv(&server, "/tables/runs").await;
    assert_eq!(lines.len(), 601);
    let ids: std::collections::BTreeSet<&String> = lines.iter().map(|line| &line["run"]).collect();
    assert_eq!(ids.len(), 601, "none is there twice");
    let last = lines.last().unwrap();
    assert_eq!((&last["run"], &last["campaign"]), (&run.to_string(), &created.campaign.to_string()));
    let file = server.get("/tables/runs?format=parquet").send().await.unwrap().bytes().await.unwrap();
    let metadata = SerializedFileReader::new(file).unwrap().metadata().clone();
    assert_eq!((metadata.file_metadata().num_rows(), metadata.num_row_groups()), (601, 2));
    let json: Vec<Value> = server.read("/tables/runs?format=json").await;
    assert_eq!(json.len(), 601);
    server.stop().await;
}

#[tokio::test]
async fn readers_that_stand_still_hold_up_no_other_table() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_store(&folder).await.ports();
    let server = TestServer::on(store.clone(), Wish { drives: false, ..Wish::default() }).await;
    let (_, run) = server.campaign().await;
    // A log that is larger than the buffers of a connection.
    let hint = Signal::Hint { text: "𝄞".repeat(MAX_HINT_CHARS) };
    let hints = (0..800).map(|_| store.run_control.signal_run(&run, hint.clone(), None, None, TimestampMs(0)));
    for given in futures::future::join_all(hints).await {
        given.unwrap();
    }
    let mut readers = Vec::new();
    for _ in 0..6 {
        let mut reader = TcpStream::connect(server.addr()).await.unwrap();
        let call = format!("GET /api/v1/tables/events?run={run} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        reader.write_all(call.as_bytes()).await.unwrap();
        // The server ends a connection that stands still for 30 seconds.
        let begun = tokio::time::timeout(Duration::from_secs(20), reader.read_u8()).await;
        assert_eq!(begun.unwrap().unwrap(), b'H');
        readers.push(reader);
    }
    let answer = server.get("/tables/runs").timeout(Duration::from_secs(20)).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    assert!(!answer.bytes().await.unwrap().is_empty());
    drop(readers);
    server.stop().await;
}

#[tokio::test]
async fn steps_log_and_workers_are_tables_too() {
    let (server, _store, _folder) = start().await;
    let run = indexed_run(&server).await;
    server.register().await;
    let steps: Page<StepView> = server.read(&format!("/runs/{run}/steps")).await;
    let lines = csv(&server, &format!("/tables/steps?run={run}")).await;
    assert!(!lines.is_empty());
    assert_eq!(lines[0]["key"], steps.items[0].key);
    let log = csv(&server, &format!("/tables/events?run={run}")).await;
    assert_eq!((log[0]["seq"].as_str(), log[0]["kind"].as_str()), ("1", "run_created"));
    assert!(serde_json::from_str::<Value>(&log[0]["body_json"]).unwrap().is_object());
    let workers: Page<WorkerView> = server.read("/workers").await;
    let lines = csv(&server, "/tables/workers").await;
    assert_eq!(lines.len(), workers.items.len());
    assert!(lines.iter().any(|line| line["name"] == "box"), "{lines:?}");
    assert_eq!(csv(&server, "/tables/workers?show=alive").await.len(), lines.len());
    assert!(csv(&server, "/tables/workers?show=silent").await.is_empty());
    server.stop().await;
}

#[tokio::test]
async fn a_table_that_does_not_exist_is_refused_before_anything_is_sent() {
    let (server, _store, _folder) = start().await;
    let bad = refusal(400, "request.invalid_query");
    for path in [
        "attempts?format=xlsx",
        "attempts?limit=10",
        "attempts?facets=true",
        "attempts?before=x",
        "attempts?colour=red",
        "campaigns?colour=red",
        "campaigns?limit=5",
        "campaigns?status=all",
        "runs?status=asleep",
        "runs?campaign=x",
        "workers?name=x",
        "workers?show=x",
        "steps",
        "events?run=x",
    ] {
        assert_eq!(refused(server.get(&format!("/tables/{path}")).send().await.unwrap()).await, bad, "{path}");
    }
    let unknown = format!("run_{}", "0".repeat(32));
    let answer = server.get(&format!("/tables/steps?run={unknown}")).send().await.unwrap();
    assert_eq!(refused(answer).await, refusal(404, "run.not_found"));
    let answer = server.get("/tables/tokens").send().await.unwrap();
    assert_eq!(refused(answer).await, refusal(404, "request.no_such_call"));
    server.stop().await;
}

#[tokio::test]
async fn tables_are_read_with_the_role_of_a_viewer() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_store(&folder).await;
    let server = TestServer::on(store.ports(), Wish { reads_need_token: true, ..Wish::default() }).await;
    for table in TableName::ALL {
        let path = format!("/api/v1/tables/{}", table.as_str());
        let answer = server.bare(reqwest::Method::GET, &path).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED, "{path}");
    }
    let runs: Page<RunSummary> = server.read("/runs").await;
    assert!(runs.items.is_empty() && csv(&server, "/tables/runs").await.is_empty());
    server.stop().await;
}
