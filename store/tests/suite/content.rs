//! Tests of artifacts, model calls, workers.

use nightshift_engine::store::{ArtifactStore, ModelCallRecord, ModelCallStore, WatchStore, WorkerRecord, WorkerStore};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::id::RunId;
use nightshift_store::ArtifactOptions;
use serde_json::json;

use crate::bench::Bench;

crate::bench::on_both!(
    an_artifact_is_stored_once_and_read_back,
    the_empty_artifact_is_one,
    bytes_that_are_not_those_of_the_hash_are_refused,
    an_artifact_beyond_the_limit_is_refused,
    an_answered_call_is_found_by_its_whole_address_only,
    the_first_answer_to_a_call_stays,
    a_call_of_an_unknown_run_leaves_nothing_behind,
    workers_are_listed_most_recently_seen_first_and_registered_again_under_their_id,
);

pub(crate) fn call(run: &RunId, turn: u32, hash: &str) -> ModelCallRecord {
    ModelCallRecord {
        run: run.clone(),
        step_key: "plan".to_owned(),
        turn,
        request_hash: hash.to_owned(),
        summary: json!({ "tokens": 7 }),
        released: Vec::new(),
        used: Vec::new(),
        at: nightshift_protocol::time::TimestampMs(1),
    }
}

async fn an_artifact_is_stored_once_and_read_back(bench: Bench) {
    let bytes = b"\0\x01 a blob may hold anything".to_vec();
    let hash = ArtifactHash::of(&bytes);
    bench.store.put_artifact(&hash, &bytes, bench.now()).await.unwrap();
    bench.store.put_artifact(&hash, &bytes, bench.now()).await.unwrap();
    assert_eq!(bench.store.get_artifact(&hash).await.unwrap(), bytes);
    let error = bench.store.get_artifact(&ArtifactHash::of(b"another")).await.unwrap_err();
    assert_eq!(error.code(), "artifact.not_found");
}

async fn the_empty_artifact_is_one(bench: Bench) {
    bench.store.put_artifact(&ArtifactHash::of(b""), b"", bench.now()).await.unwrap();
    assert_eq!(bench.store.get_artifact(&ArtifactHash::of(b"")).await.unwrap(), Vec::<u8>::new());
}

async fn bytes_that_are_not_those_of_the_hash_are_refused(bench: Bench) {
    let hash = ArtifactHash::of(b"one");
    assert!(bench.store.put_artifact(&hash, b"two", bench.now()).await.is_err());
    assert_eq!(bench.store.get_artifact(&hash).await.unwrap_err().code(), "artifact.not_found");
}

async fn an_artifact_beyond_the_limit_is_refused(mut bench: Bench) {
    bench.reopen_with(ArtifactOptions { max_artifact_bytes: 999, ..ArtifactOptions::default() }).await;
    for (size, is_refused) in [(999, false), (1_000, true)] {
        let bytes = vec![0; size];
        let stored = bench.store.put_artifact(&ArtifactHash::of(&bytes), &bytes, bench.now()).await;
        assert_eq!(stored.is_err(), is_refused, "{stored:?}");
        assert!(stored.is_ok() || stored.unwrap_err().to_string().contains("999"));
    }
}

async fn an_answered_call_is_found_by_its_whole_address_only(bench: Bench) {
    let run = bench.run().await;
    let reply = b"reply".to_vec();
    let artifacts = vec![(ArtifactHash::of(&reply), reply.clone())];
    bench.store.record_model_call(call(&run, 1, "h"), artifacts).await.unwrap();
    assert_eq!(bench.store.find_model_call(&run, "plan", 1, "h").await.unwrap(), Some(call(&run, 1, "h")));
    assert_eq!(bench.store.get_artifact(&ArtifactHash::of(&reply)).await.unwrap(), reply);
    for (key, turn, hash) in [("plan", 2, "h"), ("replan", 1, "h"), ("plan", 1, "other")] {
        assert_eq!(bench.store.find_model_call(&run, key, turn, hash).await.unwrap(), None);
    }
}

async fn the_first_answer_to_a_call_stays(bench: Bench) {
    let run = bench.run().await;
    bench.store.record_model_call(call(&run, 1, "h"), Vec::new()).await.unwrap();
    let second = ModelCallRecord { summary: json!({ "tokens": 8 }), ..call(&run, 1, "h") };
    bench.store.record_model_call(second, Vec::new()).await.unwrap();
    assert_eq!(bench.store.find_model_call(&run, "plan", 1, "h").await.unwrap(), Some(call(&run, 1, "h")));
}

async fn a_call_of_an_unknown_run_leaves_nothing_behind(bench: Bench) {
    let unknown = RunId::from_uuid(bench.uuid());
    let artifacts = vec![(ArtifactHash::of(b"x"), b"x".to_vec())];
    let error = bench.store.record_model_call(call(&unknown, 1, "h"), artifacts).await.unwrap_err();
    assert_eq!(error.code(), "run.not_found");
    assert_eq!(bench.store.get_artifact(&ArtifactHash::of(b"x")).await.unwrap_err().code(), "artifact.not_found");
}

async fn workers_are_listed_most_recently_seen_first_and_registered_again_under_their_id(bench: Bench) {
    let first = bench.worker().await;
    bench.clock.forward(1);
    let second = bench.worker().await;
    bench.clock.forward(1);
    let again = WorkerRecord {
        id: first.clone(),
        name: "renamed".to_owned(),
        embedded: false,
        offers: json!({}),
        version: "0.2.0".to_owned(),
        last_seen_at: bench.now(),
        leases: 0,
        server: None,
        draining: false,
    };
    bench.store.register_worker(again.clone()).await.unwrap();
    let workers = bench.store.list_workers(9).await.unwrap();
    assert_eq!(workers.iter().map(|worker| &worker.id).collect::<Vec<_>>(), [&first, &second]);
    assert_eq!(workers[0], again);
    assert_eq!(bench.store.list_workers(1).await.unwrap().len(), 1);
    let marks = bench.store.worker_marks(9).await.unwrap();
    assert_eq!(marks.iter().map(|mark| &mark.worker).collect::<Vec<_>>(), [&first, &second]);
    assert_eq!((marks[0].name.as_str(), marks[0].last_seen_at, marks[0].draining), ("renamed", bench.now(), false));
    assert_eq!(bench.store.worker_marks(1).await.unwrap().len(), 1);
}
