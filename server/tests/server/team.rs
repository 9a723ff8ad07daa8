//! Tests of notes, tags, pins, views and links.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nightshift_protocol::access::{CreateToken, Role, TokenCreated};
use nightshift_protocol::api::{Page, Pin, Remark, SavedView, SessionView, Share, ShareCreated, Tag, TagCount, Target};
use nightshift_protocol::id::RunId;
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};

use crate::replicas::{Shared, on_both, replica};
use crate::setup::{OPERATOR, TestServer, WORKER, Wish, ok, refusal, refused, until};
use crate::tokens::Shifted;

impl TestServer {
    async fn secret(&self, name: &str, role: Role) -> String {
        let request = CreateToken { name: name.to_owned(), role, valid_for_ms: None };
        ok::<TokenCreated>(self.post("/tokens").json(&request).send().await.unwrap()).await.secret
    }

    async fn send(&self, method: Method, path: &str, token: &str, body: &Value) -> Response {
        self.call(method, path, token).json(body).send().await.unwrap()
    }

    async fn share(&self, target: &Target) -> ShareCreated {
        let wish = json!({ "target": target, "label": "for the review", "valid_for_ms": 3_600_000 });
        ok(self.post("/shares").json(&wish).send().await.unwrap()).await
    }

    async fn read_by(&self, path: &str, secret: &str) -> Response {
        self.call(Method::GET, path, secret).send().await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notes_tags_and_pins_are_found_by_what_they_are_about() {
    on_both(async |shared: Shared| {
        let server = shared.server(replica()).await;
        let (created, run) = server.campaign().await;
        let (_, other) = server.campaign().await;
        let campaign = created.campaign;
        let hostile = "**faster** <script>alert(1)</script>\n\u{202e}x";
        for (target, text) in
            [(campaign.to_string(), "the night"), (run.to_string(), hostile), (other.to_string(), "x")]
        {
            let note: Remark =
                ok(server.post("/notes").json(&json!({ "target": target, "text": text })).send().await.unwrap()).await;
            assert_eq!((note.text.as_str(), note.author.as_str()), (text, "operator"));
        }
        let texts = async |query: &str| {
            let notes: Page<Remark> = server.read(&format!("/notes?{query}")).await;
            notes.items.into_iter().map(|note| note.text).collect::<Vec<_>>()
        };
        assert_eq!(texts(&format!("target={run}")).await, [hostile]);
        assert_eq!(texts(&format!("target={campaign}")).await, ["the night"]);
        assert_eq!(texts(&format!("target={campaign}&within=true")).await, [hostile, "the night"], "newest first");
        assert_eq!(texts("").await.len(), 3);
        // Page by page.
        let first: Page<Remark> = server.read("/notes?limit=2").await;
        let rest: Page<Remark> = server.read(&format!("/notes?limit=2&before={}", first.next.unwrap())).await;
        assert_eq!((first.items.len(), rest.items.len(), rest.next), (2, 1, None));

        let change = async |body: Value| server.post("/tags").json(&body).send().await.unwrap();
        let tags: Page<Tag> = ok(change(json!({ "target": run, "add": ["keep", "fused", "keep"] })).await).await;
        assert_eq!(tags.items.len(), 2);
        let tags: Page<Tag> = ok(change(json!({ "target": run, "remove": ["fused", "unknown"] })).await).await;
        assert_eq!(tags.items.iter().map(|tag| tag.tag.as_str()).collect::<Vec<_>>(), ["keep"]);
        let _: Page<Tag> = ok(change(json!({ "target": campaign, "add": ["keep", "slow"] })).await).await;
        let names: Page<TagCount> = server.read("/tags/names").await;
        let names: Vec<_> = names.items.iter().map(|name| (name.tag.as_str(), name.targets)).collect();
        assert_eq!(names, [("keep", 2), ("slow", 1)]);
        let kept: Page<Tag> = server.read("/tags?tag=keep").await;
        assert_eq!(kept.items.len(), 2);
        let many: Vec<String> = (0..50).map(|number| format!("tag {number}")).collect();
        assert_eq!(refused(change(json!({ "target": run, "add": many })).await).await, refusal(409, "tag.too_many"));
        let still: Page<Tag> = server.read(&format!("/tags?target={run}")).await;
        assert_eq!(still.items.len(), 1, "all or nothing");

        let pin = async |body: Value| ok::<Page<Pin>>(server.post("/pins").json(&body).send().await.unwrap()).await;
        pin(json!({ "target": run, "pinned": true, "label": "baseline" })).await;
        let pinned = pin(json!({ "target": run, "pinned": true, "label": "the best" })).await;
        assert_eq!(pinned.items.iter().map(|pin| pin.label.as_str()).collect::<Vec<_>>(), ["the best"]);
        let of_campaign: Page<Pin> = server.read(&format!("/pins?target={campaign}&within=true")).await;
        assert_eq!(of_campaign.items.iter().map(|pin| &pin.campaign).collect::<Vec<_>>(), [&campaign]);
        assert!(pin(json!({ "target": run, "pinned": false })).await.items.is_empty());
        server.stop().await;
    })
    .await;
}

#[tokio::test]
async fn invalid_targets_of_notes_tags_and_pins_are_refused() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let (_, run) = server.campaign().await;
    let unknown = "run_00000000000000000000000000000000";
    for (path, body, status, code) in [
        ("/notes", json!({ "target": run, "text": " \n" }), 400, "note.invalid_text"),
        ("/notes", json!({ "target": run, "text": "x".repeat(65_537) }), 400, "note.invalid_text"),
        ("/notes", json!({ "target": unknown, "text": "x" }), 404, "run.not_found"),
        ("/notes", json!({ "target": format!("{run}/1"), "text": "x" }), 404, "attempt.not_found"),
        ("/notes", json!({ "target": "softmax", "text": "x" }), 400, "request.invalid"),
        ("/tags", json!({ "target": run, "add": ["a,b"] }), 400, "tag.invalid"),
        ("/tags", json!({ "target": run, "add": [" a"] }), 400, "tag.invalid"),
        ("/tags", json!({ "target": run, "add": [""] }), 400, "tag.invalid"),
        ("/tags", json!({ "target": unknown, "remove": ["a"] }), 404, "run.not_found"),
        ("/pins", json!({ "target": run, "pinned": true, "label": "x".repeat(201) }), 400, "pin.invalid_label"),
        ("/pins", json!({ "target": unknown, "pinned": false }), 404, "run.not_found"),
        ("/views", json!({ "name": "x", "page": "Attempts" }), 400, "view.invalid"),
        ("/views", json!({ "name": " ", "page": "attempts" }), 400, "view.invalid"),
        ("/shares", json!({ "target": format!("{run}/1"), "valid_for_ms": 60_000 }), 400, "share.invalid"),
        ("/shares", json!({ "target": run, "valid_for_ms": 1 }), 400, "share.invalid"),
        ("/shares", json!({ "target": unknown, "valid_for_ms": 60_000 }), 404, "run.not_found"),
    ] {
        let answer = server.send(Method::POST, path, OPERATOR, &body).await;
        assert_eq!(refused(answer).await, refusal(status, code), "{path} {body}");
    }
    for path in ["/notes?target=x", "/notes?before=x", "/tags?colour=red"] {
        let (status, code) = refused(server.get(path).send().await.unwrap()).await;
        assert_eq!(code, "request.invalid_query", "{path}: {status}");
    }
    server.stop().await;
}

#[tokio::test]
async fn only_the_author_or_an_administrator_changes_a_text() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let (_, run) = server.campaign().await;
    let (ada, ben) = (server.secret("ada", Role::Operator).await, server.secret("ben", Role::Operator).await);
    let viewer = server.secret("guest", Role::Viewer).await;
    let body = json!({ "target": run, "text": "mine" });
    assert_eq!(server.send(Method::POST, "/notes", &viewer, &body).await.status(), StatusCode::FORBIDDEN);
    assert_eq!(server.send(Method::POST, "/notes", WORKER, &body).await.status(), StatusCode::FORBIDDEN);
    let note: Remark = ok(server.send(Method::POST, "/notes", &ada, &body).await).await;
    let path = format!("/notes/{}", note.id);
    let edit = json!({ "text": "ours" });
    assert_eq!(refused(server.send(Method::PUT, &path, &ben, &edit).await).await, refusal(403, "access.not_yours"));
    let edited: Remark = ok(server.send(Method::PUT, &path, &ada, &edit).await).await;
    assert_eq!((edited.text.as_str(), edited.edited_at.is_some()), ("ours", true));
    assert_eq!(
        refused(server.send(Method::DELETE, &path, &ben, &json!({})).await).await,
        refusal(403, "access.not_yours")
    );
    assert_eq!(server.send(Method::DELETE, &path, OPERATOR, &json!({})).await.status(), StatusCode::NO_CONTENT);
    let again = server.send(Method::DELETE, &path, OPERATOR, &json!({})).await;
    assert_eq!(refused(again).await, refusal(404, "note.not_found"));

    // Views require a caller with a name.
    let view =
        json!({ "name": "slow ones", "page": "attempts", "query": "sort=speedup&max_speedup=1", "shared": false });
    let anonymous = server.bare(Method::POST, "/api/v1/views").json(&view).send().await.unwrap();
    assert_eq!(refused(anonymous).await, refusal(401, "auth.required"));
    let saved: SavedView = ok(server.send(Method::POST, "/views", &viewer, &view).await).await;
    let seen = async |token: &str| {
        let views: Page<SavedView> = ok(server.read_by("/views?page=attempts", token).await).await;
        views.items.len()
    };
    assert_eq!((seen(&viewer).await, seen(&ada).await), (1, 0));
    let path = format!("/views/{}", saved.id);
    let shared = json!({ "name": "slow ones", "page": "attempts", "query": "", "shared": true });
    assert_eq!(refused(server.send(Method::PUT, &path, &ada, &shared).await).await, refusal(403, "access.not_yours"));
    let changed: SavedView = ok(server.send(Method::PUT, &path, &viewer, &shared).await).await;
    assert!(changed.shared && changed.owner == "guest");
    assert_eq!(seen(&ada).await, 1);
    assert_eq!(server.send(Method::DELETE, &path, &viewer, &json!({})).await.status(), StatusCode::NO_CONTENT);
    assert_eq!(seen(&viewer).await, 0);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_leads_to_one_thing_and_nowhere_else() {
    on_both(async |shared: Shared| {
        let wish = Wish { reads_need_token: true, ..replica() };
        let server = shared.server(wish).await;
        let (created, run) = server.campaign().await;
        let (other_created, other) = server.campaign().await;
        let (campaign, foreign) = (created.campaign, other_created.campaign);
        let by_run = server.share(&Target::Run(run.clone())).await.secret;
        let by_campaign = server.share(&Target::Campaign(campaign.clone())).await.secret;
        let open = |path: String, secret: &str| {
            let secret = secret.to_owned();
            let server = &server;
            async move { server.read_by(&path, &secret).await.status() }
        };
        for secret in [&by_run, &by_campaign] {
            for path in [
                format!("/runs/{run}"),
                format!("/runs/{run}/steps"),
                format!("/runs/{run}/events"),
                format!("/tables/steps?run={run}&format=csv"),
                format!("/tables/events?run={run}&format=parquet"),
            ] {
                assert_eq!(open(path.clone(), secret).await, StatusCode::OK, "{path}");
            }
            for path in [
                "/campaigns".to_owned(),
                "/runs".to_owned(),
                "/workers".to_owned(),
                "/tokens".to_owned(),
                "/shares".to_owned(),
                "/notes".to_owned(),
                "/live".to_owned(),
                "/views".to_owned(),
                format!("/ids/{}", &other.as_str()[4..12]),
                format!("/runs/{other}"),
                format!("/runs/{other}?x={run}"),
                format!("/runs/{run}/events?after=0&x={other}"),
                format!("/runs/run%5F{}?x={run}", &other.as_str()[4..]),
                format!("/campaigns/{foreign}"),
                format!("/runs?campaign={foreign}"),
                format!("/live?run={other}"),
                "/tables/attempts".to_owned(),
                "/tables/campaigns".to_owned(),
                "/tables/workers".to_owned(),
                format!("/tables/workers?run={run}"),
                format!("/tables/tasks?run={run}"),
                format!("/tables/runs?campaign={foreign}"),
                format!("/tables/steps?run={other}"),
                format!("/tables/events?run={run}&run={other}"),
                format!("/attempts/at/{other}/1/model-new"),
                format!("/attempts/at/{other}/1/project?x={run}"),
            ] {
                let answer = server.read_by(&path, secret).await;
                assert_eq!(refused(answer).await.0, 403, "{path}");
            }
            // The link permits it. The run has no attempt yet, which is another error.
            let program = server.read_by(&format!("/attempts/at/{run}/1/project"), secret).await;
            assert_eq!(refused(program).await, refusal(404, "attempt.not_found"));
            let program = server.read_by(&format!("/attempts/at/1/1/project?run={run}"), secret).await;
            assert_eq!(refused(program).await, refusal(404, "attempt.not_found"));
            // The link permits no changes.
            let control = json!({ "action": "pause" });
            let answer = server.send(Method::POST, &format!("/runs/{run}/control"), secret, &control).await;
            assert_eq!(answer.status(), StatusCode::FORBIDDEN);
            let metrics = server.bare(Method::GET, "/metrics").bearer_auth(secret).send().await.unwrap();
            assert_eq!(refused(metrics).await, refusal(403, "access.link_limited"));
        }
        assert_eq!(open(format!("/campaigns/{campaign}"), &by_campaign).await, StatusCode::OK);
        assert_eq!(open(format!("/runs?campaign={campaign}"), &by_campaign).await, StatusCode::OK);
        assert_eq!(open(format!("/live?campaign={campaign}"), &by_campaign).await, StatusCode::OK);
        assert_eq!(open(format!("/tables/runs?campaign={campaign}"), &by_campaign).await, StatusCode::OK);
        assert_eq!(open(format!("/campaigns/{campaign}"), &by_run).await, StatusCode::FORBIDDEN);
        assert_eq!(open(format!("/live?run={run}"), &by_run).await, StatusCode::OK);
        server.stop().await;
    })
    .await;
}

#[tokio::test]
async fn artifacts_are_read_by_a_link_when_its_run_names_them() {
    let (server, _folder) = TestServer::start(Wish { reads_need_token: true, ..Wish::default() }).await;
    let (_, run) = server.campaign().await;
    let stranger = server.put_artifact(b"unreferenced").await;
    let secret = server.share(&Target::Run(run.clone())).await.secret;
    let detail: Value = server.read(&format!("/runs/{run}")).await;
    let task = detail["view"]["task"].as_str().unwrap();
    assert_eq!(server.read_by(&format!("/artifacts/{task}"), &secret).await.status(), StatusCode::OK);
    let answer = server.read_by(&format!("/artifacts/{stranger}"), &secret).await;
    assert_eq!(refused(answer).await, refusal(403, "access.link_limited"));
    let answer = server.read_by(&format!("/artifacts/{stranger}?x={run}"), &secret).await;
    assert_eq!(refused(answer).await, refusal(403, "access.link_limited"));
    server.stop().await;
}

#[tokio::test]
async fn a_link_ends_when_it_is_revoked_and_when_its_time_is_over() {
    let clock = Arc::new(Shifted(AtomicU64::new(0)));
    let (server, folder) = TestServer::start(Wish { clock: clock.clone(), ..Wish::default() }).await;
    let (_, run): (_, RunId) = server.campaign().await;
    let target = Target::Run(run.clone());
    let (revoked, timed) = (server.share(&target).await, server.share(&target).await);
    assert!(!format!("{revoked:?}").contains(&revoked.secret));
    let path = format!("/runs/{run}");
    // A browser that used the link.
    let answer =
        server.bare(Method::POST, "/api/v1/session").json(&json!({ "token": revoked.secret })).send().await.unwrap();
    let cookie = answer.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    let session: SessionView = ok(answer).await;
    assert_eq!((session.role, session.limited_to), (Some(Role::Viewer), Some(target)));
    let by_cookie = async |path: &str| {
        let call = server.bare(Method::GET, &format!("/api/v1{path}")).header("cookie", &cookie);
        call.send().await.unwrap()
    };
    assert_eq!(by_cookie(&path).await.status(), StatusCode::OK);
    assert_eq!(refused(by_cookie("/campaigns").await).await, refusal(403, "access.link_limited"));

    let ended: Share = ok(server.post(&format!("/shares/{}/revoke", revoked.share.id)).send().await.unwrap()).await;
    assert!(ended.revoked_at.is_some());
    assert_eq!(refused(server.read_by(&path, &revoked.secret).await).await, refusal(401, "token.revoked"));
    // Where reading is public, a caller with an ended link counts as anonymous.
    until("the end of the session", || async {
        let session: SessionView = ok(by_cookie("/session").await).await;
        session.limited_to.is_none().then_some(())
    })
    .await;
    clock.0.store(3_600_000, Ordering::SeqCst);
    assert_eq!(refused(server.read_by(&path, &timed.secret).await).await, refusal(401, "token.expired"));
    let listed: Page<Share> = server.read("/shares").await;
    assert_eq!(listed.items.len(), 2, "those that are over, too");
    server.stop().await;
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap_or_default();
        let secret = timed.secret.as_bytes();
        assert!(!bytes.windows(secret.len()).any(|window| window == secret), "the secret is kept");
    }
}
