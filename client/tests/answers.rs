//! Tests of the client's handling of valid and invalid answers, over a real connection.
#![expect(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::routing::{get, post, put};
use nightshift_client::{Client, ClientError};
use nightshift_protocol::api::{ControlAction, CreateCampaign, IDEMPOTENCY_HEADER, NextRequest};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::campaign::CampaignSpec;
use nightshift_protocol::run::RunStatus;

async fn serve(router: Router) -> Client {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    Client::new(&address, Some("token".to_owned().into())).unwrap()
}

#[tokio::test]
async fn an_error_of_the_api_keeps_its_code_message_and_details() {
    let body = r#"{"error":{"code":"run.not_found","message":"no such run","details":{"a":1}}}"#;
    let client = serve(Router::new().fallback(move || async move { (StatusCode::NOT_FOUND, body) })).await;
    let error = client.run(&"run_00000000000070008000000000000001".parse().unwrap()).await.unwrap_err();
    assert_eq!((error.code(), error.status(), error.is_transient()), ("run.not_found", Some(404), false));
    assert_eq!(error.to_api_error().details["a"], 1);
    assert_eq!(error.to_string(), "no such run");
}

#[tokio::test]
async fn an_answer_that_is_no_api_is_quoted_and_not_trusted() {
    let client = serve(Router::new().fallback(|| async { "<html>a proxy</html>" })).await;
    let error = client.health().await.unwrap_err();
    assert_eq!(error.code(), "server.not_understood");
    assert!(!error.is_transient());
    let busy = serve(Router::new().fallback(|| async { (StatusCode::BAD_GATEWAY, "a proxy is unhappy") })).await;
    let error = busy.health().await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("a proxy is unhappy"), "{error}");
}

#[tokio::test]
async fn an_address_without_a_server_is_unreachable_and_may_recover() {
    // Nothing listens at the address, and no other test gets it while the socket is there.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = format!("http://{}", socket.local_addr().unwrap());
    let error = Client::new(&address, None).unwrap().health().await.unwrap_err();
    assert_eq!(error.code(), "server.unreachable");
    assert!(error.is_transient() && error.to_string().contains(&address), "{error}");
}

#[tokio::test]
async fn a_long_poll_that_is_answered_early_is_repeated_after_a_pause() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    // A server that holds as many polls as it can: two early answers, then an error.
    let next = post(move || async move {
        match counted.fetch_add(1, Ordering::SeqCst) {
            0 | 1 => (StatusCode::NO_CONTENT, ""),
            _ => (StatusCode::NOT_FOUND, r#"{"error":{"code":"run.not_found","message":"no such run"}}"#),
        }
    });
    let events = get(|| async { r#"{"events":[],"status":"running"}"# });
    let router = Router::new().route("/api/v1/requests/next", next).route("/api/v1/runs/{id}/events", events);
    let client = serve(router).await;
    let wish: NextRequest = serde_json::from_str("{}").unwrap();
    let began = Instant::now();
    let error = client.wait_for_request(&wish, Duration::from_secs(20)).await.unwrap_err();
    assert_eq!((error.code(), calls.load(Ordering::SeqCst)), ("run.not_found", 3));
    assert!(began.elapsed() >= Duration::from_secs(2), "it was repeated at once");
    let began = Instant::now();
    let run = "run_00000000000070008000000000000001".parse().unwrap();
    assert!(client.run_events(&run, 0, 20_000).await.unwrap().events.is_empty());
    assert!(began.elapsed() >= Duration::from_secs(1), "it can be repeated at once");
}

#[tokio::test]
async fn an_artifact_that_arrives_damaged_is_an_error() {
    let hash = ArtifactHash::of(b"whole");
    let client = serve(Router::new().route("/api/v1/artifacts/{hash}", get(|| async { "who" }))).await;
    let error = client.get_artifact(&hash).await.unwrap_err();
    assert!(matches!(error, ClientError::Damaged { .. }) && error.is_transient());
}

#[tokio::test]
async fn an_artifact_is_stored_under_its_hash() {
    let store = |Path(hash): Path<String>, body: Bytes| async move {
        if ArtifactHash::of(&body).as_str() == hash { StatusCode::NO_CONTENT } else { StatusCode::BAD_REQUEST }
    };
    let client = serve(Router::new().route("/api/v1/artifacts/{hash}", put(store))).await;
    assert_eq!(client.put_artifact(b"bytes").await.unwrap(), ArtifactHash::of(b"bytes"));
}

#[tokio::test]
async fn token_idempotency_key_and_query_go_with_the_call() {
    let created = |headers: HeaderMap| async move {
        assert_eq!(headers["authorization"], "Bearer token");
        assert_eq!(headers[IDEMPOTENCY_HEADER], "key");
        r#"{"campaign":"cmp_00000000000070008000000000000001","runs":[],"existed":true}"#
    };
    let listed = |uri: Uri| async move {
        assert_eq!(uri.query(), Some("status=failed&limit=7"));
        r#"{"items":[],"next":"cursor"}"#
    };
    let router = Router::new().route("/api/v1/campaigns", post(created)).route("/api/v1/runs", get(listed));
    let client = serve(router).await;
    let spec: CampaignSpec = serde_json::from_value(serde_json::json!({
        "schema": 1, "name": "n", "model": {"provider": "scripted"}, "strategy": "stitch", "tasks": [],
    }))
    .unwrap();
    assert!(client.create_campaign(&CreateCampaign { spec }, "key").await.unwrap().existed);
    let page = client.runs(None, Some(RunStatus::Failed), Some(7), None).await.unwrap();
    assert_eq!(page.next.as_deref(), Some("cursor"));
}

#[tokio::test]
async fn a_redirect_does_not_carry_the_token_away() {
    let moved = || async { (StatusCode::FOUND, [("location", "http://127.0.0.1:1/elsewhere")], "") };
    let client = serve(Router::new().fallback(moved)).await;
    let id = "run_00000000000070008000000000000001".parse().unwrap();
    let error = client.control_run(&id, ControlAction::Pause).await.unwrap_err();
    assert_eq!((error.code(), error.status()), ("server.not_understood", Some(302)));
}
