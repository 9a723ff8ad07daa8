//! Tests of idempotency keys: repeating a creating call creates nothing more and gets the same answer.

use nightshift_protocol::api::{IDEMPOTENCY_HEADER, Page};
use nightshift_protocol::id::{CampaignId, RunId};
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};

use crate::replicas::{on_both, replica};
use crate::setup::{OPERATOR, TestServer, WORKER, ok, refusal, refused};
use crate::toy::offers;

/// Returns the creating calls: path, token, body, and another body.
fn creating(campaign: &CampaignId) -> Vec<(&'static str, &'static str, Value, Value)> {
    let share = |valid_for_ms: u64| json!({"target": campaign, "label": "", "valid_for_ms": valid_for_ms});
    let view = |name: &str| json!({"name": name, "page": "attempts", "query": "", "shared": false});
    let note = |text: &str| json!({"target": campaign, "text": text});
    let token = |name: &str| json!({"name": name, "role": "viewer"});
    let webhook = |url: &str| json!({"url": url, "events": ["run_finished"]});
    let worker = |name: &str| json!({"name": name, "embedded": false, "offers": offers(), "version": "0"});
    vec![
        ("/tokens", OPERATOR, token("a"), token("b")),
        ("/shares", OPERATOR, share(60_000), share(70_000)),
        ("/notes", OPERATOR, note("a"), note("b")),
        ("/views", OPERATOR, view("a"), view("b")),
        ("/webhooks", OPERATOR, webhook("https://example.com/a"), webhook("https://example.com/b")),
        ("/workers", WORKER, worker("a"), worker("b")),
    ]
}

async fn create(server: &TestServer, path: &str, token: &str, body: &Value, key: &str) -> Response {
    let call = server.call(Method::POST, path, token).header(IDEMPOTENCY_HEADER, key).json(body);
    call.send().await.unwrap()
}

#[tokio::test]
async fn every_call_that_creates_something_is_done_once() {
    on_both(async |shared| {
        let server = shared.server(replica()).await;
        let (created, _) = server.campaign().await;
        for (path, token, body, other) in creating(&created.campaign) {
            let first = create(&server, path, token, &body, "k").await;
            assert_eq!(first.status(), StatusCode::CREATED, "{path}");
            let first: Value = first.json().await.unwrap();
            let again = create(&server, path, token, &body, "k").await;
            assert_eq!(again.status(), StatusCode::CREATED, "{path}");
            assert_eq!(first, again.json::<Value>().await.unwrap(), "{path}: the same answer, secrets too");
            let listed: Page<Value> = server.read(path).await;
            // The server's agents are workers, too.
            let made = listed.items.iter().filter(|item| path != "/workers" || item["name"] == "a").count();
            assert_eq!(made, 1, "{path}: nothing more was created");
            let conflict = refusal(409, "request.idempotency_conflict");
            assert_eq!(refused(create(&server, path, token, &other, "k").await).await, conflict, "{path}");
            let long = "k".repeat(129);
            let invalid = refusal(400, "request.invalid_idempotency_key");
            assert_eq!(refused(create(&server, path, token, &body, &long).await).await, invalid, "{path}");
            let new: Value = ok(create(&server, path, token, &body, "l").await).await;
            assert_ne!(new, first, "{path}: another key is another request");
        }
        server.stop().await;
    })
    .await;
}

#[tokio::test]
async fn the_answer_of_another_caller_stays_closed() {
    on_both(async |shared| {
        let server = shared.server(replica()).await;
        let admin = json!({"name": "second", "role": "admin"});
        let second: Value = ok(server.post("/tokens").json(&admin).send().await.unwrap()).await;
        let wish = json!({"name": "ci", "role": "viewer"});
        ok::<Value>(create(&server, "/tokens", OPERATOR, &wish, "k").await).await;
        let stolen = create(&server, "/tokens", second["secret"].as_str().unwrap(), &wish, "k").await;
        assert_eq!(refused(stolen).await, refusal(409, "request.idempotency_conflict"));
        server.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_repeated_bulk_call_tells_each_run_once() {
    on_both(async |shared| {
        let server = shared.server(replica()).await;
        let (created, run) = server.campaign().await;
        let hint = json!({"do": "signal", "signal": {"signal": "hint", "text": "use tiles"}});
        let bulk = json!({"filter": {"campaign": created.campaign}, "action": hint, "dry_run": false});
        for _ in 0..2 {
            let done: Value = ok(create(&server, "/runs/bulk", OPERATOR, &bulk, "k").await).await;
            assert_eq!(done["done"][0][0], json!(run), "{done}");
        }
        assert_eq!(hints(&server, &run).await, 1);
        server.stop().await;
    })
    .await;
}

async fn hints(server: &TestServer, run: &RunId) -> usize {
    let page: Value = server.read(&format!("/runs/{run}/events")).await;
    page["events"].as_array().unwrap().iter().filter(|event| event["kind"] == "signal_received").count()
}

#[test]
fn every_creating_call_takes_a_key_according_to_the_description() {
    let document: Value = serde_json::from_str(&nightshift_server::openapi_json().unwrap()).unwrap();
    // An archive is identified by its campaign's id, and importing it again finds that.
    let exempt = ["/import"];
    let mut creating = 0;
    for (path, calls) in document["paths"].as_object().unwrap() {
        if calls["post"]["responses"]["201"].is_null() || exempt.contains(&path.as_str()) {
            continue;
        }
        creating += 1;
        let parameters = calls["post"]["parameters"].as_array().cloned().unwrap_or_default();
        assert!(parameters.iter().any(|parameter| parameter["name"] == IDEMPOTENCY_HEADER), "POST {path}");
    }
    assert!(creating >= 7, "{creating}");
}
