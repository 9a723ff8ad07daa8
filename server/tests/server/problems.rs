//! Tests of error answers: every layer answers with problem details (RFC 9457).

use std::num::NonZeroU32;
use std::time::Duration;

use nightshift_protocol::error::{ApiErrorBody, PROBLEM_CONTENT_TYPE};
use nightshift_server::{Rate, Rates};
use reqwest::header::{CONTENT_TYPE, HOST};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::setup::{OPERATOR, TestServer, WORKER, Wish, refusal, refused};

#[tokio::test]
async fn errors_of_every_layer_are_problem_details() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let json = |body: &'static str| server.post("/notes").header(CONTENT_TYPE, "application/json").body(body);
    let foreign = server.get("/runs").header(HOST, "evil.example");
    let unknown = server.get("/runs/run_00000000000000000000000000000000");
    let large = server.post("/session").header(CONTENT_TYPE, "application/json").body("x".repeat(20_000));
    let calls = [
        (400, "request.malformed_json", json("{")),
        (400, "request.invalid", json("{}")),
        (400, "request.invalid_query", server.get("/runs?limit=none")),
        (400, "request.invalid_query", server.get("/tags?before=no-cursor")),
        (400, "request.invalid_query", server.get("/requests?before=no-cursor")),
        (400, "request.invalid_path", server.get("/ids/%ff")),
        (400, "request.invalid_path", server.get("/attempts/at/%ff/1")),
        (400, "request.invalid_path", server.get("/attempts/at/1/%ff/project")),
        (400, "request.invalid_path", server.post("/devices/%ff/release")),
        (401, "auth.required", server.bare(Method::GET, "/api/v1/tokens")),
        (401, "auth.wrong_token", server.call(Method::GET, "/runs", "another")),
        (403, "access.role_needed", server.call(Method::GET, "/tokens", WORKER)),
        (403, "request.host_not_allowed", foreign),
        (404, "request.no_such_call", server.get("/nothing")),
        (404, "request.no_such_call", server.get("/")),
        (404, "request.no_such_call", server.get("")),
        (404, "run.not_found", unknown),
        (404, "run.not_found", server.get("/runs/no-id")),
        (405, "request.method_not_allowed", server.call(Method::PUT, "/runs", OPERATOR)),
        (413, "request.too_large", large),
        (415, "request.content_type", server.post("/notes").body("{}")),
        (422, "archive.unreadable", server.post("/import").body("no archive")),
    ];
    for (status, code, call) in calls {
        let (call, request) = call.build_split();
        let request = request.unwrap();
        let asked = format!("{} {}", request.method(), request.url());
        let answer = call.execute(request).await.unwrap();
        assert_eq!(refused(answer).await, refusal(status, code), "{asked}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_refused_rate_is_a_problem() {
    let once = Rate { burst: NonZeroU32::MIN, every: Duration::from_hours(1) };
    let wish = Wish { rates: Rates { people: once, ..Rates::default() }, ..Wish::default() };
    let (server, _folder) = TestServer::start(wish).await;
    let call = || server.bare(Method::GET, "/api/v1/runs").send();
    assert_eq!(call().await.unwrap().status(), StatusCode::OK);
    assert_eq!(refused(call().await.unwrap()).await, refusal(429, "request.too_many"));
    server.stop().await;
}

#[tokio::test]
async fn a_problem_has_the_members_of_the_standard_and_those_that_earlier_clients_read() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let answer = server.get("/runs/no-id").send().await.unwrap();
    assert_eq!(answer.headers()[CONTENT_TYPE], PROBLEM_CONTENT_TYPE);
    let text = answer.text().await.unwrap();
    let problem: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(problem["type"], "urn:nightshift:error:run.not_found");
    assert_eq!(problem["title"], "run not found");
    assert_eq!(problem["status"], 404);
    assert_eq!(problem["code"], "run.not_found");
    let before: ApiErrorBody = serde_json::from_str(&text).unwrap();
    assert_eq!(json!(before.error.message), problem["detail"]);
    assert_eq!(before.error.code, "run.not_found");
    server.stop().await;
}
