//! Tests of permissions.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use nightshift_protocol::api::{Control, ControlAction, Health};
use nightshift_server::{Rate, Rates, Server, ServerConfig};
use reqwest::header::HOST;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::setup::{OPERATOR, TestServer, WORKER, Wish, ok, open_store, refusal, refused};

#[tokio::test]
async fn a_call_without_the_right_token_changes_nothing() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let request = server.request(&["softmax"]).await;
    let create = |token: Option<&str>| {
        let call = server.bare(Method::POST, "/api/v1/campaigns").json(&request);
        match token {
            Some(token) => call.bearer_auth(token).send(),
            None => call.send(),
        }
    };
    assert_eq!(refused(create(None).await.unwrap()).await, refusal(401, "auth.required"));
    assert_eq!(refused(create(Some("guess")).await.unwrap()).await, refusal(401, "auth.wrong_token"));
    assert_eq!(refused(create(Some(WORKER)).await.unwrap()).await, refusal(403, "access.role_needed"));
    let campaigns: serde_json::Value = server.read("/campaigns").await;
    assert_eq!(campaigns["items"].as_array().unwrap().len(), 0);
    assert_eq!(create(Some(OPERATOR)).await.unwrap().status(), StatusCode::CREATED);
    server.stop().await;
}

#[tokio::test]
async fn a_wrong_token_is_refused_also_where_none_is_needed() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let open = server.bare(Method::GET, "/api/v1/campaigns").send().await.unwrap();
    assert_eq!(open.status(), StatusCode::OK);
    let wrong = server.call(Method::GET, "/campaigns", "guess").send().await.unwrap();
    assert_eq!(refused(wrong).await, refusal(401, "auth.wrong_token"));
    server.stop().await;
}

#[tokio::test]
async fn reading_needs_the_operators_token_when_the_server_says_so() {
    let pages = Router::new().route("/", get(|| async { "a page" }));
    let wish = Wish { reads_need_token: true, extra: pages, ..Wish::default() };
    let (server, _folder) = TestServer::start(wish).await;
    // Pages call the API with the visitor's permissions.
    let page = server.bare(Method::GET, "/").send().await.unwrap();
    assert_eq!(page.text().await.unwrap(), "a page");
    let hash = server.put_artifact(b"bytes").await;
    for path in ["/api/v1/campaigns", "/api/v1/workers", "/api/v1/ids/ab", &format!("/api/v1/artifacts/{hash}")] {
        let answer = server.bare(Method::GET, path).send().await.unwrap();
        assert!(answer.headers().contains_key("www-authenticate"), "{path}");
        assert_eq!(refused(answer).await, refusal(401, "auth.required"), "{path}");
        let answer = server.bare(Method::GET, path).bearer_auth(OPERATOR).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK, "{path}");
    }
    // A worker has access only to artifacts.
    let artifact = server.call(Method::GET, &format!("/artifacts/{hash}"), WORKER).send().await.unwrap();
    assert_eq!(artifact.bytes().await.unwrap().as_ref(), b"bytes");
    let campaigns = server.call(Method::GET, "/campaigns", WORKER).send().await.unwrap();
    assert_eq!(refused(campaigns).await, refusal(403, "access.role_needed"));
    // A browser sends the token as a password.
    let listed = server.bare(Method::GET, "/api/v1/campaigns").basic_auth("me", Some(OPERATOR)).send().await.unwrap();
    assert_eq!(listed.status(), StatusCode::OK);
    // The health of the server is public.
    let health: Health = ok(server.bare(Method::GET, "/api/v1/health").send().await.unwrap()).await;
    assert_eq!((health.status.as_str(), health.database.as_str()), ("ok", "sqlite"));
    server.stop().await;
}

#[tokio::test]
async fn automatic_browser_credentials_change_nothing() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let (created, _) = server.campaign().await;
    let path = format!("/api/v1/campaigns/{}/control", created.campaign);
    let call = server.bare(Method::POST, &path).basic_auth("me", Some(OPERATOR));
    let answer = call.json(&Control { action: ControlAction::Cancel }).send().await.unwrap();
    assert_eq!(refused(answer).await, refusal(401, "auth.wrong_token"));
    server.stop().await;
}

#[tokio::test]
async fn a_foreign_host_name_is_refused_on_a_loopback_address() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let port = server.addr().port();
    for host in ["rebound.example".to_owned(), format!("rebound.example:{port}"), "localhost.example".to_owned()] {
        let answer = server.get("/campaigns").header(HOST, &host).send().await.unwrap();
        assert_eq!(refused(answer).await, refusal(403, "request.host_not_allowed"), "{host}");
    }
    for host in ["localhost".to_owned(), format!("localhost:{port}"), format!("[::1]:{port}")] {
        let answer = server.get("/campaigns").header(HOST, &host).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK, "{host}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_server_for_the_network_answers_to_every_name() {
    let folder = tempfile::tempdir().unwrap();
    let store = crate::setup::open_store(&folder).await;
    let wish = Wish::default();
    let mut config = wish.config();
    config.bind = SocketAddr::from(([0, 0, 0, 0], 0));
    let running = nightshift_server::Server::start(config, wish.parts(store.ports()), Router::new()).await.unwrap();
    let url = format!("http://127.0.0.1:{}/api/v1/campaigns", running.addr().port());
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let answer = http.get(url).header(HOST, "gpu-farm.example").send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    running.stop().await.unwrap();
}

#[tokio::test]
async fn every_answer_is_harmless_in_a_browser() {
    let pages = Router::new().route("/", get(|| async { "a page" }));
    let (server, _folder) = TestServer::start(Wish { extra: pages, ..Wish::default() }).await;
    for path in ["/", "/api/v1/health", "/api/v1/nothing", "/nothing"] {
        let answer = server.bare(Method::GET, path).send().await.unwrap();
        let header = |name: &str| answer.headers().get(name).unwrap().to_str().unwrap().to_owned();
        assert!(header("content-security-policy").contains("default-src 'none'; script-src 'self' "), "{path}");
        assert_eq!(header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(header("x-frame-options"), "DENY", "{path}");
        assert!(!answer.headers().contains_key("access-control-allow-origin"), "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn an_unknown_call_or_method_is_answered_in_the_shape_of_an_error() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let unknown = server.get("/nothing").send().await.unwrap();
    assert_eq!(refused(unknown).await, refusal(404, "request.no_such_call"));
    for path in ["/campaigns", "/artifacts/00", "/runs/x/events"] {
        let wrong = server.call(Method::DELETE, path, OPERATOR).send().await.unwrap();
        assert_eq!(refused(wrong).await, refusal(405, "request.method_not_allowed"), "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_short_token_is_no_token() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_store(&folder).await;
    let wish = Wish::default();
    for token in ["", "1", "short-token"] {
        let config = ServerConfig { token: token.to_owned().into(), ..wish.config() };
        let refused = Server::start(config, wish.parts(store.ports()), Router::new()).await.unwrap_err();
        assert!(refused.to_string().contains("12 characters"), "{refused}");
        let config = ServerConfig { worker_token: token.to_owned().into(), ..wish.config() };
        assert!(Server::start(config, wish.parts(store.ports()), Router::new()).await.is_err());
    }
}

#[tokio::test]
async fn a_rate_limited_caller_gets_the_time_of_its_next_call() {
    let slow = Rate { burst: NonZeroU32::new(3).unwrap(), every: Duration::from_hours(1) };
    let wish = Wish { rates: Rates { people: slow, ..Rates::default() }, ..Wish::default() };
    let (server, _folder) = TestServer::start(wish).await;
    let viewer = json!({"name": "a script", "role": "viewer"});
    let viewer: Value = ok(server.post("/tokens").json(&viewer).send().await.unwrap()).await;
    let token = viewer["secret"].as_str().unwrap();
    for _ in 0..3 {
        assert_eq!(server.call(Method::GET, "/runs", token).send().await.unwrap().status(), StatusCode::OK);
    }
    let refused_call = server.call(Method::GET, "/runs", token).send().await.unwrap();
    let wait_s: u64 = refused_call.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=3_600).contains(&wait_s), "{wait_s}");
    assert_eq!(refused(refused_call).await, refusal(429, "request.too_many"));
    // Callers are counted separately, also the one without a token.
    assert_eq!(server.bare(Method::GET, "/api/v1/runs").send().await.unwrap().status(), StatusCode::OK);
    for _ in 0..9 {
        assert_eq!(server.get("/runs").send().await.unwrap().status(), StatusCode::OK, "an administrator's script");
    }
    server.stop().await;
}

#[tokio::test]
async fn guessed_tokens_and_cookies_are_looked_up_at_a_limited_rate() {
    let slow = Rate { burst: NonZeroU32::new(4).unwrap(), every: Duration::from_hours(1) };
    let wish = Wish { rates: Rates { people: slow, ..Rates::default() }, ..Wish::default() };
    let (server, _folder) = TestServer::start(wish).await;
    let guess = |prefix: &str, number: u32| format!("{prefix}{number:043}");
    let by_token =
        async |number| refused(server.call(Method::GET, "/runs", &guess("nst_", number)).send().await.unwrap()).await;
    let by_cookie = async |path: &str, number| {
        let cookie = format!("nightshift_session={}", guess("nss_", number));
        server.bare(Method::GET, path).header("cookie", cookie).send().await.unwrap()
    };
    for number in 0..2 {
        assert_eq!(by_token(number).await, refusal(401, "auth.wrong_token"));
    }
    assert_eq!(by_cookie("/api/v1/session", 0).await.status(), StatusCode::OK);
    assert_eq!(by_cookie("/api/v1/runs", 1).await.status(), StatusCode::OK);
    assert_eq!(by_token(2).await, refusal(429, "request.too_many"));
    for path in ["/api/v1/runs", "/api/v1/session"] {
        assert_eq!(refused(by_cookie(path, 2).await).await, refusal(429, "request.too_many"), "{path}");
    }
    assert_eq!(server.get("/runs").send().await.unwrap().status(), StatusCode::OK, "a configured token");
    server.stop().await;
}

#[tokio::test]
async fn guesses_lock_out_no_credential_that_the_server_knows() {
    let slow = Rate { burst: NonZeroU32::new(4).unwrap(), every: Duration::from_hours(1) };
    let wish = Wish { rates: Rates { people: slow, ..Rates::default() }, ..Wish::default() };
    let (server, _folder) = TestServer::start(wish).await;
    let (_, run) = server.campaign().await;
    let create = async |path: &str, wish: Value| -> String {
        let created: Value = ok(server.post(path).json(&wish).send().await.unwrap()).await;
        created["secret"].as_str().unwrap().to_owned()
    };
    let token = |name: &str| json!({"name": name, "role": "viewer"});
    let known = create("/tokens", token("known")).await;
    let link = create("/shares", json!({"target": run, "label": "", "valid_for_ms": 3_600_000})).await;
    let path = format!("/runs/{run}");
    let read = async |secret: &str| server.call(Method::GET, &path, secret).send().await.unwrap();
    for secret in [&known, &link] {
        assert_eq!(read(secret).await.status(), StatusCode::OK);
    }
    for (number, expected) in [401, 401, 429].into_iter().enumerate() {
        assert_eq!(read(&format!("nst_{number:043}")).await.status(), expected);
    }
    // A new token requires a new look-up of all others.
    let new = create("/tokens", token("new")).await;
    for secret in [&known, &link] {
        assert_eq!(read(secret).await.status(), StatusCode::OK);
    }
    assert_eq!(refused(read(&new).await).await, refusal(429, "request.too_many"));
    server.stop().await;
}

#[tokio::test]
async fn signing_out_counts_like_a_call_without_a_token() {
    let slow = Rate { burst: NonZeroU32::new(3).unwrap(), every: Duration::from_hours(1) };
    let wish = Wish { rates: Rates { people: slow, ..Rates::default() }, ..Wish::default() };
    let (server, _folder) = TestServer::start(wish).await;
    let sign_out = async || server.bare(Method::DELETE, "/api/v1/session").send().await.unwrap();
    for _ in 0..3 {
        assert_eq!(sign_out().await.status(), StatusCode::NO_CONTENT);
    }
    assert_eq!(refused(sign_out().await).await, refusal(429, "request.too_many"));
    server.stop().await;
}
