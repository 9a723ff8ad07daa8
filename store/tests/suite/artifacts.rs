//! Tests of artifacts in parts: uploads, and reads of ranges.

use futures::future::join_all;
use nightshift_engine::store::{ArtifactProgress, ArtifactStore, StoreError};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_store::DEFAULT_MAX_ARTIFACT_BYTES;

use crate::bench::Bench;

crate::bench::on_both!(
    an_artifact_that_comes_in_parts_is_there_with_the_last_one,
    a_part_at_the_wrong_offset_is_refused_and_says_the_right_one,
    parts_that_do_not_add_up_to_the_hash_are_forgotten,
    all_parts_say_the_same_size,
    a_part_of_an_artifact_is_read_across_chunks,
    a_whole_artifact_replaces_what_was_on_its_way,
    an_artifact_that_is_too_large_is_refused_with_its_first_part,
    racing_parts_at_one_offset_are_stored_once,
);

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|n| u8::try_from((n * 31 + n / 251) % 256).unwrap()).collect()
}

fn size(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap()
}

async fn append(bench: &Bench, whole: &[u8], from: usize, to: usize) -> Result<ArtifactProgress, StoreError> {
    let hash = ArtifactHash::of(whole);
    let part = &whole[from..to];
    bench.store.append_artifact(&hash, size(whole), u64::try_from(from).unwrap(), part, bench.now()).await
}

async fn an_artifact_that_comes_in_parts_is_there_with_the_last_one(bench: Bench) {
    let whole = bytes(700_000);
    let hash = ArtifactHash::of(&whole);
    assert_eq!(bench.store.artifact_progress(&hash).await.unwrap(), None);
    let half = ArtifactProgress { size_bytes: 700_000, stored_bytes: 300_001, complete: false };
    assert_eq!(append(&bench, &whole, 0, 300_001).await.unwrap(), half);
    assert_eq!(bench.store.artifact_progress(&hash).await.unwrap(), Some(half));
    assert_eq!(bench.store.get_artifact(&hash).await.unwrap_err().code(), "artifact.not_found");
    assert_eq!(bench.store.read_artifact(&hash, 0, 9).await.unwrap_err().code(), "artifact.not_found");
    bench.assert_sound().await;
    let complete = ArtifactProgress { size_bytes: 700_000, stored_bytes: 700_000, complete: true };
    assert_eq!(append(&bench, &whole, 300_001, 700_000).await.unwrap(), complete);
    assert_eq!(append(&bench, &whole, 0, 10).await.unwrap(), complete, "it is there: nothing more is wanted");
    assert_eq!(bench.store.get_artifact(&hash).await.unwrap(), whole);
    let empty = append(&bench, b"", 0, 0).await.unwrap();
    assert!(empty.complete);
    bench.assert_sound().await;
}

async fn a_part_at_the_wrong_offset_is_refused_and_says_the_right_one(bench: Bench) {
    let whole = bytes(1_000);
    append(&bench, &whole, 0, 400).await.unwrap();
    for (from, to) in [(0, 400), (399, 1_000), (401, 1_000)] {
        let error = append(&bench, &whole, from, to).await.unwrap_err();
        assert_eq!(error.code(), "artifact.wrong_offset");
        assert!(error.to_string().contains("400"), "{error}");
    }
    assert!(append(&bench, &whole, 400, 1_000).await.unwrap().complete);
    bench.assert_sound().await;
}

async fn parts_that_do_not_add_up_to_the_hash_are_forgotten(bench: Bench) {
    let whole = bytes(1_000);
    let hash = ArtifactHash::of(&whole);
    append(&bench, &whole, 0, 400).await.unwrap();
    let error = bench.store.append_artifact(&hash, 1_000, 400, &[0; 600], bench.now()).await.unwrap_err();
    assert_eq!(error.code(), "artifact.wrong_hash");
    assert_eq!(bench.store.artifact_progress(&hash).await.unwrap(), None);
    bench.assert_sound().await;
    assert!(append(&bench, &whole, 0, 1_000).await.unwrap().complete, "from the beginning it can still come");
    bench.assert_sound().await;
}

async fn all_parts_say_the_same_size(bench: Bench) {
    let whole = bytes(1_000);
    let hash = ArtifactHash::of(&whole);
    append(&bench, &whole, 0, 400).await.unwrap();
    let error = bench.store.append_artifact(&hash, 999, 400, &whole[400..999], bench.now()).await.unwrap_err();
    assert_eq!(error.code(), "artifact.wrong_size");
    let error = bench.store.append_artifact(&hash, 1_000, 400, &[0; 601], bench.now()).await.unwrap_err();
    assert_eq!(error.code(), "artifact.wrong_size");
    assert!(append(&bench, &whole, 400, 1_000).await.unwrap().complete);
}

async fn a_part_of_an_artifact_is_read_across_chunks(bench: Bench) {
    let whole = bytes(1_000_000);
    let hash = ArtifactHash::of(&whole);
    // Parts of odd sizes create chunks of odd sizes.
    let ends = [0, 1, 262_144, 262_145, 700_003, 1_000_000];
    for pair in ends.windows(2) {
        append(&bench, &whole, pair[0], pair[1]).await.unwrap();
    }
    for (from, length) in [(0, 1), (0, 2), (1, 262_144), (262_143, 3), (262_144, 600_000), (699_999, 9), (999_999, 5)] {
        let end = whole.len().min(from + length);
        let read = bench.store.read_artifact(&hash, u64::try_from(from).unwrap(), u64::try_from(length).unwrap());
        assert!(read.await.unwrap() == whole[from..end], "{length} bytes from {from}");
    }
    for (offset, length) in [(1_000_000, 5), (u64::MAX, u64::MAX), (5, 0)] {
        assert!(bench.store.read_artifact(&hash, offset, length).await.unwrap().is_empty(), "{offset} {length}");
    }
    assert!(bench.store.read_artifact(&hash, 0, u64::MAX).await.unwrap() == whole);
}

async fn a_whole_artifact_replaces_what_was_on_its_way(bench: Bench) {
    let whole = bytes(1_000);
    let hash = ArtifactHash::of(&whole);
    append(&bench, &whole, 0, 400).await.unwrap();
    bench.store.put_artifact(&hash, &whole, bench.now()).await.unwrap();
    assert_eq!(bench.store.get_artifact(&hash).await.unwrap(), whole);
    assert!(append(&bench, &whole, 400, 1_000).await.unwrap().complete);
    assert_eq!(bench.store.get_artifact(&hash).await.unwrap(), whole);
    bench.assert_sound().await;
}

async fn an_artifact_that_is_too_large_is_refused_with_its_first_part(bench: Bench) {
    let hash = ArtifactHash::of(b"whatever");
    let too_large = DEFAULT_MAX_ARTIFACT_BYTES + 1;
    let error = bench.store.append_artifact(&hash, too_large, 0, b"what", bench.now()).await.unwrap_err();
    assert_eq!(error.code(), "artifact.too_large");
    assert_eq!(bench.store.artifact_progress(&hash).await.unwrap(), None);
}

async fn racing_parts_at_one_offset_are_stored_once(bench: Bench) {
    let whole = bytes(1_000);
    let answers = join_all((0..4).map(|_| append(&bench, &whole, 0, 500))).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1, "{answers:?}");
    assert!(append(&bench, &whole, 500, 1_000).await.unwrap().complete);
    assert_eq!(bench.store.get_artifact(&ArtifactHash::of(&whole)).await.unwrap(), whole);
    bench.assert_sound().await;
}
