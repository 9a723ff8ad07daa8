//! Tests of several replicas: which one is used when one dies or is not ready.
#![expect(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use nightshift_client::Client;
use nightshift_protocol::access::{CreateToken, Role};
use nightshift_protocol::api::{Claim, FreeSlots, IDEMPOTENCY_HEADER};
use tokio::net::{TcpListener, TcpSocket};

const NO_STEPS: &str = r#"{"steps":[]}"#;
const NOT_READY: &str = r#"{"error":{"code":"server.draining","message":"it ends","details":null}}"#;
const CREATED: &str = r#"{"token":{"id":"tok_00000000000070008000000000000001","name":"ci","role":"viewer","created_at":1,
    "expires_at":null,"revoked_at":null,"last_used_at":null},"secret":"s"}"#;
const WORKER: &str = "wrk_00000000000070008000000000000001";

/// Starts a replica that gives every call the same answer, and counts the calls.
async fn replica(status: StatusCode, body: &'static str) -> (String, Arc<AtomicU32>) {
    let calls = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&calls);
    let router = Router::new().fallback(move || async move {
        counter.fetch_add(1, Ordering::SeqCst);
        (status, body)
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (address, calls)
}

/// Returns an address without a listener. No other test gets it while the socket is there.
fn unused_address() -> (TcpSocket, String) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = format!("http://{}", socket.local_addr().unwrap());
    (socket, address)
}

/// Starts a replica that accepts calls and dies before it answers.
async fn dies_before_it_answers() -> (String, Arc<AtomicU32>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let calls = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&calls);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            stream.readable().await.unwrap();
            let _ = stream.try_read(&mut [0; 4096]);
            counter.fetch_add(1, Ordering::SeqCst);
        }
    });
    (address, calls)
}

fn client(addresses: &[&str]) -> Client {
    Client::new(&addresses.join(", "), Some("token".to_owned().into())).unwrap()
}

async fn claim(client: &Client) -> Result<(), nightshift_client::ClientError> {
    let claim = Claim { free: FreeSlots { cpu: 1, devices: Vec::new() }, wait_ms: 1 };
    client.claim(&WORKER.parse().unwrap(), &claim).await.map(drop)
}

#[tokio::test]
async fn an_unreachable_replica_is_replaced_by_the_next_one() {
    let (living, calls) = replica(StatusCode::OK, NO_STEPS).await;
    let (_socket, unused) = unused_address();
    let client = client(&[&unused, &living]);
    for _ in 0..3 {
        claim(&client).await.unwrap();
    }
    assert_eq!((calls.load(Ordering::SeqCst), client.address()), (3, living));
}

#[tokio::test]
async fn a_replica_that_is_not_ready_sends_its_callers_on() {
    let (draining, refused) = replica(StatusCode::SERVICE_UNAVAILABLE, NOT_READY).await;
    let (living, _) = replica(StatusCode::OK, NO_STEPS).await;
    let client = client(&[&draining, &living]);
    claim(&client).await.unwrap();
    claim(&client).await.unwrap();
    assert_eq!(refused.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn clones_share_what_one_of_them_learned() {
    let (draining, refused) = replica(StatusCode::SERVICE_UNAVAILABLE, NOT_READY).await;
    let (living, _) = replica(StatusCode::OK, NO_STEPS).await;
    let client = client(&[&draining, &living]);
    claim(&client.in_trace(Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"))).await.unwrap();
    claim(&client).await.unwrap();
    assert_eq!(refused.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_call_that_may_have_been_done_is_not_repeated_but_the_next_one_goes_elsewhere() {
    let (dying, taken) = dies_before_it_answers().await;
    let (living, calls) = replica(StatusCode::OK, NO_STEPS).await;
    let client = client(&[&dying, &living]);
    let error = claim(&client).await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains(&dying), "{error}");
    assert_eq!((taken.load(Ordering::SeqCst), calls.load(Ordering::SeqCst)), (1, 0));
    claim(&client).await.unwrap();
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_call_whose_outcome_the_replica_does_not_know_is_repeated_only_if_it_reads() {
    const LOST: &str = r#"{"error":{"code":"store.unreachable","message":"the answer was lost","details":null}}"#;
    const LATE: &str = r#"{"error":{"code":"server.timed_out","message":"it took too long","details":null}}"#;
    for body in [LOST, LATE, "<html>busy</html>"] {
        let (failing, taken) = replica(StatusCode::SERVICE_UNAVAILABLE, body).await;
        let (living, calls) = replica(StatusCode::OK, r#"{"items":[]}"#).await;
        let addresses = [failing.as_str(), living.as_str()];
        claim(&client(&addresses)).await.unwrap_err();
        assert_eq!((taken.load(Ordering::SeqCst), calls.load(Ordering::SeqCst)), (1, 0), "{body}");
        client(&addresses).workers().await.unwrap();
        assert_eq!((taken.load(Ordering::SeqCst), calls.load(Ordering::SeqCst)), (2, 1), "{body}");
    }
}

#[tokio::test]
async fn a_call_that_only_reads_is_repeated_elsewhere() {
    let (dying, _) = dies_before_it_answers().await;
    let (living, calls) = replica(StatusCode::OK, r#"{"items":[]}"#).await;
    client(&[&dying, &living]).workers().await.unwrap();
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn with_none_left_the_last_reason_is_told() {
    let (draining, calls) = replica(StatusCode::SERVICE_UNAVAILABLE, NOT_READY).await;
    let (_socket, unused) = unused_address();
    let client = client(&[&unused, &draining]);
    let error = claim(&client).await.unwrap_err();
    assert_eq!((error.code(), error.is_transient()), ("server.draining", true));
    assert_eq!(calls.load(Ordering::SeqCst), 1, "each is asked once");
}

#[tokio::test]
async fn a_call_with_an_idempotency_key_is_repeated_elsewhere_with_the_same_key() {
    let (dying, _) = dies_before_it_answers().await;
    let keys = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&keys);
    let router = Router::new().fallback(move |headers: HeaderMap| async move {
        heard.lock().unwrap().push(headers[IDEMPOTENCY_HEADER].to_str().unwrap().to_owned());
        CREATED
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let living = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let request = CreateToken { name: "ci".to_owned(), role: Role::Viewer, valid_for_ms: None };
    let created = client(&[&dying, &living]).create_token(&request, "only-once").await.unwrap();
    assert_eq!((created.secret.as_str(), keys.lock().unwrap().as_slice()), ("s", &["only-once".to_owned()][..]));
}
