//! Tests of requests over HTTP: agents take, answer, extend and release open model calls.

use std::time::Duration;

use nightshift_protocol::api::{
    LeasedRequest, Page, RequestAnswered, RequestDetail, RequestState, RequestView, StepView, TryOutcome,
};
use nightshift_protocol::id::RunId;
use nightshift_protocol::run::RunStatus;
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};

use crate::setup::{TestServer, Wish, ok, open_store, refusal, refused};
use crate::toy::{Behaviour, FakeAgents, PLAN, prepared_output};

/// A valid answer to the question.
const GOOD: &str = "{\"summary\": \"fuse it\"}";

fn wish() -> Wish {
    Wish { agents: FakeAgents::new(Behaviour::AsksOutside), ..Wish::default() }
}

impl TestServer {
    /// Creates a run whose planner waits for an outside agent.
    async fn asking_run(&self) -> RunId {
        let (_, run) = self.campaign().await;
        let worker = self.register().await;
        let step = self.claim_one(&worker).await;
        self.report(&worker, &step, TryOutcome::Completed { output: Box::new(prepared_output()) }).await;
        run
    }

    async fn next(&self, wish: Value) -> Response {
        self.post("/requests/next").json(&wish).send().await.unwrap()
    }

    async fn taken(&self) -> LeasedRequest {
        ok(self.next(json!({ "wait_ms": 20_000, "holder": "one" })).await).await
    }

    async fn answer(&self, taken: &LeasedRequest, text: &str) -> Response {
        let path = format!("/requests/{}/answer", taken.request.id);
        self.post(&path).json(&json!({ "lease": taken.lease, "text": text })).send().await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_carries_the_run_on_and_holds_no_place_meanwhile() {
    let (server, _folder) = TestServer::start(Wish { agent_slots: 1, ..wish() }).await;
    let (first, second) = (server.asking_run().await, server.asking_run().await);
    let taken = server.taken().await;
    assert_eq!((&taken.request.run, taken.request.step_key.as_str()), (&first, PLAN));
    assert_eq!((taken.request.model.as_str(), taken.request.holder.as_deref()), ("external/agent", Some("one")));
    assert_eq!(taken.question.user, "Plan it.");
    let other = server.taken().await;
    assert_eq!(other.request.run, second, "one place carries both steps out");
    assert!(!ok::<RequestAnswered>(server.answer(&taken, GOOD).await).await.repeated);
    server.until_status(&first, RunStatus::Completed).await;
    let steps: Page<StepView> = server.read(&format!("/runs/{first}/steps")).await;
    let plan = steps.items.iter().find(|step| step.key == PLAN).unwrap();
    assert_eq!(plan.tries, 1, "waiting is no try");
    assert_eq!(server.run(&second).await.summary.status, RunStatus::Running);
    ok::<RequestAnswered>(server.answer(&other, GOOD).await).await;
    server.until_status(&second, RunStatus::Completed).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_answer_is_refused_with_the_reason_and_the_request_stays_with_its_agent() {
    let (server, _folder) = TestServer::start(wish()).await;
    let run = server.asking_run().await;
    let taken = server.taken().await;
    for (text, status, code) in [
        ("  ".to_owned(), 422, "answer.empty"),
        ("I cannot".to_owned(), 422, "answer.not_json"),
        ("{\"risk\": 1}".to_owned(), 422, "answer.schema_mismatch"),
        ("x".repeat(3 * 1024 * 1024), 413, "answer.too_large"),
        ("x".repeat(10 * 1024 * 1024), 413, "answer.too_large"),
    ] {
        assert_eq!(refused(server.answer(&taken, &text).await).await, refusal(status, code));
    }
    let shown: RequestDetail = server.read(&format!("/requests/{}", taken.request.id)).await;
    assert_eq!((shown.request, shown.answer), (taken.request.clone(), None));
    ok::<RequestAnswered>(server.answer(&taken, GOOD).await).await;
    let shown: RequestDetail = server.read(&format!("/requests/{}", taken.request.id)).await;
    assert_eq!(shown.answer.as_deref(), Some(GOOD));
    assert!(ok::<RequestAnswered>(server.answer(&taken, GOOD).await).await.repeated);
    assert_eq!(
        refused(server.answer(&taken, "{\"summary\": \"another\"}").await).await,
        refusal(409, "request.answered")
    );
    server.until_status(&run, RunStatus::Completed).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_lease_answers_nothing_and_a_released_request_goes_to_the_next_agent() {
    let (server, _folder) = TestServer::start(wish()).await;
    server.asking_run().await;
    let taken = server.taken().await;
    let none = server.next(json!({})).await;
    assert_eq!(none.status(), StatusCode::NO_CONTENT);
    let forged = LeasedRequest { lease: "nsl_forged".to_owned(), ..taken.clone() };
    assert_eq!(refused(server.answer(&forged, GOOD).await).await, refusal(409, "request.lease_lost"));
    let path = format!("/requests/{}", taken.request.id);
    let extended = server.post(&format!("{path}/extend")).json(&json!({ "lease": taken.lease, "lease_s": 3600 }));
    let extended: RequestView = ok(extended.send().await.unwrap()).await;
    assert!(extended.leased_until > taken.request.leased_until);
    let released = server.post(&format!("{path}/release")).json(&json!({ "lease": taken.lease }));
    assert_eq!(released.send().await.unwrap().status(), StatusCode::NO_CONTENT);
    let again = server.taken().await;
    assert_eq!(again.request.id, taken.request.id);
    assert_eq!(refused(server.answer(&taken, GOOD).await).await, refusal(409, "request.lease_lost"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_take_only_requests_of_the_run_they_name_and_readers_take_none() {
    let (server, _folder) = TestServer::start(wish()).await;
    let (first, second) = (server.asking_run().await, server.asking_run().await);
    let taken: LeasedRequest = ok(server.next(json!({ "run": second, "wait_ms": 20_000 })).await).await;
    assert_eq!(taken.request.run, second);
    assert_eq!(server.next(json!({ "run": second })).await.status(), StatusCode::NO_CONTENT);
    assert_eq!(server.next(json!({ "roles": ["judge"] })).await.status(), StatusCode::NO_CONTENT);
    let unknown = format!("run_{}", "0".repeat(32));
    assert_eq!(refused(server.next(json!({ "run": unknown })).await).await, refusal(404, "run.not_found"));
    assert_eq!(refused(server.next(json!({ "lease_s": 1 })).await).await, refusal(400, "request.invalid"));
    let anonymous = server.bare(Method::POST, "/api/v1/requests/next").json(&json!({})).send().await.unwrap();
    assert_eq!(refused(anonymous).await, refusal(401, "auth.required"));
    let waiting: Page<RequestView> = server.read(&format!("/requests?run={first}")).await;
    assert_eq!(waiting.items.iter().map(|request| request.state).collect::<Vec<_>>(), [RequestState::Open]);
    let listed = ok::<Value>(server.get("/requests").send().await.unwrap()).await;
    assert_eq!(listed["items"].as_array().unwrap().len(), 2);
    assert!(!listed.to_string().contains(&taken.lease), "a list shows no lease");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_of_a_cancelled_run_takes_no_answer() {
    let (server, _folder) = TestServer::start(wish()).await;
    let run = server.asking_run().await;
    let taken = server.taken().await;
    let control = server.post(&format!("/runs/{run}/control")).json(&json!({ "action": "cancel" }));
    assert!(control.send().await.unwrap().status().is_success());
    server.until_status(&run, RunStatus::Cancelled).await;
    assert_eq!(refused(server.answer(&taken, GOOD).await).await, refusal(409, "request.cancelled"));
    let waiting: Page<RequestView> = server.read("/requests").await;
    assert!(waiting.items.is_empty());
    let all: Page<RequestView> = server.read("/requests?all=true").await;
    assert_eq!(all.items[0].state, RequestState::Cancelled);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_no_agent_answers_ends_with_its_deadline() {
    let wish = Wish { request_deadline: Duration::from_secs(1), ..wish() };
    let (server, _folder) = TestServer::start(wish).await;
    let run = server.asking_run().await;
    server.until_status(&run, RunStatus::Failed).await;
    let failure = server.run(&run).await.summary.failure.unwrap();
    assert_eq!(failure.code, "request.expired");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leased_request_survives_the_restart_of_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_store(&folder).await;
    let server = TestServer::on(store.ports(), wish()).await;
    let run = server.asking_run().await;
    let taken = server.taken().await;
    server.stop().await;
    store.close().await.unwrap();
    let server = TestServer::on(open_store(&folder).await.ports(), wish()).await;
    ok::<RequestAnswered>(server.answer(&taken, GOOD).await).await;
    server.until_status(&run, RunStatus::Completed).await;
    server.stop().await;
}
