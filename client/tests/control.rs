//! Tests of the calls that control runs and operate a server: paths, bodies, results.
#![expect(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use nightshift_client::Client;
use nightshift_protocol::access::{CreateToken, Role};
use nightshift_protocol::api::{Bulk, BulkAction, IDEMPOTENCY_HEADER, Prune, RunFilter, SetLimits};
use nightshift_protocol::signal::Signal;
use serde_json::{Value, json};

const RUN: &str = "run_00000000000070008000000000000001";
const CAMPAIGN: &str = "cmp_00000000000070008000000000000001";
const TOKEN: &str = "tok_00000000000070008000000000000001";
const WORKER: &str = "wrk_00000000000070008000000000000001";

/// A server that gives every call the same answer and records the last call: method, path and body.
struct Recorder {
    client: Client,
    last: Arc<Mutex<(String, Value)>>,
}

impl Recorder {
    async fn answers(status: StatusCode, answer: &Value) -> Self {
        let last = Arc::new(Mutex::new((String::new(), Value::Null)));
        let (kept, answer) = (Arc::clone(&last), answer.to_string());
        let router =
            Router::new().fallback(move |method: Method, uri: Uri, headers: HeaderMap, body: Bytes| async move {
                let key = headers.get(IDEMPOTENCY_HEADER).map_or("", |key| key.to_str().unwrap());
                let call = format!("{method} {} {key}", uri.path().strip_prefix("/api/v1").unwrap());
                *kept.lock().unwrap() = (call.trim().to_owned(), serde_json::from_slice(&body).unwrap_or(Value::Null));
                (status, answer)
            });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = Client::new(&format!("http://{}", listener.local_addr().unwrap()), None).unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { client, last }
    }

    async fn done() -> Self {
        Self::answers(StatusCode::NO_CONTENT, &Value::Null).await
    }

    fn last(&self) -> (String, Value) {
        self.last.lock().unwrap().clone()
    }
}

#[tokio::test]
async fn a_signal_goes_to_its_run_with_its_key() {
    let server = Recorder::done().await;
    let signal = Signal::Hint { text: "fuse".to_owned() };
    server.client.signal_run(&RUN.parse().unwrap(), &signal, "k1").await.unwrap();
    let expected = json!({"signal": "hint", "text": "fuse"});
    assert_eq!(server.last(), (format!("POST /runs/{RUN}/signals k1"), expected));
}

#[tokio::test]
async fn priorities_are_set_for_runs_and_campaigns() {
    let server = Recorder::done().await;
    server.client.set_run_priority(&RUN.parse().unwrap(), -5).await.unwrap();
    assert_eq!(server.last(), (format!("POST /runs/{RUN}/priority"), json!({"priority": -5})));
    server.client.set_campaign_priority(&CAMPAIGN.parse().unwrap(), 7).await.unwrap();
    assert_eq!(server.last(), (format!("POST /campaigns/{CAMPAIGN}/priority"), json!({"priority": 7})));
}

#[tokio::test]
async fn limits_carry_only_what_changes() {
    // The answer is unreadable; this test checks only the request.
    let server = Recorder::answers(StatusCode::OK, &json!({})).await;
    let limits = SetLimits { weight: Some(3), ..SetLimits::default() };
    assert!(server.client.set_campaign_limits(&CAMPAIGN.parse().unwrap(), &limits).await.is_err());
    let expected = json!({"weight": 3, "no_schedule": false});
    assert_eq!(server.last(), (format!("POST /campaigns/{CAMPAIGN}/limits"), expected));
}

#[tokio::test]
async fn a_bulk_call_returns_its_runs_and_the_refusals() {
    let answer = json!({"done": [[RUN, "paused"]], "refused": [[RUN, "run.illegal", "no"]], "more": true});
    let server = Recorder::answers(StatusCode::OK, &answer).await;
    let filter = RunFilter { task: Some("norm".to_owned()), ..RunFilter::default() };
    let done = server.client.bulk(&Bulk { filter, action: BulkAction::Pause, dry_run: true }, "key").await.unwrap();
    assert_eq!((done.done.len(), done.refused[0].1.as_str(), done.more), (1, "run.illegal", true));
    let expected = json!({"filter": {"task": "norm"}, "action": {"do": "pause"}, "dry_run": true});
    assert_eq!(server.last(), ("POST /runs/bulk key".to_owned(), expected));
}

#[tokio::test]
async fn tokens_are_made_listed_and_revoked() {
    let token = json!({"id": TOKEN, "name": "ci", "role": "viewer", "created_at": 1, "expires_at": null,
        "revoked_at": null, "last_used_at": null});
    let server = Recorder::answers(StatusCode::CREATED, &json!({"token": token, "secret": "s"})).await;
    let request = CreateToken { name: "ci".to_owned(), role: Role::Viewer, valid_for_ms: None };
    assert_eq!(server.client.create_token(&request, "key").await.unwrap().secret, "s");
    assert_eq!(server.last().0, "POST /tokens key");
    let server = Recorder::answers(StatusCode::OK, &json!({"items": [token], "next": null})).await;
    assert_eq!(server.client.tokens().await.unwrap()[0].name, "ci");
    let server = Recorder::answers(StatusCode::OK, &token).await;
    server.client.revoke_token(&TOKEN.parse().unwrap()).await.unwrap();
    assert_eq!(server.last().0, format!("POST /tokens/{TOKEN}/revoke"));
}

#[tokio::test]
async fn a_server_is_asked_to_prune_to_drain_and_whether_it_is_ready() {
    let answer = json!({"campaigns": [CAMPAIGN], "rows": 9, "artifacts": 2, "more": false});
    let server = Recorder::answers(StatusCode::OK, &answer).await;
    let pruned = server.client.prune(&Prune { older_than_ms: 1000, dry_run: false }).await.unwrap();
    assert_eq!((pruned.rows, pruned.artifacts), (9, 2));
    let server = Recorder::done().await;
    server.client.drain_worker(&WORKER.parse().unwrap(), true).await.unwrap();
    assert_eq!(server.last(), (format!("POST /workers/{WORKER}/drain"), json!({"draining": true})));
    server.client.ready().await.unwrap();
    assert_eq!(server.last().0, "GET /ready");
    let refusal = json!({"error": {"code": "server.stopping", "message": "it ends", "details": null}});
    let server = Recorder::answers(StatusCode::SERVICE_UNAVAILABLE, &refusal).await;
    assert_eq!(server.client.ready().await.unwrap_err().code(), "server.stopping");
}

#[tokio::test]
async fn an_archive_comes_piece_by_piece_and_goes_as_a_whole() {
    let server = Recorder::answers(StatusCode::OK, &json!("archive")).await;
    let mut archive = server.client.campaign_archive(&CAMPAIGN.parse().unwrap()).await.unwrap();
    let mut bytes = Vec::new();
    while let Some(piece) = archive.next().await.unwrap() {
        bytes.extend_from_slice(&piece);
    }
    assert_eq!(archive.size_bytes(), Some(bytes.len() as u64));
    assert_eq!(server.last().0, format!("GET /campaigns/{CAMPAIGN}/archive"));
    let created = json!({"campaign": CAMPAIGN, "runs": [RUN], "existed": false});
    let server = Recorder::answers(StatusCode::CREATED, &created).await;
    assert_eq!(server.client.import_campaign(bytes).await.unwrap().runs.len(), 1);
    assert_eq!(server.last(), ("POST /import".to_owned(), json!("archive")));
}
