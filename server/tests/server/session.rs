//! Tests of browser sessions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::routing::get;
use nightshift_protocol::access::{CreateToken, Role, TokenCreated};
use nightshift_protocol::api::{Control, ControlAction, OpenSession, Page, SessionView, SignedInBy};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::json;

use crate::replicas::{Shared, on_both, replica};
use crate::setup::{OPERATOR, TestServer, WORKER, Wish, ok, open_store, refusal, refused, until};
use crate::tokens::Shifted;

/// Returns the cookie of an answer in the form that a browser returns.
fn cookie_of(answer: &Response) -> String {
    let text = answer.headers()["set-cookie"].to_str().unwrap();
    assert!(text.contains("; HttpOnly; SameSite=Strict") && !text.contains("Secure"), "{text}");
    text.split(';').next().unwrap().to_owned()
}

impl TestServer {
    async fn sign_in(&self, token: &str) -> String {
        let answer = self.try_sign_in(token).await;
        assert_eq!(answer.status(), StatusCode::OK);
        cookie_of(&answer)
    }

    async fn try_sign_in(&self, token: &str) -> Response {
        self.bare(Method::POST, "/api/v1/session").json(&json!({ "token": token })).send().await.unwrap()
    }

    /// Creates a call of a page of this server, with its cookie.
    fn page_call(&self, method: Method, path: &str, cookie: &str) -> RequestBuilder {
        self.browser_call(method, path, cookie).header("sec-fetch-site", "same-origin")
    }

    fn browser_call(&self, method: Method, path: &str, cookie: &str) -> RequestBuilder {
        self.bare(method, &format!("/api/v1{path}")).header("cookie", cookie)
    }

    async fn session(&self, cookie: &str) -> SessionView {
        ok(self.page_call(Method::GET, "/session", cookie).send().await.unwrap()).await
    }

    /// Returns the cookie with the secret of another server's cookie. Its name contains the port of this server.
    fn cookie_with_secret_of(&self, cookie: &str) -> String {
        format!("nightshift_session_{}={}", self.addr().port(), cookie.split_once('=').unwrap().1)
    }

    async fn made_token(&self, role: Role) -> TokenCreated {
        let request = CreateToken { name: "late shift".to_owned(), role, valid_for_ms: None };
        ok(self.post("/tokens").json(&request).send().await.unwrap()).await
    }
}

fn pause() -> Control {
    Control { action: ControlAction::Pause }
}

#[tokio::test]
async fn a_cookie_stands_for_its_token() {
    let pages = Router::new().route("/", get(|| async { "a page" }));
    let (server, folder) = TestServer::start(Wish { reads_need_token: true, extra: pages, ..Wish::default() }).await;
    let (_, run) = server.campaign().await;
    let made = server.made_token(Role::Operator).await;
    let cookie = server.sign_in(&made.secret).await;
    let session = server.session(&cookie).await;
    assert_eq!((session.by, session.role), (SignedInBy::Session, Some(Role::Operator)));
    assert_eq!(session.name.as_deref(), Some("late shift"));
    assert!(session.expires_at.is_some());
    // The cookie works for pages and the API.
    let page = server.bare(Method::GET, "/").header("cookie", &cookie).send().await.unwrap();
    assert_eq!(page.text().await.unwrap(), "a page");
    let path = format!("/runs/{run}/control");
    let paused = server.page_call(Method::POST, &path, &cookie).json(&pause()).send().await.unwrap();
    assert_eq!(paused.status(), StatusCode::OK);
    let events = server.get(&format!("/runs/{run}/events")).send().await.unwrap().text().await.unwrap();
    assert!(events.contains("late shift"), "{events}");
    // A session has only the permissions of its token.
    let tokens = server.page_call(Method::GET, "/tokens", &cookie).send().await.unwrap();
    assert_eq!(refused(tokens).await, refusal(403, "access.role_needed"));
    server.stop().await;
    let secret = cookie.split_once('=').unwrap().1.to_owned();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap_or_default();
        assert!(!bytes.windows(secret.len()).any(|window| window == secret.as_bytes()), "the secret is kept");
    }
}

#[tokio::test]
async fn the_operators_token_of_the_configuration_signs_in_and_another_one_ends_that() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_store(&folder).await;
    let server = TestServer::on(store.ports(), Wish::default()).await;
    let cookie = server.sign_in(OPERATOR).await;
    assert_eq!(server.session(&cookie).await.role, Some(Role::Admin));
    server.stop().await;
    // A new server has another port, because another process may have taken the old one.
    let again = TestServer::with_token(store.ports(), OPERATOR).await;
    let signed_in = again.session(&again.cookie_with_secret_of(&cookie)).await;
    assert_eq!(signed_in.role, Some(Role::Admin), "a session outlives its server");
    again.stop().await;
    let other = TestServer::with_token(store.ports(), "another-token").await;
    assert_eq!(other.session(&other.cookie_with_secret_of(&cookie)).await.by, SignedInBy::Nothing);
    other.stop().await;
}

#[tokio::test]
async fn a_session_ends_by_signing_out_by_its_time_and_with_its_token() {
    let clock = Arc::new(Shifted(AtomicU64::new(0)));
    let wish = Wish { reads_need_token: true, clock: clock.clone(), ..Wish::default() };
    let (server, _folder) = TestServer::start(wish).await;
    let gone = refusal(401, "auth.session_ended");
    let read = async |cookie: &str| server.page_call(Method::GET, "/campaigns", cookie).send().await.unwrap();

    let out = server.sign_in(OPERATOR).await;
    assert_eq!(read(&out).await.status(), StatusCode::OK);
    let answer = server.page_call(Method::DELETE, "/session", &out).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::NO_CONTENT);
    assert!(answer.headers()["set-cookie"].to_str().unwrap().contains("Max-Age=0"));
    let answer = read(&out).await;
    assert!(!answer.headers().contains_key("www-authenticate"), "a browser would ask for a password");
    assert_eq!(refused(answer).await, gone);
    // A browser with an ended session can sign in again.
    let answer =
        server.page_call(Method::POST, "/session", &out).json(&json!({ "token": OPERATOR })).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);

    let made = server.made_token(Role::Viewer).await;
    let revoked = server.sign_in(&made.secret).await;
    assert_eq!(read(&revoked).await.status(), StatusCode::OK);
    let path = format!("/tokens/{}/revoke", made.token.id);
    assert_eq!(server.post(&path).send().await.unwrap().status(), StatusCode::OK);
    assert_eq!(refused(read(&revoked).await).await, gone);

    let timed = server.sign_in(OPERATOR).await;
    assert_eq!(read(&timed).await.status(), StatusCode::OK);
    clock.0.store(12 * 3_600_000, Ordering::SeqCst);
    assert_eq!(refused(read(&timed).await).await, gone);
    assert_eq!(server.session(&timed).await.by, SignedInBy::Nothing);
    server.stop().await;
}

#[tokio::test]
async fn a_cookie_is_not_taken_from_pages_of_others() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let (_, run) = server.campaign().await;
    let cookie = server.sign_in(OPERATOR).await;
    let path = format!("/runs/{run}/control");
    let call = || server.browser_call(Method::POST, &path, &cookie);
    let here = format!("http://{}", server.addr());
    for foreign in [
        call().json(&pause()),
        call().json(&pause()).header("sec-fetch-site", "cross-site").header("origin", &here),
        call().json(&pause()).header("sec-fetch-site", "same-site"),
        call().json(&pause()).header("origin", "http://evil.example"),
        call().json(&pause()).header("origin", "null"),
    ] {
        assert_eq!(refused(foreign.send().await.unwrap()).await, refusal(403, "auth.cross_origin"));
    }
    let form = call().header("origin", &here).header("content-type", "text/plain").body("{\"action\":\"pause\"}");
    assert_eq!(refused(form.send().await.unwrap()).await, refusal(403, "auth.plain_form"));
    let page = call().json(&pause()).header("origin", &here);
    assert_eq!(page.send().await.unwrap().status(), StatusCode::OK);
    // A call without a body needs a header that a form cannot send.
    let made = server.made_token(Role::Viewer).await;
    let revoke = || server.page_call(Method::POST, &format!("/tokens/{}/revoke", made.token.id), &cookie);
    assert_eq!(refused(revoke().send().await.unwrap()).await, refusal(403, "auth.plain_form"));
    let shown = revoke().header("x-nightshift-request", "1").send().await.unwrap();
    assert_eq!(shown.status(), StatusCode::OK);
    // A token takes precedence over the cookie.
    let both = call().json(&pause()).bearer_auth(OPERATOR).send().await.unwrap();
    assert_eq!(both.status(), StatusCode::OK);
    // Another site can sign a browser neither in nor out.
    for method in [Method::POST, Method::DELETE] {
        let foreign = server.browser_call(method, "/session", &cookie).header("sec-fetch-site", "cross-site");
        let answer = foreign.json(&json!({ "token": OPERATOR })).send().await.unwrap();
        assert_eq!(refused(answer).await, refusal(403, "auth.cross_origin"));
    }
    server.stop().await;
}

#[tokio::test]
async fn an_invalid_sign_in_is_refused() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    assert_eq!(refused(server.try_sign_in("guess").await).await, refusal(401, "auth.wrong_token"));
    assert_eq!(refused(server.try_sign_in(WORKER).await).await, refusal(403, "access.role_needed"));
    let made = server.made_token(Role::Worker).await;
    assert_eq!(refused(server.try_sign_in(&made.secret).await).await, refusal(403, "access.role_needed"));
    for valid_for_ms in [0, 31 * 24 * 3_600_000_u64] {
        let wish = json!({ "token": OPERATOR, "valid_for_ms": valid_for_ms });
        let answer = server.bare(Method::POST, "/api/v1/session").json(&wish).send().await.unwrap();
        assert_eq!(refused(answer).await, refusal(400, "token.invalid_lifetime"));
    }
    let form = server.bare(Method::POST, "/api/v1/session").header("content-type", "text/plain").body("{}");
    assert_eq!(refused(form.send().await.unwrap()).await, refusal(415, "request.content_type"));
    // An anonymous caller may read where reading is public.
    let anonymous: SessionView = ok(server.bare(Method::GET, "/api/v1/session").send().await.unwrap()).await;
    assert_eq!((anonymous.by, anonymous.role), (SignedInBy::Nothing, Some(Role::Viewer)));
    let by_token: SessionView = ok(server.get("/session").send().await.unwrap()).await;
    assert_eq!((by_token.by, by_token.role), (SignedInBy::Token, Some(Role::Admin)));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_holds_on_every_server_and_ends_on_every_server() {
    on_both(async |shared: Shared| {
        let (here, there) = (shared.server(replica()).await, shared.server(replica()).await);
        let made = here.made_token(Role::Viewer).await;
        let cookie = here.sign_in(&made.secret).await;
        // Another server has another port here. A browser behind a common host name sends the same secret.
        let elsewhere = there.cookie_with_secret_of(&cookie);
        assert_eq!(there.session(&elsewhere).await.by, SignedInBy::Session);
        here.page_call(Method::DELETE, "/session", &cookie).send().await.unwrap();
        until("the end of the session", || async {
            (there.session(&elsewhere).await.by == SignedInBy::Nothing).then_some(())
        })
        .await;
        here.stop().await;
        there.stop().await;
    })
    .await;
}

#[tokio::test]
async fn an_administrator_sees_who_is_signed_in_and_signs_a_browser_out() {
    let (server, _folder) = TestServer::start(Wish { reads_need_token: true, ..Wish::default() }).await;
    let made = server.made_token(Role::Viewer).await;
    let (viewer, admin) = (server.sign_in(&made.secret).await, server.sign_in(OPERATOR).await);
    let listed: Page<OpenSession> = ok(server.page_call(Method::GET, "/sessions", &admin).send().await.unwrap()).await;
    let mut told: Vec<_> =
        listed.items.iter().map(|session| (session.name.as_str(), session.role, session.own)).collect();
    told.sort_unstable_by_key(|(name, ..)| *name);
    assert_eq!(told, [("late shift", Role::Viewer, false), ("operator", Role::Admin, true)]);
    let text = serde_json::to_string(&listed).unwrap();
    assert!(!text.contains(viewer.split_once('=').unwrap().1), "no cookie is told");
    let refused_list = server.page_call(Method::GET, "/sessions", &viewer).send().await.unwrap();
    assert_eq!(refused(refused_list).await, refusal(403, "access.role_needed"));
    let id = &listed.items.iter().find(|session| !session.own).unwrap().id;
    let end = async |id: &str| server.post(&format!("/sessions/{id}/end")).send().await.unwrap();
    assert_eq!(end(id).await.status(), StatusCode::NO_CONTENT);
    let read = async |cookie: &str| server.page_call(Method::GET, "/campaigns", cookie).send().await.unwrap();
    assert_eq!(refused(read(&viewer).await).await, refusal(401, "auth.session_ended"));
    assert_eq!(read(&admin).await.status(), StatusCode::OK, "the others stay");
    for unknown in [id.as_str(), "0", "%25", "zzzzzzzzzzzzzzzz"] {
        assert_eq!(refused(end(unknown).await).await, refusal(404, "session.not_found"), "{unknown}");
    }
    // The end of a token ends its sessions.
    server.sign_in(&made.secret).await;
    server.post(&format!("/tokens/{}/revoke", made.token.id)).send().await.unwrap();
    let left: Page<OpenSession> = ok(server.get("/sessions").send().await.unwrap()).await;
    assert_eq!(left.items.iter().map(|session| session.name.as_str()).collect::<Vec<_>>(), ["operator"]);
    server.stop().await;
}

#[tokio::test]
async fn a_large_body_is_refused_before_it_is_read_as_a_whole() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let wish = format!("{{\"token\": \"{}\"}}", "x".repeat(100_000));
    let call = server.bare(Method::POST, "/api/v1/session").header("content-type", "application/json").body(wish);
    assert_eq!(refused(call.send().await.unwrap()).await, refusal(413, "request.too_large"));
    server.stop().await;
}

#[tokio::test]
async fn an_address_that_tries_to_sign_in_too_often_is_refused() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let tries = (0..200)
        .map(|_| server.bare(Method::POST, "/api/v1/session").json(&serde_json::json!({ "token": "a guess" })).send());
    let answers = futures::future::join_all(tries).await;
    let mut statuses: Vec<u16> = answers.into_iter().map(|answer| answer.unwrap().status().as_u16()).collect();
    statuses.sort_unstable();
    statuses.dedup();
    assert_eq!(statuses, [401, 429]);
    // Calls other than sign-ins are answered.
    assert_eq!(server.bare(Method::GET, "/api/v1/session").send().await.unwrap().status(), 200);
    server.stop().await;
}
