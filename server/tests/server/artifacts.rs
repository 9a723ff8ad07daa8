//! Blobs under their hashes.

use nightshift_protocol::artifact::{ArtifactHash, MAX_ARTIFACT_BYTES};
use reqwest::{Method, StatusCode};

use crate::setup::{TestServer, WORKER, Wish, refusal, refused};

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
    let bytes = vec![0_u8; MAX_ARTIFACT_BYTES + 1];
    let hash = ArtifactHash::of(&bytes);
    let answer = server.call(Method::PUT, &format!("/artifacts/{hash}"), WORKER).body(bytes).send().await.unwrap();
    assert_eq!(refused(answer).await, refusal(413, "artifact.too_large"));
    let nothing = server.get(&format!("/artifacts/{hash}")).send().await.unwrap();
    assert_eq!(nothing.status(), StatusCode::NOT_FOUND);
    server.stop().await;
}
