//! Tests of creating, listing and controlling campaigns.

use nightshift_protocol::api::{
    CampaignCreated, CampaignDetail, CampaignPage, CampaignSummary, Control, ControlAction, Controlled, CreateCampaign,
    IdMatches, Page, RunSummary,
};
use nightshift_protocol::campaign::ModelChoice;
use nightshift_protocol::models::{AgentRole, RoleModel};
use nightshift_protocol::run::RunStatus;
use nightshift_server::{MAX_JSON_BYTES, MAX_TASKS};
use reqwest::header::CONTENT_TYPE;

use crate::setup::{TestServer, Wish, bundle_bytes, ok, refusal, refused};

#[tokio::test]
async fn the_same_key_with_the_same_request_creates_one_campaign() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let request = server.request(&["softmax", "stencil"]).await;
    let first: CampaignCreated = ok(server.create(&request, Some("tonight")).await).await;
    let second: CampaignCreated = ok(server.create(&request, Some("tonight")).await).await;
    assert!(!first.existed && second.existed);
    assert_eq!((&first.campaign, &first.runs), (&second.campaign, &second.runs));
    let without: CampaignCreated = ok(server.create(&request, None).await).await;
    assert_ne!(without.campaign, first.campaign);

    let other = server.request(&["softmax"]).await;
    assert_eq!(
        refused(server.create(&other, Some("tonight")).await).await,
        refusal(409, "request.idempotency_conflict")
    );
    assert_eq!(
        refused(server.create(&request, Some(&"k".repeat(129))).await).await,
        refusal(400, "request.invalid_idempotency_key")
    );
    server.stop().await;
}

#[tokio::test]
async fn a_campaign_is_examined_before_anything_is_stored() {
    type Change = fn(&mut CreateCampaign);
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let good = server.request(&["softmax"]).await;
    let changes: &[(&str, Change)] = &[
        ("campaign.unsupported_schema", |request| request.spec.schema = 2),
        ("campaign.invalid_name", |request| request.spec.name = " ".to_owned()),
        ("campaign.invalid_name", |request| request.spec.name = "a\u{7}".to_owned()),
        ("campaign.unknown_strategy", |request| request.spec.strategy = "magic".to_owned()),
        ("campaign.task_count", |request| request.spec.tasks.clear()),
        ("campaign.task_count", |request| request.spec.tasks = vec![request.spec.tasks[0].clone(); MAX_TASKS + 1]),
        ("campaign.duplicate_task", |request| request.spec.tasks.push(request.spec.tasks[0].clone())),
        ("campaign.invalid_task_name", |request| request.spec.tasks[0].name = "../x".to_owned()),
        ("campaign.invalid_goal", |request| request.spec.goal.max_attempts = Some(0)),
        ("campaign.invalid_goal", |request| request.spec.goal.target_speedup = Some(-1.0)),
        ("campaign.invalid_goal", |request| request.spec.goal.max_variants = Some(257)),
        ("campaign.invalid_goal", |request| request.spec.goal.max_fix_turns = Some(11)),
        ("campaign.invalid_goal", |request| request.spec.goal.max_turns = Some(201)),
        // `stitch` writes one candidate at a time.
        ("campaign.invalid_goal", |request| request.spec.goal.candidates_per_round = Some(2)),
        ("campaign.replies_missing", |request| request.spec.tasks[0].scripted_replies = None),
        ("campaign.invalid_model", |request| {
            request.spec.model = ModelChoice::Live { endpoint: String::new(), model: "m".to_owned() };
        }),
        ("campaign.unknown_price", |request| {
            let unpriced = ModelChoice::Live { endpoint: "lab".to_owned(), model: "unpriced".to_owned() };
            request.spec.models.fallback.push(unpriced);
            request.spec.budget.cost_microusd = Some(1);
        }),
        ("campaign.unknown_endpoint", |request| {
            request.spec.model = ModelChoice::Live { endpoint: "nowhere".to_owned(), model: "m".to_owned() };
        }),
        ("campaign.unknown_endpoint", |request| {
            let spare = ModelChoice::Live { endpoint: "nowhere".to_owned(), model: "m".to_owned() };
            request.spec.models.fallback.push(spare);
        }),
        ("campaign.invalid_model", |request| {
            let role = RoleModel { temperature: Some(-1.0), ..RoleModel::default() };
            request.spec.models.roles.insert(AgentRole::Judge, role);
        }),
        ("campaign.invalid_model", |request| {
            let role = RoleModel { max_output_tokens: Some(0), ..RoleModel::default() };
            request.spec.models.roles.insert(AgentRole::Coder, role);
        }),
        ("campaign.invalid_model", |request| {
            request.spec.models.fallback = vec![ModelChoice::Scripted; 9];
        }),
        ("campaign.artifact_missing", |request| {
            request.spec.tasks[0].bundle = nightshift_protocol::artifact::ArtifactHash::of(b"never uploaded");
        }),
    ];
    for (code, change) in changes {
        let mut request = good.clone();
        change(&mut request);
        assert_eq!(refused(server.create(&request, None).await).await, refusal(400, code));
    }
    let campaigns: Page<CampaignSummary> = server.read("/campaigns").await;
    assert!(campaigns.items.is_empty());
    server.stop().await;
}

#[tokio::test]
async fn the_artifacts_of_a_task_are_read_before_its_run_begins() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let good = server.request(&["softmax"]).await;
    let bundle = String::from_utf8(bundle_bytes()).unwrap();
    let bundles = [
        ("task.malformed", "{}".to_owned()),
        ("task.malformed", "no json".to_owned()),
        ("task.unsupported_schema", bundle.replace("\"schema\":1", "\"schema\":7")),
        ("task.form_unverified", bundle.replace("\"schema\":1", "\"schema\":1,\"form\":\"torch\"")),
        ("task.invalid_shape", bundle.replace("\"n\":16", "\"n\":0")),
        ("task.invalid_shape", bundle.replace("\"n\":16", "\"n\":9007199254740993")),
        ("task.invalid_shape", bundle.replace("\"n\":16", "\"m\":16")),
    ];
    for (code, text) in bundles {
        let mut request = good.clone();
        request.spec.tasks[0].bundle = server.put_artifact(text.as_bytes()).await;
        assert_eq!(refused(server.create(&request, None).await).await, refusal(400, code), "{text}");
    }
    let mut request = good.clone();
    request.spec.tasks[0].scripted_replies = Some(server.put_artifact(b"[]").await);
    assert_eq!(refused(server.create(&request, None).await).await, refusal(400, "campaign.replies_malformed"));
    server.stop().await;
}

#[tokio::test]
async fn a_body_that_is_no_request_is_refused_for_what_it_is() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let send =
        |kind: &'static str, body: String| server.post("/campaigns").header(CONTENT_TYPE, kind).body(body).send();
    let json = "application/json";
    let cases = [
        (json, "{\"spec\":".to_owned(), refusal(400, "request.malformed_json")),
        (json, "{\"spec\": 7}".to_owned(), refusal(400, "request.invalid")),
        (json, String::new(), refusal(400, "request.malformed_json")),
        ("text/plain", "{}".to_owned(), refusal(415, "request.content_type")),
        (json, " ".repeat(MAX_JSON_BYTES + 1), refusal(413, "request.too_large")),
    ];
    for (kind, body, expected) in cases {
        assert_eq!(refused(send(kind, body).await.unwrap()).await, expected);
    }
    server.stop().await;
}

#[tokio::test]
async fn pages_follow_each_other_without_gaps() {
    let wish = Wish { drives: false, ..Wish::default() };
    let (server, _folder) = TestServer::start(wish).await;
    let mut newest_first = Vec::new();
    for _ in 0..5 {
        newest_first.insert(0, server.campaign().await.0.campaign);
    }
    let mut seen = Vec::new();
    let mut path = "/campaigns?limit=2".to_owned();
    loop {
        let page: Page<CampaignSummary> = server.read(&path).await;
        assert!(page.items.len() <= 2);
        seen.extend(page.items.into_iter().map(|campaign| campaign.id));
        let Some(next) = page.next else { break };
        path = format!("/campaigns?limit=2&before={next}");
    }
    assert_eq!(seen, newest_first);

    let request = server.request(&["a", "b", "c"]).await;
    let created: CampaignCreated = ok(server.create(&request, None).await).await;
    let path = format!("/runs?campaign={}&limit=2", created.campaign);
    let first: Page<RunSummary> = server.read(&path).await;
    let rest: Page<RunSummary> = server.read(&format!("{path}&before={}", first.next.unwrap())).await;
    let tasks: Vec<String> = first.items.into_iter().chain(rest.items).map(|run| run.digest.task).collect();
    assert_eq!(tasks, ["a", "b", "c"]);
    assert_eq!(rest.next, None);

    let completed: Page<RunSummary> = server.read("/runs?status=completed").await;
    assert!(completed.items.is_empty());
    for query in ["limit=0", "limit=501", "limit=x", "status=sleeping", "campaign=x", "colour=red"] {
        let answer = server.get(&format!("/runs?{query}")).send().await.unwrap();
        assert_eq!(refused(answer).await, refusal(400, "request.invalid_query"), "{query}");
    }
    server.stop().await;
}

#[tokio::test]
async fn an_id_that_names_nothing_is_not_found() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let unknown = "0".repeat(32);
    let calls = [
        (format!("/campaigns/cmp_{unknown}"), "campaign.not_found"),
        ("/campaigns/xyz".to_owned(), "campaign.not_found"),
        (format!("/runs?campaign=cmp_{unknown}"), "campaign.not_found"),
        (format!("/runs/run_{unknown}"), "run.not_found"),
        (format!("/runs/cmp_{unknown}"), "run.not_found"),
        (format!("/runs/run_{unknown}/events"), "run.not_found"),
        (format!("/runs/run_{unknown}/steps"), "run.not_found"),
    ];
    for (path, code) in calls {
        assert_eq!(refused(server.get(&path).send().await.unwrap()).await, refusal(404, code), "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_part_of_an_id_gives_everything_it_may_mean() {
    let (server, _folder) = TestServer::start(Wish { drives: false, ..Wish::default() }).await;
    let request = server.request(&["a", "b"]).await;
    let created: CampaignCreated = ok(server.create(&request, None).await).await;
    let all: IdMatches = server.read("/ids/run_").await;
    assert_eq!((all.campaigns.len(), all.runs.len()), (0, 2));
    let exact: IdMatches = server.read(&format!("/ids/{}", created.runs[0])).await;
    assert_eq!(exact.runs, [created.runs[0].clone()]);
    let by_its_end: IdMatches = server.read(&format!("/ids/{}", created.campaign.short().to_uppercase())).await;
    assert_eq!(by_its_end.campaigns, [created.campaign]);
    let none: IdMatches = server.read("/ids/zzz").await;
    assert!(none.campaigns.is_empty() && none.runs.is_empty());
    for text in ["a%25b", &"a".repeat(37)] {
        let answer = server.get(&format!("/ids/{text}")).send().await.unwrap();
        assert_eq!(refused(answer).await, refusal(400, "request.invalid_id"));
    }
    server.stop().await;
}

#[tokio::test]
async fn a_campaign_shows_its_runs_in_the_order_of_its_tasks() {
    let (server, _folder) = TestServer::start(Wish { drives: false, ..Wish::default() }).await;
    let request = server.request(&["z", "a", "m"]).await;
    let created: CampaignCreated = ok(server.create(&request, None).await).await;
    let detail: CampaignDetail = server.read(&format!("/campaigns/{}", created.campaign)).await;
    assert_eq!(detail.spec, request.spec);
    assert!(detail.summary.scripted);
    assert_eq!(detail.summary.runs.running, 3);
    let shown: Vec<_> = detail.runs.iter().map(|run| (run.id.clone(), run.digest.task.clone())).collect();
    let tasks = ["z", "a", "m"].map(str::to_owned);
    assert_eq!(shown, created.runs.into_iter().zip(tasks).collect::<Vec<_>>());
    server.stop().await;
}

#[tokio::test]
async fn a_campaign_is_paused_resumed_and_cancelled_as_a_whole() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let request = server.request(&["a", "b"]).await;
    let created: CampaignCreated = ok(server.create(&request, None).await).await;
    let path = format!("/campaigns/{}/control", created.campaign);
    let control =
        async |action| ok::<Controlled>(server.post(&path).json(&Control { action }).send().await.unwrap()).await.runs;
    let both = |status: RunStatus| created.runs.iter().map(|run| (run.clone(), status)).collect::<Vec<_>>();
    assert_eq!(control(ControlAction::Pause).await, both(RunStatus::Paused));
    assert_eq!(control(ControlAction::Resume).await, both(RunStatus::Running));

    let alone = format!("/runs/{}/control", created.runs[0]);
    let cancel = Control { action: ControlAction::Cancel };
    let cancelled: Controlled = ok(server.post(&alone).json(&cancel).send().await.unwrap()).await;
    assert_eq!(cancelled.runs, [(created.runs[0].clone(), RunStatus::Cancelling)]);
    server.until_status(&created.runs[0], RunStatus::Cancelled).await;
    // The finished run is skipped; on its own, it cannot be paused any more.
    assert_eq!(control(ControlAction::Pause).await, [(created.runs[1].clone(), RunStatus::Paused)]);
    let pause = Control { action: ControlAction::Pause };
    let answer = server.post(&alone).json(&pause).send().await.unwrap();
    assert_eq!(refused(answer).await, refusal(409, "request.illegal_transition"));
    let unknown = server.post(&path).json(&serde_json::json!({ "action": "explode" })).send().await.unwrap();
    assert_eq!(refused(unknown).await, refusal(400, "request.invalid"));
    server.stop().await;
}

#[tokio::test]
async fn campaigns_are_filtered_sorted_and_counted_by_the_server() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let mut ids = Vec::new();
    for name in ["beta night", "Alpha night", "gamma day"] {
        let mut request = server.request(&["softmax"]).await;
        request.spec.name = name.to_owned();
        let created: CampaignCreated = ok(server.create(&request, None).await).await;
        ids.push(created.campaign);
    }
    let pause = Control { action: ControlAction::Pause };
    let paused = server.post(&format!("/campaigns/{}/control", ids[1])).json(&pause).send().await.unwrap();
    assert_eq!(paused.status(), 200);
    let list = async |query: &str| -> CampaignPage { server.read(&format!("/campaigns?{query}")).await };
    let names = |page: &CampaignPage| page.items.iter().map(|item| item.name.clone()).collect::<Vec<_>>();

    let newest = list("limit=2").await;
    assert_eq!((names(&newest), newest.total), (vec!["gamma day".to_owned(), "Alpha night".to_owned()], 3));
    let rest = list(&format!("limit=2&before={}", newest.next.unwrap())).await;
    assert_eq!((names(&rest), rest.total, rest.next), (vec!["beta night".to_owned()], 3, None));

    let nights = list("q=NIGHT&sort=name&order=asc&limit=1").await;
    assert_eq!((names(&nights), nights.total, nights.any_status), (vec!["Alpha night".to_owned()], 2, 2));
    let after = list(&format!("q=NIGHT&sort=name&order=asc&limit=1&before={}", nights.next.unwrap())).await;
    assert_eq!(names(&after), ["beta night"]);
    let paused = list("status=paused").await;
    assert_eq!((names(&paused), paused.total, paused.any_status), (vec!["Alpha night".to_owned()], 1, 3));
    assert_eq!(paused.by_status.iter().find(|facet| facet.value == "unfinished").map(|facet| facet.count), Some(3));
    assert_eq!(list("name=beta%20night").await.total, 1);

    for query in ["status=open", "sort=luck", "limit=0", "colour=red", "before=x", "sort=name&before=cmp_1"] {
        let answer = server.get(&format!("/campaigns?{query}")).send().await.unwrap();
        assert_eq!(refused(answer).await, refusal(400, "request.invalid_query"), "{query}");
    }
    server.stop().await;
}
