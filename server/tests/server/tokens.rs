//! Tests of stored tokens: roles, their end, and what is stored of them.

use std::sync::Arc;

use nightshift_engine::clock::Clock;
use nightshift_protocol::access::{CreateToken, Role, TokenCreated, TokenView};
use nightshift_protocol::api::{Control, ControlAction, EventsPage, Page};
use nightshift_protocol::time::TimestampMs;
use nightshift_server::SystemClock;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::setup::{OPERATOR, TestServer, WORKER, Wish, ok, open_store, refusal, refused, until};

impl TestServer {
    async fn token(&self, name: &str, role: Role, valid_for_ms: Option<u64>) -> TokenCreated {
        let request = CreateToken { name: name.to_owned(), role, valid_for_ms };
        ok(self.post("/tokens").json(&request).send().await.unwrap()).await
    }

    async fn status(&self, method: Method, path: &str, token: &str) -> StatusCode {
        self.call(method, path, token).json(&json!({})).send().await.unwrap().status()
    }
}

/// A clock that a test moves, ahead of the machine's.
pub(crate) struct Shifted(pub(crate) std::sync::atomic::AtomicU64);

impl Clock for Shifted {
    fn now(&self) -> TimestampMs {
        SystemClock.now().plus_ms(self.0.load(std::sync::atomic::Ordering::SeqCst))
    }
}

#[tokio::test]
async fn each_role_has_its_permissions_and_a_refusal_names_the_missing_role() {
    let (server, _folder) = TestServer::start(Wish { reads_need_token: true, ..Wish::default() }).await;
    let hash = server.put_artifact(b"bytes").await;
    let (artifact, run) = (format!("/artifacts/{hash}"), "/runs/run_x/control");
    let mut secrets = Vec::new();
    for role in Role::ALL {
        secrets.push((role, server.token(role.as_str(), role, None).await.secret));
    }
    // (call, permitted roles; other errors than permissions do not count)
    let calls: [(Method, &str, &[Role]); 11] = [
        (Method::GET, "/campaigns", &[Role::Viewer, Role::Operator, Role::Admin]),
        (Method::GET, &artifact, &[Role::Viewer, Role::Operator, Role::Worker, Role::Admin]),
        (Method::PUT, &artifact, &[Role::Operator, Role::Worker, Role::Admin]),
        (Method::POST, "/campaigns", &[Role::Operator, Role::Admin]),
        (Method::POST, run, &[Role::Operator, Role::Admin]),
        (Method::POST, "/runs/bulk", &[Role::Operator, Role::Admin]),
        (Method::POST, "/workers", &[Role::Worker, Role::Admin]),
        (Method::POST, "/workers/wrk_x/drain", &[Role::Admin]),
        (Method::GET, "/tokens", &[Role::Admin]),
        (Method::POST, "/prune", &[Role::Admin]),
        (Method::POST, "/import", &[Role::Admin]),
    ];
    for (method, path, may) in calls {
        for (role, secret) in &secrets {
            let status = server.status(method.clone(), path, secret).await;
            assert_eq!(status != StatusCode::FORBIDDEN, may.contains(role), "{method} {path} as {role:?}: {status}");
            assert_ne!(status, StatusCode::UNAUTHORIZED, "{method} {path} as {role:?}");
        }
    }
    let viewer = server.call(Method::POST, "/runs/bulk", &secrets[0].1).json(&json!({})).send().await.unwrap();
    let error: Value = serde_json::from_str(&viewer.text().await.unwrap()).unwrap();
    assert_eq!(error["error"]["code"], "access.role_needed");
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("operator") && message.contains("viewer"), "{message}");
    server.stop().await;
}

#[tokio::test]
async fn a_secret_is_shown_once_and_not_kept() {
    let (server, folder) = TestServer::start(Wish::default()).await;
    let created = server.token("night watch", Role::Viewer, None).await;
    let rest = created.secret.strip_prefix("nst_").unwrap();
    assert_eq!(rest.len(), 43);
    assert!(!format!("{created:?}").contains(rest));
    let listed = server.get("/tokens").send().await.unwrap().text().await.unwrap();
    assert!(listed.contains("night watch") && !listed.contains(rest), "{listed}");
    server.stop().await;
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            assert!(!bytes.windows(rest.len()).any(|window| window == rest.as_bytes()), "{}", path.display());
        }
    }
}

#[tokio::test]
async fn a_revoked_token_ends_at_once_here_and_soon_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_store(&folder).await;
    let here = TestServer::on(store.ports(), Wish { sole: false, ..Wish::default() }).await;
    let elsewhere = TestServer::on(store.ports(), Wish { sole: false, ..Wish::default() }).await;
    let created = here.token("guest", Role::Viewer, None).await;
    for server in [&here, &elsewhere] {
        assert_eq!(server.status(Method::GET, "/campaigns", &created.secret).await, StatusCode::OK);
    }
    let path = format!("/tokens/{}/revoke", created.token.id);
    let revoked: TokenView = ok(here.post(&path).send().await.unwrap()).await;
    assert!(revoked.revoked_at.is_some());
    let answer = here.call(Method::GET, "/campaigns", &created.secret).send().await.unwrap();
    assert_eq!(refused(answer).await, refusal(401, "token.revoked"));
    until("the end of the token", || async {
        let answer = elsewhere.call(Method::GET, "/campaigns", &created.secret).send().await.unwrap();
        (answer.status() == StatusCode::UNAUTHORIZED).then_some(())
    })
    .await;
    // Revoking it again changes nothing.
    let again: TokenView = ok(here.post(&path).send().await.unwrap()).await;
    assert_eq!(again.revoked_at, revoked.revoked_at);
    here.stop().await;
    elsewhere.stop().await;
}

#[tokio::test]
async fn a_token_ends_when_its_time_is_over() {
    let clock = Arc::new(Shifted(std::sync::atomic::AtomicU64::new(0)));
    let (server, _folder) = TestServer::start(Wish { clock: clock.clone(), ..Wish::default() }).await;
    let created = server.token("for an hour", Role::Operator, Some(3_600_000)).await;
    assert_eq!(server.status(Method::GET, "/campaigns", &created.secret).await, StatusCode::OK);
    clock.0.store(3_600_000, std::sync::atomic::Ordering::SeqCst);
    let answer = server.call(Method::GET, "/campaigns", &created.secret).send().await.unwrap();
    assert_eq!(refused(answer).await, refusal(401, "token.expired"));
    server.stop().await;
}

#[tokio::test]
async fn the_log_of_a_run_names_the_token_that_controlled_it() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let created = server.token("late shift", Role::Operator, None).await;
    let (_, run) = server.campaign().await;
    let path = format!("/runs/{run}/control");
    let control = Control { action: ControlAction::Pause };
    let answer = server.call(Method::POST, &path, &created.secret).json(&control).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    let page: EventsPage = server.read(&format!("/runs/{run}/events")).await;
    let paused = page.events.iter().find(|event| event.kind == "run_paused").unwrap();
    assert!(paused.body.to_string().contains("late shift"), "{}", paused.body);
    let tokens: Page<TokenView> = server.read("/tokens").await;
    assert!(tokens.items[0].last_used_at.is_some());
    server.stop().await;
}

#[tokio::test]
async fn an_invalid_token_is_refused() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    for request in [json!({ "name": " ", "role": "viewer" }), json!({ "name": "a\nb", "role": "viewer" })] {
        let answer = server.post("/tokens").json(&request).send().await.unwrap();
        assert_eq!(refused(answer).await, refusal(400, "token.invalid_name"));
    }
    let short = json!({ "name": "x", "role": "viewer", "valid_for_ms": 1 });
    let answer = server.post("/tokens").json(&short).send().await.unwrap();
    assert_eq!(refused(answer).await, refusal(400, "token.invalid_lifetime"));
    let unknown = "/tokens/tok_00000000000000000000000000000000/revoke";
    assert_eq!(refused(server.post(unknown).send().await.unwrap()).await, refusal(404, "token.not_found"));
    for guess in ["nst_", &format!("nst_{}", "a".repeat(43))] {
        let answer = server.call(Method::GET, "/campaigns", guess).send().await.unwrap();
        assert_eq!(refused(answer).await, refusal(401, "auth.wrong_token"), "{guess}");
    }
    // The configured tokens work in addition to the stored ones.
    assert_eq!(server.status(Method::GET, "/tokens", OPERATOR).await, StatusCode::OK);
    assert_eq!(server.status(Method::GET, "/tokens", WORKER).await, StatusCode::FORBIDDEN);
    server.stop().await;
}
