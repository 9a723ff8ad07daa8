//! Tests of artifacts.

use nightshift_engine::store::ArtifactStore as _;
use nightshift_protocol::api::{MAX_UPLOAD_PART_BYTES, UPLOAD_OFFSET_HEADER, UPLOAD_SIZE_HEADER, UploadProgress};
use nightshift_protocol::artifact::{ArtifactHash, MAX_ARTIFACT_BYTES};
use nightshift_protocol::time::TimestampMs;
use nightshift_store::{ARTIFACT_FOLDER, ArtifactOptions, DEFAULT_MAX_ARTIFACT_BYTES, OpenOptions, SqlStore};
use reqwest::header::{CONTENT_RANGE, RANGE};
use reqwest::{Method, Response, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::setup::{PATIENCE, TestServer, WORKER, Wish, ok, open_store, refusal, refused, until};

#[tokio::test]
async fn an_artifact_comes_back_as_it_was_put_and_runs_in_no_browser() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let bytes = b"<script>alert(1)</script>\0\xff".to_vec();
    let hash = server.put_artifact(&bytes).await;
    assert_eq!(server.put_artifact(&bytes).await, hash);
    let answer = server.get(&format!("/artifacts/{hash}")).send().await.unwrap();
    let headers = answer.headers().clone();
    assert_eq!(headers["content-type"], "application/octet-stream");
    assert_eq!(headers["content-disposition"], "attachment");
    assert!(headers["content-security-policy"].to_str().unwrap().contains("sandbox"));
    assert!(headers["cache-control"].to_str().unwrap().contains("immutable"));
    assert_eq!(answer.bytes().await.unwrap().as_ref(), bytes);
    server.stop().await;
}

#[tokio::test]
async fn bytes_under_a_wrong_hash_are_refused() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let other = ArtifactHash::of(b"other bytes");
    let put = |name: String| server.call(Method::PUT, &format!("/artifacts/{name}"), WORKER).body("bytes").send();
    assert_eq!(refused(put(other.to_string()).await.unwrap()).await, refusal(400, "artifact.hash_mismatch"));
    assert_eq!(refused(put("abc".to_owned()).await.unwrap()).await, refusal(400, "artifact.invalid_hash"));
    for name in [other.as_str(), "abc"] {
        let answer = server.get(&format!("/artifacts/{name}")).send().await.unwrap();
        assert_eq!(refused(answer).await, refusal(404, "artifact.not_found"));
    }
    server.stop().await;
}

#[tokio::test]
async fn an_artifact_above_the_limit_is_refused() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let hash = ArtifactHash::of(b"the beginning of something large");
    let part = server.call(Method::PATCH, &format!("/artifacts/{hash}"), WORKER).body("the beginning");
    let part = part.header(UPLOAD_SIZE_HEADER, DEFAULT_MAX_ARTIFACT_BYTES + 1).header(UPLOAD_OFFSET_HEADER, 0);
    assert_eq!(refused(part.send().await.unwrap()).await, refusal(413, "artifact.too_large"));
    let nothing = server.get(&format!("/artifacts/{hash}")).send().await.unwrap();
    assert_eq!(nothing.status(), StatusCode::NOT_FOUND);
    server.stop().await;
}

/// It has more bytes than a program holds in memory at once.
#[tokio::test]
async fn a_large_artifact_passes_through_in_parts() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let bytes = noise(MAX_ARTIFACT_BYTES + 3 * 1024 * 1024);
    let hash = server.put_artifact(&bytes).await;
    let answer = server.get(&format!("/artifacts/{hash}")).send().await.unwrap();
    assert!(answer.bytes().await.unwrap() == bytes);
    server.stop().await;
}

#[tokio::test]
async fn artifacts_of_an_earlier_release_are_moved_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let artifacts = ArtifactOptions { max_piece_bytes: usize::MAX, ..ArtifactOptions::default() };
    let inside = OpenOptions { artifacts, ..OpenOptions::default() };
    let store = SqlStore::open_sqlite(folder.path(), inside).await.unwrap();
    let bytes = noise(100_000);
    let hash = ArtifactHash::of(&bytes);
    store.put_artifact(&hash, &bytes, TimestampMs(1)).await.unwrap();
    store.close().await.unwrap();
    drop(store);
    let server = TestServer::on(open_store(&folder).await.ports(), Wish::default()).await;
    let object_folder = folder.path().join(ARTIFACT_FOLDER).join(&hash.as_str()[..2]);
    until("the move", async || {
        let mut entries = std::fs::read_dir(&object_folder).ok()?;
        let path = entries.next()?.ok()?.path();
        (std::fs::read(path).ok()? == bytes).then_some(())
    })
    .await;
    let answer = server.get(&format!("/artifacts/{hash}")).send().await.unwrap();
    assert_eq!(answer.bytes().await.unwrap().as_ref(), bytes);
    server.stop().await;
}

/// Returns incompressible bytes.
fn noise(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().finalize_xof().fill(&mut bytes);
    bytes
}

async fn patch(server: &TestServer, hash: &ArtifactHash, size: usize, offset: usize, part: &[u8]) -> Response {
    server
        .call(Method::PATCH, &format!("/artifacts/{hash}"), WORKER)
        .header(UPLOAD_SIZE_HEADER, size)
        .header(UPLOAD_OFFSET_HEADER, offset)
        .body(part.to_vec())
        .send()
        .await
        .unwrap()
}

#[tokio::test]
async fn an_upload_goes_on_where_it_was_broken_off() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let bytes = noise(10_000);
    let hash = ArtifactHash::of(&bytes);
    let head = || server.call(Method::HEAD, &format!("/artifacts/{hash}"), WORKER).send();
    assert_eq!(head().await.unwrap().status(), StatusCode::NOT_FOUND);
    let begun: UploadProgress = ok(patch(&server, &hash, bytes.len(), 0, &bytes[..4_000]).await).await;
    assert_eq!(begun, UploadProgress { size_bytes: 10_000, stored_bytes: 4_000, complete: false });
    let there = head().await.unwrap();
    assert_eq!(there.status(), StatusCode::NO_CONTENT);
    assert_eq!(there.headers()[UPLOAD_OFFSET_HEADER], "4000");
    assert_eq!(server.get(&format!("/artifacts/{hash}")).send().await.unwrap().status(), StatusCode::NOT_FOUND);

    let wrong = patch(&server, &hash, bytes.len(), 6_000, &bytes[6_000..]).await;
    assert_eq!(wrong.headers()[UPLOAD_OFFSET_HEADER], "4000");
    assert_eq!(refused(wrong).await, refusal(409, "artifact.wrong_offset"));
    let done: UploadProgress = ok(patch(&server, &hash, bytes.len(), 4_000, &bytes[4_000..]).await).await;
    assert!(done.complete);
    let whole = server.get(&format!("/artifacts/{hash}")).send().await.unwrap();
    assert_eq!(whole.bytes().await.unwrap().as_ref(), bytes);
    let there = head().await.unwrap();
    assert_eq!(there.status(), StatusCode::OK);
    assert_eq!(there.headers()["content-length"], "10000");
    server.stop().await;
}

#[tokio::test]
async fn parts_that_do_not_have_the_hash_are_forgotten() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let bytes = noise(1_000);
    let hash = ArtifactHash::of(&bytes);
    let _: UploadProgress = ok(patch(&server, &hash, 1_000, 0, &[0; 500]).await).await;
    let wrong = patch(&server, &hash, 1_000, 500, &bytes[500..]).await;
    assert_eq!(refused(wrong).await, refusal(400, "artifact.hash_mismatch"));
    assert_eq!(server.put_artifact(&bytes).await, hash);
    server.stop().await;
}

#[tokio::test]
async fn a_large_artifact_comes_in_parts_and_a_part_of_it_when_that_is_asked_for() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let bytes = noise(2 * MAX_UPLOAD_PART_BYTES + 5);
    let hash = ArtifactHash::of(&bytes);
    // A part is stored already: the upload of the whole blob continues after it.
    let _: UploadProgress = ok(patch(&server, &hash, bytes.len(), 0, &bytes[..1_000]).await).await;
    assert_eq!(server.put_artifact(&bytes).await, hash);
    let path = format!("/artifacts/{hash}");
    assert_eq!(server.get(&path).send().await.unwrap().bytes().await.unwrap().as_ref(), bytes);
    let get = |range: String| server.get(&path).header(RANGE, range).send();
    let middle = get(format!("bytes=3-{}", MAX_UPLOAD_PART_BYTES + 8)).await.unwrap();
    assert_eq!(middle.status(), StatusCode::PARTIAL_CONTENT);
    let shown = format!("bytes 3-{}/{}", MAX_UPLOAD_PART_BYTES + 8, bytes.len());
    assert_eq!(middle.headers()[CONTENT_RANGE], shown.as_str());
    assert_eq!(middle.bytes().await.unwrap().as_ref(), &bytes[3..=MAX_UPLOAD_PART_BYTES + 8]);
    let beyond = get(format!("bytes={}-", bytes.len())).await.unwrap();
    assert_eq!(beyond.status(), StatusCode::RANGE_NOT_SATISFIABLE);
    server.stop().await;
}

#[tokio::test]
async fn a_part_that_is_too_large_is_refused_before_it_is_read() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let hash = ArtifactHash::of(b"large");
    let mut stream = TcpStream::connect(server.addr()).await.unwrap();
    let head = format!(
        "PATCH /api/v1/artifacts/{hash} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {WORKER}\r\n\
         {UPLOAD_SIZE_HEADER}: 60000000\r\n{UPLOAD_OFFSET_HEADER}: 0\r\ncontent-length: 60000000\r\n\r\n"
    );
    // The body never arrives.
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    tokio::time::timeout(PATIENCE, stream.read_exact(&mut answer)).await.unwrap().unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
    server.stop().await;
}
