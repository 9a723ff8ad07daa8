//! Tests of the server's agents: a worker inside the process.

use std::sync::atomic::Ordering;

use nightshift_engine::retry::RetryPolicy;
use nightshift_protocol::api::{Control, ControlAction, Page, ReportResult, StepView, TryOutcome};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::budget::Resource;
use nightshift_protocol::id::RunId;
use nightshift_protocol::run::RunStatus;

use crate::setup::{TestServer, Wish, open_store, until};
use crate::toy::{Behaviour, CALL_TOKENS, FakeAgents, PLAN, prepared_output};

/// Returns a run of a campaign whose worker's step has ended.
async fn up_to_the_agent(server: &TestServer) -> RunId {
    let (_, run) = server.campaign().await;
    let worker = server.register().await;
    let step = server.claim_one(&worker).await;
    let done = TryOutcome::Completed { output: Box::new(prepared_output()) };
    assert_eq!(server.report(&worker, &step, done).await, ReportResult::Committed);
    run
}

async fn plan_step(server: &TestServer, run: &RunId) -> StepView {
    let steps: Page<StepView> = server.read(&format!("/runs/{run}/steps")).await;
    steps.items.into_iter().find(|step| step.key == PLAN).unwrap()
}

#[tokio::test]
async fn an_agents_answer_ends_the_run_and_its_prompt_and_reply_are_kept() {
    let agents = FakeAgents::new(Behaviour::Plans);
    let (server, _folder) = TestServer::start(Wish { agents: agents.clone(), ..Wish::default() }).await;
    let run = up_to_the_agent(&server).await;
    server.until_status(&run, RunStatus::Completed).await;
    assert_eq!(agents.calls.load(Ordering::SeqCst), 1);
    let reply = ArtifactHash::of(b"a reply");
    let kept = server.get(&format!("/artifacts/{reply}")).send().await.unwrap();
    assert_eq!(kept.bytes().await.unwrap().as_ref(), b"a reply");
    server.stop().await;
}

#[tokio::test]
async fn cancelling_a_run_stops_its_agent() {
    let agents = FakeAgents::new(Behaviour::Hangs);
    let (server, _folder) = TestServer::start(Wish { agents: agents.clone(), ..Wish::default() }).await;
    let run = up_to_the_agent(&server).await;
    agents.began().await;
    let cancel = Control { action: ControlAction::Cancel };
    server.post(&format!("/runs/{run}/control")).json(&cancel).send().await.unwrap();
    server.until_status(&run, RunStatus::Cancelled).await;
    assert_eq!(agents.dropped.load(Ordering::SeqCst), 1);
    server.stop().await;
}

#[tokio::test]
async fn the_tokens_of_a_call_that_is_open_when_its_run_is_cancelled_count_as_used() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_store(&folder).await.ports();
    let agents = FakeAgents::new(Behaviour::PlansWhenAnswered);
    let server = TestServer::on(store.clone(), Wish { agents, ..Wish::default() }).await;
    let run = up_to_the_agent(&server).await;
    let campaign = server.run(&run).await.summary.campaign;
    let tokens = async || {
        let lines = store.budgets.load_budget(&campaign).await.unwrap();
        lines.into_iter().find(|line| line.resource == Resource::Tokens).unwrap()
    };
    until("the open call", || async { (tokens().await.reserved == CALL_TOKENS).then_some(()) }).await;
    let cancel = Control { action: ControlAction::Cancel };
    server.post(&format!("/runs/{run}/control")).json(&cancel).send().await.unwrap();
    server.until_status(&run, RunStatus::Cancelled).await;
    let line = tokens().await;
    assert_eq!((line.used, line.reserved), (CALL_TOKENS, 0));
    server.stop().await;
}

#[tokio::test]
async fn an_agent_that_panics_costs_a_try_and_not_the_server() {
    let agents = FakeAgents::new(Behaviour::Panics);
    let (server, _folder) = TestServer::start(Wish { agents: agents.clone(), ..Wish::default() }).await;
    let run = up_to_the_agent(&server).await;
    server.until_status(&run, RunStatus::Failed).await;
    assert_eq!(server.run(&run).await.summary.failure.unwrap().code, "agent.panicked");
    assert_eq!(agents.begun.load(Ordering::SeqCst), 3);

    agents.now(Behaviour::Plans);
    let answer = server.post(&format!("/runs/{run}/retry")).json(&serde_json::json!({ "step_key": PLAN })).send();
    assert!(answer.await.unwrap().status().is_success());
    server.until_status(&run, RunStatus::Completed).await;
    server.stop().await;
}

#[tokio::test]
async fn an_agents_passing_trouble_is_retried() {
    let agents = FakeAgents::new(Behaviour::FailsRetriably);
    let (server, _folder) = TestServer::start(Wish { agents: agents.clone(), ..Wish::default() }).await;
    let run = up_to_the_agent(&server).await;
    agents.began().await;
    agents.now(Behaviour::Plans);
    server.until_status(&run, RunStatus::Completed).await;
    let tries = plan_step(&server, &run).await.tries;
    assert!(tries >= 2, "{tries} tries");
    server.stop().await;
}

#[tokio::test]
async fn a_step_whose_replies_are_lost_is_given_up_before_its_tries_are_used_up() {
    let agents = FakeAgents::new(Behaviour::LosesReplies);
    let retry = RetryPolicy { max_tries: 40, first_delay_ms: 2, max_delay_ms: 4 };
    let (server, _folder) = TestServer::start(Wish { agents: agents.clone(), retry, ..Wish::default() }).await;
    let run = up_to_the_agent(&server).await;
    server.until_status(&run, RunStatus::Failed).await;
    assert_eq!(agents.begun.load(Ordering::SeqCst), 5, "three of them may have been charged for");
    let failure = server.run(&run).await.summary.failure.unwrap();
    assert_eq!((failure.code.as_str(), failure.charged_tries), ("model.timeout", 3));
    server.stop().await;
}

#[tokio::test]
async fn waiting_for_a_budget_uses_up_no_tries() {
    let agents = FakeAgents::new(Behaviour::WaitsForBudget(50));
    let (server, _folder) = TestServer::start(Wish { agents: agents.clone(), ..Wish::default() }).await;
    let run = up_to_the_agent(&server).await;
    server.until_status(&run, RunStatus::Completed).await;
    assert_eq!(agents.begun.load(Ordering::SeqCst), 52);
    assert_eq!(plan_step(&server, &run).await.tries, 2, "the failure and the answer");
    server.stop().await;
}

#[tokio::test]
async fn an_agents_answer_to_another_question_is_never_committed() {
    let agents = FakeAgents::new(Behaviour::GivesNonsense);
    let (server, _folder) = TestServer::start(Wish { agents, ..Wish::default() }).await;
    let run = up_to_the_agent(&server).await;
    server.until_status(&run, RunStatus::Failed).await;
    assert_eq!(server.run(&run).await.summary.failure.unwrap().code, "request.output_mismatch");
    server.stop().await;
}

#[tokio::test]
async fn a_step_that_outlives_its_lease_keeps_it_by_heartbeats() {
    let agents = FakeAgents::new(Behaviour::Hangs);
    let wish = Wish { agents: agents.clone(), lease_ms: 3_000, heartbeat_ms: 100, ..Wish::default() };
    let (server, _folder) = TestServer::start(wish).await;
    let run = up_to_the_agent(&server).await;
    agents.began().await;
    let began = std::time::Instant::now();
    until("twice the time of a lease", || async { (began.elapsed().as_millis() > 7_000).then_some(()) }).await;
    let step = plan_step(&server, &run).await;
    assert_eq!((step.epoch, step.tries), (1, 1));
    assert_eq!(agents.begun.load(Ordering::SeqCst), 1);
    server.stop().await;
}

#[tokio::test]
async fn a_restarted_server_continues_at_once_with_its_previous_leases() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_store(&folder).await;
    let hanging = FakeAgents::new(Behaviour::Hangs);
    // The lease is longer than the timeout of the test.
    let wish = Wish { agents: hanging.clone(), lease_ms: 300_000, ..Wish::default() };
    let server = TestServer::on(store.ports(), wish).await;
    let run = up_to_the_agent(&server).await;
    hanging.began().await;
    server.stop().await;
    assert_eq!(hanging.dropped.load(Ordering::SeqCst), 1);

    let server = TestServer::on(store.ports(), Wish::default()).await;
    server.until_status(&run, RunStatus::Completed).await;
    let step = plan_step(&server, &run).await;
    assert_eq!((step.tries, step.epoch), (1, 2), "the lost try of the old life must not count");
    server.stop().await;
}
