//! Tests of artifacts in an object store: what fails, what races, what is collected, and what is moved.

use std::sync::Arc;

use futures::future::join_all;
use nightshift_engine::store::{ArtifactStore, ModelCallStore, RetentionStore, StoreError};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_store::{ArtifactOptions, Objects, SqlStore};

use crate::bench::Bench;
use crate::faulty_objects::FaultyObjects;
use crate::raw::Raw;

crate::bench::on_both!(
    a_large_piece_is_an_object_and_a_small_one_a_row,
    an_artifact_whose_object_cannot_be_written_is_not_stored,
    a_reply_that_the_object_store_does_not_take_stays_in_the_database,
    an_object_whose_writer_died_is_deleted_when_it_is_old,
    an_object_that_was_taken_for_an_abandoned_one_becomes_no_artifact,
    parts_that_do_not_add_up_to_the_hash_leave_no_object,
    an_upload_goes_on_through_another_server,
    an_upload_during_pruning_wins,
    objects_that_cannot_be_deleted_are_deleted_later,
    a_damaged_object_is_found_and_never_returned,
    a_lost_object_is_written_again_by_a_repeated_upload,
    a_lost_part_is_uploaded_again_from_the_beginning,
    a_reply_whose_object_is_lost_is_kept_again,
    an_upload_that_was_completed_in_between_is_not_taken_apart,
    a_place_without_its_objects_keeps_every_artifact,
    artifacts_of_the_database_are_moved_and_stay_readable,
    a_move_that_is_interrupted_goes_on,
    a_damaged_artifact_is_not_moved,
    a_database_with_objects_says_what_is_missing_without_their_place,
);

/// Every piece is an object.
fn outside(objects: &FaultyObjects) -> ArtifactOptions {
    let objects = Some(Objects::new(Arc::new(objects.clone()), "the tests' objects".to_owned()));
    ArtifactOptions { objects, max_piece_bytes: 0, ..ArtifactOptions::default() }
}

/// Every piece is a row, as in earlier releases.
fn inside() -> ArtifactOptions {
    ArtifactOptions { max_piece_bytes: usize::MAX, ..ArtifactOptions::default() }
}

async fn with_faults(bench: &mut Bench) -> FaultyObjects {
    let objects = FaultyObjects::new();
    bench.reopen_with(outside(&objects)).await;
    objects
}

fn bytes(seed: u8, count: usize) -> Vec<u8> {
    (0..count).map(|n| u8::try_from((n * 31 + n / 251 + usize::from(seed)) % 256).unwrap()).collect()
}

async fn put(bench: &Bench, bytes: &[u8]) -> Result<ArtifactHash, StoreError> {
    let hash = ArtifactHash::of(bytes);
    bench.store.put_artifact(&hash, bytes, bench.now()).await.map(|()| hash)
}

async fn count(bench: &Bench, sql: &str) -> usize {
    Raw::connect(&bench.place).await.column(&format!("SELECT CAST(COUNT(*) AS TEXT) FROM {sql}")).await[0]
        .parse()
        .unwrap()
}

/// Deletes all objects without an artifact, as after a long time.
async fn collect(bench: &Bench) -> u64 {
    bench.clock.forward(3_600_000);
    bench.store.collect_objects(bench.now(), 1_000).await.unwrap()
}

/// Waits for what another task does.
async fn until(is_true: impl AsyncFn() -> bool) {
    tokio::time::timeout(std::time::Duration::from_mins(1), async {
        while !is_true().await {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
}

async fn a_large_piece_is_an_object_and_a_small_one_a_row(bench: Bench) {
    let (small, large) = (bytes(1, 4_096), bytes(2, 4_097));
    put(&bench, &small).await.unwrap();
    put(&bench, &large).await.unwrap();
    assert_eq!(count(&bench, "artifact_chunk").await, 1);
    assert_eq!(count(&bench, "artifact_object WHERE state = 'stored'").await, 1);
    let folder = bench.place.objects().join(&ArtifactHash::of(&large).as_str()[..2]);
    let files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    assert_eq!(std::fs::read(&files[0]).unwrap(), large);
    for bytes in [small, large] {
        assert_eq!(bench.store.get_artifact(&ArtifactHash::of(&bytes)).await.unwrap(), bytes);
    }
    bench.assert_sound().await;
}

async fn an_artifact_whose_object_cannot_be_written_is_not_stored(mut bench: Bench) {
    let objects = with_faults(&mut bench).await;
    let whole = bytes(1, 1_000);
    objects.allow_writes(0);
    let error = put(&bench, &whole).await.unwrap_err();
    assert_eq!(error.code(), "store.unreachable");
    assert!(error.is_transient() && error.to_string().contains("the tests' objects"), "{error}");
    let hash = ArtifactHash::of(&whole);
    assert_eq!(bench.store.artifact_progress(&hash).await.unwrap(), None);
    // In the middle of an upload, what is stored stays.
    objects.allow_writes(1);
    bench.store.append_artifact(&hash, 1_000, 0, &whole[..400], bench.now()).await.unwrap();
    bench.store.append_artifact(&hash, 1_000, 400, &whole[400..], bench.now()).await.unwrap_err();
    assert_eq!(bench.store.artifact_progress(&hash).await.unwrap().unwrap().stored_bytes, 400);
    objects.allow_writes(9);
    assert!(bench.store.append_artifact(&hash, 1_000, 400, &whole[400..], bench.now()).await.unwrap().complete);
    assert_eq!(bench.store.get_artifact(&hash).await.unwrap(), whole);
    assert_eq!(collect(&bench).await, 2, "the rows of the objects that were not written");
    bench.assert_sound().await;
}

async fn a_reply_that_the_object_store_does_not_take_stays_in_the_database(mut bench: Bench) {
    let objects = with_faults(&mut bench).await;
    let run = bench.run().await;
    let (prompt, reply) = (bytes(1, 900), bytes(2, 900));
    let artifacts = || [&prompt, &reply].map(|bytes| (ArtifactHash::of(bytes), bytes.clone())).to_vec();
    objects.allow_writes(1);
    bench.store.record_model_call(crate::content::call(&run, 1, "h"), artifacts()).await.unwrap();
    assert!(bench.store.find_model_call(&run, "plan", 1, "h").await.unwrap().is_some());
    assert_eq!(bench.store.get_artifact(&ArtifactHash::of(&reply)).await.unwrap(), reply);
    objects.allow_writes(9);
    let written = objects.written();
    bench.store.record_model_call(crate::content::call(&run, 2, "h"), artifacts()).await.unwrap();
    assert_eq!(objects.written(), written, "what is stored is not written again");
    assert_eq!(move_all(&bench.store, &bench).await.unwrap(), 1, "the reply");
    assert_eq!(bench.store.get_artifact(&ArtifactHash::of(&reply)).await.unwrap(), reply);
    collect(&bench).await;
    assert_eq!(objects.names().await.len(), 2);
    bench.assert_sound().await;
}

async fn an_object_whose_writer_died_is_deleted_when_it_is_old(mut bench: Bench) {
    let objects = with_faults(&mut bench).await;
    let whole = bytes(1, 1_000);
    objects.hold_writes();
    let (store, at, sent) = (bench.store.clone(), bench.now(), whole.clone());
    let dying = tokio::spawn(async move { store.put_artifact(&ArtifactHash::of(&sent), &sent, at).await });
    until(async || objects.written() == 1).await;
    // Between the object and its row.
    dying.abort();
    assert!(dying.await.unwrap_err().is_cancelled());
    objects.release_writes();
    assert_eq!(bench.store.artifact_progress(&ArtifactHash::of(&whole)).await.unwrap(), None);
    assert_eq!(bench.store.collect_objects(bench.now(), 9).await.unwrap(), 0, "its writer may still be at work");
    assert_eq!(collect(&bench).await, 1);
    assert!(objects.names().await.is_empty());
    put(&bench, &whole).await.unwrap();
    bench.assert_sound().await;
}

async fn an_object_that_was_taken_for_an_abandoned_one_becomes_no_artifact(mut bench: Bench) {
    let objects = with_faults(&mut bench).await;
    let whole = bytes(1, 1_000);
    objects.hold_writes();
    let (store, at, sent) = (bench.store.clone(), bench.now(), whole.clone());
    let slow = tokio::spawn(async move { store.put_artifact(&ArtifactHash::of(&sent), &sent, at).await });
    until(async || objects.written() == 1).await;
    assert_eq!(collect(&bench).await, 1);
    objects.release_writes();
    assert_eq!(slow.await.unwrap().unwrap_err().code(), "artifact.upload_disturbed");
    assert_eq!(bench.store.artifact_progress(&ArtifactHash::of(&whole)).await.unwrap(), None);
    let hash = put(&bench, &whole).await.unwrap();
    assert_eq!(bench.store.get_artifact(&hash).await.unwrap(), whole);
    bench.assert_sound().await;
}

async fn parts_that_do_not_add_up_to_the_hash_leave_no_object(mut bench: Bench) {
    let objects = with_faults(&mut bench).await;
    let whole = bytes(1, 1_000);
    let hash = ArtifactHash::of(&whole);
    bench.store.append_artifact(&hash, 1_000, 0, &whole[..400], bench.now()).await.unwrap();
    let error = bench.store.append_artifact(&hash, 1_000, 400, &[0; 600], bench.now()).await.unwrap_err();
    assert_eq!(error.code(), "artifact.wrong_hash");
    assert_eq!(bench.store.artifact_progress(&hash).await.unwrap(), None);
    assert_eq!(collect(&bench).await, 2);
    assert!(objects.names().await.is_empty());
    bench.assert_sound().await;
}

async fn an_upload_goes_on_through_another_server(mut bench: Bench) {
    let objects = with_faults(&mut bench).await;
    let whole = bytes(1, 9_000);
    let hash = ArtifactHash::of(&whole);
    bench.store.append_artifact(&hash, 9_000, 0, &whole[..5_000], bench.now()).await.unwrap();
    // The same database and the same objects, opened again.
    bench.reopen_with(outside(&objects)).await;
    assert_eq!(bench.store.artifact_progress(&hash).await.unwrap().unwrap().stored_bytes, 5_000);
    assert!(bench.store.append_artifact(&hash, 9_000, 5_000, &whole[5_000..], bench.now()).await.unwrap().complete);
    assert_eq!(bench.store.read_artifact(&hash, 4_990, 20).await.unwrap(), &whole[4_990..5_010]);
    bench.assert_sound().await;
}

async fn an_upload_during_pruning_wins(mut bench: Bench) {
    let objects = with_faults(&mut bench).await;
    let whole = bytes(1, 1_000);
    let hash = put(&bench, &whole).await.unwrap();
    bench.clock.forward(1);
    objects.hold_deletions();
    let (store, before) = (bench.store.clone(), bench.now());
    let prune = tokio::spawn(async move { store.prune_artifacts(before, 9).await });
    // The row is gone, and the object is about to go.
    until(async || bench.store.artifact_progress(&hash).await.unwrap().is_none()).await;
    put(&bench, &whole).await.unwrap();
    objects.release_deletions();
    assert_eq!(prune.await.unwrap().unwrap().artifacts, 1);
    assert_eq!(bench.store.get_artifact(&hash).await.unwrap(), whole);
    assert_eq!(objects.names().await.len(), 1);
    bench.assert_sound().await;
}

async fn objects_that_cannot_be_deleted_are_deleted_later(mut bench: Bench) {
    let objects = with_faults(&mut bench).await;
    put(&bench, &bytes(1, 1_000)).await.unwrap();
    put(&bench, &bytes(2, 1_000)).await.unwrap();
    bench.clock.forward(1);
    objects.set_fails_to_delete(true);
    assert_eq!(bench.store.prune_artifacts(bench.now(), 9).await.unwrap().artifacts, 2);
    assert_eq!(bench.store.collect_objects(bench.now(), 9).await.unwrap_err().code(), "store.unreachable");
    assert_eq!(objects.names().await.len(), 2);
    objects.set_fails_to_delete(false);
    assert_eq!(bench.store.collect_objects(bench.now(), 1).await.unwrap(), 1);
    assert_eq!(bench.store.collect_objects(bench.now(), 9).await.unwrap(), 1);
    assert_eq!(bench.store.collect_objects(bench.now(), 9).await.unwrap(), 0);
    assert!(objects.names().await.is_empty());
    bench.assert_sound().await;
}

async fn a_damaged_object_is_found_and_never_returned(mut bench: Bench) {
    let objects = with_faults(&mut bench).await;
    let whole = bytes(1, 1_000);
    let hash = put(&bench, &whole).await.unwrap();
    let name = objects.names().await.remove(0);
    for damaged in [&whole[..999], &bytes(2, 1_000)] {
        objects.replace(&name, damaged).await;
        let error = bench.store.get_artifact(&hash).await.unwrap_err();
        assert_eq!(error.code(), "store.corrupt", "{error}");
        assert!(error.to_string().contains("the tests' objects"), "{error}");
    }
    objects.replace(&name, &whole[..999]).await;
    let found = bench.store.find_violations().await.unwrap();
    assert!(found.len() == 1 && found[0].contains("999"), "{found:?}");
    assert!(bench.store.examine_artifact_place().await.unwrap().unwrap().contains("artifacts.url"));
    objects.replace(&name, &whole).await;
    assert_eq!(bench.store.examine_artifact_place().await.unwrap(), None);
    bench.assert_sound().await;
}

async fn a_lost_object_is_written_again_by_a_repeated_upload(mut bench: Bench) {
    let objects = with_faults(&mut bench).await;
    let whole = bytes(1, 1_000);
    let hash = put(&bench, &whole).await.unwrap();
    assert!(bench.store.renew_artifact(&hash, bench.now()).await.unwrap().unwrap().complete);
    put(&bench, &whole).await.unwrap();
    assert_eq!(objects.written(), 1, "what is there is not written again");
    for is_shortened in [false, true] {
        for name in objects.names().await {
            objects.lose(&name).await;
            if is_shortened {
                objects.replace(&name, &whole[..999]).await;
            }
        }
        assert_eq!(bench.store.renew_artifact(&hash, bench.now()).await.unwrap(), None, "it has to be uploaded");
        put(&bench, &whole).await.unwrap();
        assert!(bench.store.renew_artifact(&hash, bench.now()).await.unwrap().unwrap().complete);
        assert_eq!(bench.store.get_artifact(&hash).await.unwrap(), whole);
        collect(&bench).await;
        assert_eq!(objects.names().await.len(), 1);
    }
    bench.assert_sound().await;
}

async fn a_lost_part_is_uploaded_again_from_the_beginning(mut bench: Bench) {
    let objects = with_faults(&mut bench).await;
    let whole = bytes(1, 9_000);
    let hash = ArtifactHash::of(&whole);
    let upload = async || {
        for (from, to) in [(0, 4_000), (4_000, 8_000), (8_000, 9_000)] {
            let offset = u64::try_from(from).unwrap();
            bench.store.append_artifact(&hash, 9_000, offset, &whole[from..to], bench.now()).await.unwrap();
        }
    };
    upload().await;
    objects.lose(&objects.names().await[1]).await;
    assert_eq!(bench.store.get_artifact(&hash).await.unwrap_err().code(), "store.corrupt");
    upload().await;
    assert_eq!(bench.store.get_artifact(&hash).await.unwrap(), whole);
    collect(&bench).await;
    assert_eq!(objects.names().await.len(), 3);
    bench.assert_sound().await;
}

async fn a_reply_whose_object_is_lost_is_kept_again(mut bench: Bench) {
    let objects = with_faults(&mut bench).await;
    let run = bench.run().await;
    let (prompt, reply) = (bytes(1, 900), bytes(2, 900));
    let artifacts = || [&prompt, &reply].map(|bytes| (ArtifactHash::of(bytes), bytes.clone())).to_vec();
    put(&bench, &bytes(3, 900)).await.unwrap();
    let other = objects.names().await;
    bench.store.record_model_call(crate::content::call(&run, 1, "h"), artifacts()).await.unwrap();
    for name in objects.names().await.into_iter().filter(|name| !other.contains(name)) {
        objects.lose(&name).await;
    }
    bench.store.record_model_call(crate::content::call(&run, 2, "h"), artifacts()).await.unwrap();
    assert_eq!(bench.store.get_artifact(&ArtifactHash::of(&prompt)).await.unwrap(), prompt);
    assert_eq!(bench.store.get_artifact(&ArtifactHash::of(&reply)).await.unwrap(), reply);
    bench.assert_sound().await;
}

async fn an_upload_that_was_completed_in_between_is_not_taken_apart(mut bench: Bench) {
    let objects = FaultyObjects::new();
    bench.reopen_with(ArtifactOptions { max_piece_bytes: 500, ..outside(&objects) }).await;
    let whole = bytes(1, 1_000);
    let hash = put(&bench, &whole).await.unwrap();
    objects.lose(&objects.names().await[0]).await;
    objects.hold_writes();
    let (store, at, sent) = (bench.store.clone(), bench.now(), whole.clone());
    let slow =
        tokio::spawn(async move { store.append_artifact(&ArtifactHash::of(&sent), 1_000, 0, &sent[..600], at).await });
    until(async || objects.written() == 2).await;
    // It found the object lost, and wrote its first part. Another upload, in rows, is complete before it goes on.
    for (offset, part) in [(0, &whole[..500]), (500, &whole[500..])] {
        bench.store.append_artifact(&hash, 1_000, offset, part, bench.now()).await.unwrap();
    }
    objects.release_writes();
    assert!(slow.await.unwrap().unwrap().complete);
    assert_eq!(bench.store.get_artifact(&hash).await.unwrap(), whole);
    collect(&bench).await;
    assert!(objects.names().await.is_empty());
    bench.assert_sound().await;
}

async fn a_place_without_its_objects_keeps_every_artifact(mut bench: Bench) {
    let mounted = with_faults(&mut bench).await;
    let wholes: Vec<Vec<u8>> = (1..4).map(|n| bytes(n, 1_000)).collect();
    for whole in &wholes {
        put(&bench, whole).await.unwrap();
    }
    // As below the mount point of a folder that is not mounted.
    let below = FaultyObjects::new();
    bench.reopen_with(outside(&below)).await;
    for is_used in [false, true] {
        if is_used {
            put(&bench, &bytes(9, 1_000)).await.unwrap();
        }
        for whole in &wholes {
            let hash = ArtifactHash::of(whole);
            for error in [
                put(&bench, whole).await.unwrap_err(),
                bench.store.append_artifact(&hash, 1_000, 0, whole, bench.now()).await.unwrap_err(),
                bench.store.renew_artifact(&hash, bench.now()).await.unwrap_err(),
            ] {
                assert_eq!(error.code(), "store.unusable", "{error}");
            }
        }
        assert_eq!(below.written(), usize::from(is_used), "nothing is written in their place");
    }
    bench.reopen_with(outside(&mounted)).await;
    collect(&bench).await;
    for whole in &wholes {
        assert_eq!(bench.store.get_artifact(&ArtifactHash::of(whole)).await.unwrap(), *whole);
    }
    // What was written below the mount point is lost, and can be uploaded again.
    put(&bench, &bytes(9, 1_000)).await.unwrap();
    assert_eq!(mounted.names().await.len(), 4);
    bench.assert_sound().await;
}

/// Moves everything in several steps. Returns the number of moved artifacts.
async fn move_all(store: &SqlStore, bench: &Bench) -> Result<u64, StoreError> {
    let (mut after, mut moved) = (None, 0);
    loop {
        let some = store.move_artifacts(after, bench.now()).await?;
        moved += some.artifacts;
        match some.last {
            None => return Ok(moved),
            last => after = last,
        }
    }
}

async fn artifacts_of_the_database_are_moved_and_stay_readable(mut bench: Bench) {
    bench.reopen_with(inside()).await;
    let mut wholes: Vec<Vec<u8>> = (0..40).map(|n| bytes(n, 5_000 + usize::from(n))).collect();
    // More than one piece when it is moved.
    wholes.push(bytes(77, 17 << 20));
    for whole in &wholes {
        put(&bench, whole).await.unwrap();
    }
    let begun = bytes(99, 700_000);
    let hash = ArtifactHash::of(&begun);
    bench.store.append_artifact(&hash, 700_000, 0, &begun[..300_000], bench.now()).await.unwrap();
    let objects = FaultyObjects::new();
    bench.reopen_with(outside(&objects)).await;
    bench.assert_sound().await;
    // Two servers move at the same time, and others read.
    let read = async || {
        for whole in &wholes {
            assert!(bench.store.get_artifact(&ArtifactHash::of(whole)).await.unwrap() == *whole);
        }
    };
    let (one, two, ()) = tokio::join!(move_all(&bench.store, &bench), move_all(&bench.store, &bench), read());
    assert_eq!(one.unwrap() + two.unwrap(), 41);
    read().await;
    assert_eq!(count(&bench, "artifact_chunk JOIN artifact ON artifact_id = artifact.id WHERE complete = 1").await, 0);
    assert_eq!(move_all(&bench.store, &bench).await.unwrap(), 0);
    // An upload that began in the database goes on, and its chunks are moved after its end.
    bench.store.append_artifact(&hash, 700_000, 300_000, &begun[300_000..], bench.now()).await.unwrap();
    assert!(bench.store.get_artifact(&hash).await.unwrap() == begun);
    assert_eq!(move_all(&bench.store, &bench).await.unwrap(), 1);
    assert!(bench.store.get_artifact(&hash).await.unwrap() == begun);
    assert_eq!(count(&bench, "artifact_chunk").await, 0);
    collect(&bench).await;
    assert_eq!(objects.names().await.len(), 40 + 5 + 1);
    bench.assert_sound().await;
}

async fn a_move_that_is_interrupted_goes_on(mut bench: Bench) {
    bench.reopen_with(inside()).await;
    let wholes: Vec<Vec<u8>> = (0..6).map(|n| bytes(n, 5_000)).collect();
    join_all(wholes.iter().map(|whole| put(&bench, whole))).await;
    let objects = FaultyObjects::new();
    bench.reopen_with(outside(&objects)).await;
    objects.allow_writes(3);
    assert_eq!(move_all(&bench.store, &bench).await.unwrap_err().code(), "store.unreachable");
    objects.allow_writes(99);
    bench.reopen_with(outside(&objects)).await;
    for whole in &wholes {
        assert_eq!(bench.store.get_artifact(&ArtifactHash::of(whole)).await.unwrap(), *whole);
    }
    assert_eq!(move_all(&bench.store, &bench).await.unwrap(), 3);
    collect(&bench).await;
    assert_eq!(objects.names().await.len(), 6);
    bench.assert_sound().await;
}

async fn a_damaged_artifact_is_not_moved(mut bench: Bench) {
    bench.reopen_with(inside()).await;
    let whole = bytes(1, 5_000);
    let sound = put(&bench, &whole).await.unwrap();
    let damaged = put(&bench, &bytes(2, 5_000)).await.unwrap();
    let objects = FaultyObjects::new();
    bench.reopen_with(outside(&objects)).await;
    let sql = "UPDATE artifact_chunk SET bytes = \
               (SELECT bytes FROM artifact_chunk ORDER BY artifact_id, offset_bytes LIMIT 1)";
    Raw::connect(&bench.place).await.execute(sql).await;
    assert_eq!(move_all(&bench.store, &bench).await.unwrap(), 1);
    assert_eq!(count(&bench, "artifact_chunk").await, 1, "what was stored of it stays");
    assert_eq!(bench.store.get_artifact(&damaged).await.unwrap_err().code(), "store.corrupt");
    assert_eq!(bench.store.get_artifact(&sound).await.unwrap(), whole);
    collect(&bench).await;
    assert_eq!(objects.names().await.len(), 1);
}

async fn a_database_with_objects_says_what_is_missing_without_their_place(mut bench: Bench) {
    with_faults(&mut bench).await;
    let hash = put(&bench, &bytes(1, 1_000)).await.unwrap();
    // Another object store, or none.
    bench.reopen_with(ArtifactOptions::default()).await;
    let error = bench.store.get_artifact(&hash).await.unwrap_err();
    assert!(["store.corrupt", "store.unusable"].contains(&error.code()), "{error}");
    assert!(error.to_string().contains("artifacts.url"), "{error}");
}
