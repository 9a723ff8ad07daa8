//! Tests of attempts over all runs: the index follows the commits, and lists, points, boards and searches use it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use nightshift_engine::store::RunStore as _;
use nightshift_engine::workflow::WorkflowError;
use nightshift_protocol::api::{
    AttemptPage, AttemptPoints, AttemptRow, CampaignCreated, CampaignDetail, CampaignPage, CampaignResults, ModelBoard,
    POINTS_CONTENT_TYPE, Page, RunView, SearchKind, SearchPage, TaskBoard,
};
use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::baseline::{Baseline, BaselineKind};
use nightshift_protocol::error::{ApiError, ApiErrorBody};
use nightshift_protocol::id::RunId;
use nightshift_protocol::measurement::Interval;
use nightshift_protocol::run::RunStatus;
use nightshift_store::SqlStore;
use reqwest::{Response, StatusCode};
use serde_json::Value;
use tempfile::TempDir;

use crate::replicas::replica;
use crate::setup::{TestServer, Wish, ok, open_store, until};
use crate::toy;

/// Number of attempts of the recorded run.
const RECORDED: u64 = 3;
/// Name of a task whose run the second of two servers does not own.
const FOREIGN: &str = "foreign";

/// Number of times that the second server read the state of that run for the index.
static FOREIGN_READS: AtomicUsize = AtomicUsize::new(0);

/// Returns the toy's view of its run, with the attempts of a recorded run and a baseline 1.25 times as fast as the
/// reference.
pub(crate) fn view(state: &Value) -> Result<RunView, WorkflowError> {
    let text = include_str!("../../../optimizer/tests/corpus/history/repaired_to_the_target.json");
    let recorded: Value = serde_json::from_str(text).unwrap();
    let mut recorded = nightshift_optimizer::strategy::view(&recorded["state"])?;
    let mut measurement = recorded.attempts.iter().find_map(Attempt::published).unwrap().clone();
    measurement.speedup = Interval { estimate: 1.25, low: 1.2, high: 1.3 };
    let library = Baseline {
        kind: BaselineKind::Library,
        measurement: Some(Box::new(measurement)),
        reason: None,
        is_fault: false,
    };
    recorded.prepared.as_mut().unwrap().baselines = vec![library];
    Ok(RunView { task: toy::view(state)?.task, ..recorded })
}

fn counting_view(state: &Value) -> Result<RunView, WorkflowError> {
    FOREIGN_READS.fetch_add(usize::from(state["input"]["task_name"] == FOREIGN), Ordering::SeqCst);
    view(state)
}

fn wish(store: &Arc<SqlStore>) -> Wish {
    Wish { attempts: Some(store.clone()), view, ..Wish::default() }
}

pub(crate) async fn start() -> (TestServer, Arc<SqlStore>, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let store = open_store(&folder).await;
    let server = TestServer::on(store.ports(), wish(&store)).await;
    (server, store, folder)
}

/// Returns status and error of a refusal.
async fn error_of(response: Response) -> (StatusCode, ApiError) {
    let status = response.status();
    (status, response.json::<ApiErrorBody>().await.unwrap().error)
}

/// Returns a run whose attempts are in the index.
pub(crate) async fn indexed_run(server: &TestServer) -> RunId {
    let (_, run) = server.campaign().await;
    until_indexed(server, &run).await;
    run
}

async fn until_indexed(server: &TestServer, run: &RunId) {
    let path = format!("/attempts?run={run}");
    until("an index of the run", async || {
        let page: AttemptPage = server.read(&path).await;
        (page.total == RECORDED).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_run_is_written_into_the_index_by_its_owner_alone() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_store(&folder).await;
    let server = async |view| {
        let wish = Wish { pulse_ms: 60_000, attempts: Some(store.clone()), view, ..replica() };
        TestServer::on(store.ports(), wish).await
    };
    let (owner, other) = (server(view).await, server(counting_view).await);
    // After the first run, the scan at the start is over.
    indexed_run(&other).await;
    let request = owner.request(&[FOREIGN]).await;
    let created: CampaignCreated = ok(owner.create(&request, None).await).await;
    until_indexed(&owner, &created.runs[0]).await;
    // The notices of this run follow those of the other one.
    indexed_run(&other).await;
    assert_eq!(FOREIGN_READS.load(Ordering::SeqCst), 0);
    owner.stop().await;
    other.stop().await;
}

#[tokio::test]
async fn attempts_are_listed_a_moment_after_the_decision_that_made_them() {
    let (server, store, _folder) = start().await;
    // After the first run, the loops are running.
    indexed_run(&server).await;
    let (_, run) = server.campaign().await;
    until("a decision", async || {
        let decided = store.load_run(&run).await.unwrap().folded_seq > 0;
        decided.then_some(())
    })
    .await;
    let began = Instant::now();
    let path = format!("/attempts?run={run}&order=asc");
    let page = until("an index of the run", async || {
        let page: AttemptPage = server.read(&path).await;
        (page.total == RECORDED).then_some(page)
    })
    .await;
    // Without a notice, the index would look after 30 seconds. The evidence contains the measured delay.
    assert!(began.elapsed().as_millis() < 20_000, "{:?}", began.elapsed());
    assert_eq!(page.items.iter().map(|row| row.number).collect::<Vec<_>>(), [1, 2, 3]);
    let best = &page.items[2];
    assert!(best.best && best.confirmed && best.run == run, "{best:?}");
    assert_eq!((best.model.as_str(), best.device.as_deref()), ("scripted", Some("a processor")));
    server.stop().await;
}

#[tokio::test]
async fn filters_pages_and_facets_are_words_of_the_address() {
    let (server, _store, _folder) = start().await;
    let run = indexed_run(&server).await;
    indexed_run(&server).await;
    let page: AttemptPage =
        server.read(&format!("/attempts?run={run}&outcome=compile_failed,incorrect&limit=1&facets=true")).await;
    assert_eq!((page.items.len(), page.total), (1, 2));
    assert_eq!(page.facets.unwrap().outcome.iter().map(|facet| facet.count).sum::<u64>(), RECORDED);
    let next = page.next.unwrap();
    let rest: AttemptPage =
        server.read(&format!("/attempts?run={run}&outcome=compile_failed,incorrect&limit=1&before={next}")).await;
    assert_eq!((rest.items.len(), rest.total, rest.next), (1, 2, None));
    let all: AttemptPage = server.read("/attempts?q=stitch%20processor").await;
    assert_eq!(all.total, 2, "words of strategy and device");
    for (query, said) in [
        ("outcome=wrong", "expected one of pending"),
        ("sort=name", "expected one of created"),
        ("colour=red", "expected one of campaign"),
        ("limit=0", "from 1 to 500"),
        ("before=x", "`next` of a page"),
        ("campaign=cmp_1", "not a campaign id"),
    ] {
        let answer = server.get(&format!("/attempts?{query}")).send().await.unwrap();
        let (status, error) = error_of(answer).await;
        assert_eq!((status, error.code.as_str()), (StatusCode::BAD_REQUEST, "request.invalid_query"), "{query}");
        assert!(error.message.contains(said), "{query}: {}", error.message);
    }
    server.stop().await;
}

#[tokio::test]
async fn points_are_packed_and_lead_to_their_attempts() {
    let (server, _store, _folder) = start().await;
    indexed_run(&server).await;
    let answer = server.get("/attempts/points?value=speedup").send().await.unwrap();
    assert_eq!(answer.headers()["content-type"], POINTS_CONTENT_TYPE);
    let points = AttemptPoints::from_bytes(answer.bytes().await.unwrap().to_vec()).unwrap();
    assert_eq!((points.total(), points.len()), (RECORDED, 3));
    let point = points.iter().find(|point| point.best).unwrap();
    let row: AttemptRow = server.read(&format!("/attempts/at/{}/{}", point.run_key, point.number)).await;
    assert!(row.best && row.number == 3);
    for path in ["/attempts/at/9/9", "/attempts/at/x/1"] {
        let (status, error) = error_of(server.get(path).send().await.unwrap()).await;
        assert_eq!((status, error.code.as_str()), (StatusCode::NOT_FOUND, "attempt.not_found"), "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn boards_and_searches_answer_from_the_same_index() {
    let (server, _store, _folder) = start().await;
    let run = indexed_run(&server).await;
    let tasks: Page<TaskBoard> = server.read("/tasks").await;
    assert_eq!((tasks.items.len(), tasks.items[0].attempts, tasks.items[0].history.len()), (1, RECORDED, 1));
    assert_eq!(tasks.items[0].best.as_ref().unwrap().number, 3);
    let models: Page<ModelBoard> = server.read("/models?correct=true").await;
    assert_eq!((models.items[0].attempts, models.items[0].fast_p.as_slice()), (1, &[1.0, 1.0, 1.0, 0.0][..]));
    let best = tasks.items[0].best.as_ref().unwrap();
    let (over_fastest, speedup) = (best.speedup_over_fastest.unwrap().estimate, best.speedup.unwrap().estimate);
    assert!((over_fastest * 1.25 - speedup).abs() < 1e-5, "{over_fastest} and {speedup}");
    assert_eq!(models.items[0].median_best_speedup_over_fastest, Some(over_fastest));
    assert_eq!(models.items[0].fast_p_over_fastest.len(), models.items[0].fast_p.len());
    let campaign = tasks.items[0].best.as_ref().unwrap().campaign.clone();
    let results: CampaignResults = server.read(&format!("/campaigns/{campaign}/results")).await;
    assert_eq!((results.attempts, results.kept, results.models.len(), results.lines.len()), (RECORDED, 1, 1, 1));
    assert_eq!((results.fast_p[0].p, results.fast_p[0].share), (0.0, 1.0));
    let part: CampaignResults = server.read(&format!("/campaigns/{campaign}/results?from=3&to=3")).await;
    assert_eq!((part.attempts, part.marks_of, part.marks.len(), part.marks[0].place), (RECORDED, 1, 1, 3));
    let (status, error) =
        error_of(server.get(&format!("/campaigns/{campaign}/results?from=3&to=2")).send().await.unwrap()).await;
    assert_eq!((status, error.code.as_str()), (StatusCode::BAD_REQUEST, "request.invalid_query"));
    let listed: CampaignPage = server.read("/campaigns").await;
    let listed = listed.items.into_iter().find(|listed| listed.id == campaign).unwrap();
    assert_eq!(
        (listed.best_speedup, listed.best_speedup_over_fastest, listed.ended_at),
        (Some(speedup), Some(over_fastest), None)
    );
    assert_eq!((listed.geometric_mean, listed.geometric_mean_over_fastest), (Some(speedup), Some(over_fastest)));
    assert_eq!((listed.targets.as_slice(), listed.cost_usd), (&[tasks.items[0].target][..], Some(0.0)));
    let shown: CampaignDetail = server.read(&format!("/campaigns/{campaign}")).await;
    assert_eq!(shown.summary.best_speedup, listed.best_speedup, "one campaign says the same");
    let unknown = "cmp_0123456789abcdef0123456789abcdef";
    let answer = server.get(&format!("/campaigns/{unknown}/results")).send().await.unwrap();
    assert_eq!(error_of(answer).await.1.code, "campaign.not_found");
    let hits = until("a text in the search", async || {
        let page: SearchPage = server.read("/search?q=modification%203&kind=diagnosis").await;
        (!page.items.is_empty()).then_some(page.items)
    })
    .await;
    assert_eq!((&hits[0].run, hits[0].attempt, hits[0].kind), (&run, Some(3), SearchKind::Diagnosis));
    let none: SearchPage = server.read("/search?q=needle").await;
    assert!(none.items.is_empty() && none.next.is_none());
    let (status, error) = error_of(server.get("/search?q=").send().await.unwrap()).await;
    assert_eq!((status, error.code.as_str()), (StatusCode::BAD_REQUEST, "request.invalid_query"));
    server.stop().await;
}

#[tokio::test]
async fn a_server_that_only_reads_catches_up_before_it_answers() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_store(&folder).await;
    // Without an index, like an earlier release.
    let server = TestServer::on(store.ports(), Wish { view, ..Wish::default() }).await;
    let (_, run) = server.campaign().await;
    until("a decision", async || (store.load_run(&run).await.unwrap().folded_seq > 0).then_some(())).await;
    let (status, error) = error_of(server.get("/attempts").send().await.unwrap()).await;
    assert_eq!((status, error.code.as_str()), (StatusCode::INTERNAL_SERVER_ERROR, "store.failed"));
    server.stop().await;
    let server = TestServer::on(store.ports(), Wish { drives: false, ..wish(&store) }).await;
    let page: AttemptPage = server.read("/attempts").await;
    assert_eq!(page.total, RECORDED);
    server.stop().await;
}

#[tokio::test]
async fn attempts_are_read_with_the_role_of_a_viewer() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_store(&folder).await;
    let server = TestServer::on(store.ports(), Wish { reads_need_token: true, ..wish(&store) }).await;
    for path in ["/attempts", "/attempts/points", "/attempts/at/1/1", "/tasks", "/models", "/search?q=x"] {
        let answer = server.bare(reqwest::Method::GET, &format!("/api/v1{path}")).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED, "{path}");
    }
    let page: AttemptPage = ok(server.get("/attempts").send().await.unwrap()).await;
    assert_eq!(page.total, 0);
    let (_, run) = server.campaign().await;
    assert_eq!(server.run(&run).await.summary.status, RunStatus::Running);
    server.stop().await;
}
