//! Roles that ask models of their own, and models that stand in for one another.

use std::collections::BTreeMap;

use nightshift_optimizer::agent::Agents;
use nightshift_optimizer::model::{Catalog, CommandConfig, EndpointConfig, WireFormat};
use nightshift_protocol::campaign::ModelChoice;
use nightshift_protocol::models::{AgentRole, RoleModel};
use nightshift_protocol::step::{FailureClass, StepFailure, StepInput, StepOutput};
use serde_json::json;
use tokio::net::TcpListener;

use crate::fixture::{Bench, agents, plan, prepared};
use crate::server::{MODEL, Server, error, events_of_end, events_of_text, good, stream};

const KIND: WireFormat = WireFormat::Openai;

fn good_plan() -> String {
    serde_json::to_string(&plan()).unwrap()
}

fn plan_step(bench: &Bench) -> StepInput {
    StepInput::Plan { task: bench.task.clone(), prepared: Box::new(prepared()), hints: Vec::new() }
}

async fn planned(bench: &Bench, agents: &Agents) -> Result<StepOutput, StepFailure> {
    bench.carry_out(agents, "plan", &plan_step(bench)).await
}

fn live(endpoint: &str, model: &str) -> ModelChoice {
    ModelChoice::Live { endpoint: endpoint.to_owned(), model: model.to_owned() }
}

fn two(first: EndpointConfig, second: EndpointConfig) -> Catalog {
    Catalog::new(BTreeMap::from([("fake".to_owned(), first), ("spare".to_owned(), second)]))
}

/// A run whose model is `fake`, with `spare` to stand in.
fn bench_with_spare() -> Bench {
    let mut bench = Bench::live();
    bench.run_input.models.fallback = vec![live("spare", "small")];
    bench
}

/// Returns an address at which no server listens.
async fn nowhere() -> EndpointConfig {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let mut config = EndpointConfig::new(KIND, format!("http://{address}/v1"));
    config.retry_delay_ms = 1;
    config
}

fn calls(output: &StepOutput) -> Vec<(String, Vec<String>)> {
    output
        .calls()
        .iter()
        .map(|call| (call.model.clone(), call.fell_back.iter().map(|fell| fell.code.clone()).collect()))
        .collect()
}

#[tokio::test]
async fn a_role_asks_its_own_model_with_its_own_parameters() {
    let (all, own) =
        (Server::start(vec![good(KIND, "no plan")]).await, Server::start(vec![good(KIND, &good_plan())]).await);
    let mut bench = Bench::live();
    let planner = RoleModel {
        model: Some(live("spare", "planner-model")),
        temperature: Some(0.25),
        max_output_tokens: Some(1_234),
        ..RoleModel::default()
    };
    bench.run_input.models.roles.insert(AgentRole::Planner, planner);
    bench.run_input.models.roles.insert(AgentRole::Judge, RoleModel { temperature: Some(0.9), ..RoleModel::default() });
    let output = planned(&bench, &agents(two(all.endpoint(KIND), own.endpoint(KIND)))).await.unwrap();
    assert_eq!((all.requests(), own.requests()), (0, 1));
    let body = &own.received()[0].body;
    assert_eq!(
        (&body["model"], &body["temperature"], &body["max_tokens"]),
        (&json!("planner-model"), &json!(0.25), &json!(1_234))
    );
    let call = &output.calls()[0];
    assert_eq!((call.model.as_str(), call.role), ("spare/planner-model", Some(AgentRole::Planner)));
}

#[tokio::test]
async fn a_model_that_cannot_answer_is_stood_in_for_and_the_call_says_so() {
    let spare = Server::start(vec![good(KIND, &good_plan())]).await;
    let busy = error("429 Too Many Requests", "retry-after: 600\r\n", "rate_limit_error", "slow down");
    let no_key = error("401 Unauthorized", "", "authentication_error", "who are you");
    for (answer, code) in [(busy, "model.rate_limited"), (no_key, "model.auth")] {
        let first = Server::start(vec![answer]).await;
        let bench = bench_with_spare();
        let output = planned(&bench, &agents(two(first.endpoint(KIND), spare.endpoint(KIND)))).await.unwrap();
        assert_eq!(calls(&output), [("spare/small".to_owned(), vec![code.to_owned()])]);
        assert_eq!(output.calls()[0].fell_back[0].model, format!("fake/{MODEL}"));
    }
    let bench = bench_with_spare();
    let output = planned(&bench, &agents(two(nowhere().await, spare.endpoint(KIND)))).await.unwrap();
    assert_eq!(calls(&output), [("spare/small".to_owned(), vec!["model.unreachable".to_owned()])]);
    let unknown = Catalog::new(BTreeMap::from([("spare".to_owned(), spare.endpoint(KIND))]));
    let output = planned(&bench_with_spare(), &agents(unknown)).await.unwrap();
    assert_eq!(calls(&output)[0].1, ["model.not_found"]);
}

#[tokio::test]
async fn a_reply_that_cannot_be_used_is_mended_by_the_model_that_gave_it() {
    let (first, spare) = (
        Server::start(vec![error("500 Oops", "", "server_error", "down")]).await,
        Server::start(vec![good(KIND, "no plan"), good(KIND, &good_plan())]).await,
    );
    let bench = bench_with_spare();
    let agents = agents(two(first.endpoint(KIND), spare.endpoint(KIND)));
    let output = planned(&bench, &agents).await.unwrap();
    let expected =
        [("spare/small".to_owned(), vec!["model.server_error".to_owned()]), ("spare/small".to_owned(), Vec::new())];
    assert_eq!(calls(&output), expected);
    let asked = first.requests();
    assert_eq!(spare.requests(), 2);
    let again = planned(&bench, &agents).await.unwrap();
    assert_eq!(calls(&again), expected, "the committed reply is found, no matter which model answered");
    assert_eq!((first.requests(), spare.requests()), (asked, 2), "no model is asked again");
}

#[tokio::test]
async fn a_refusal_of_a_model_is_an_answer_and_no_other_model_is_asked() {
    let refusal = format!("{}{}", events_of_text(KIND, "I will not."), events_of_end(KIND, "content_filter"));
    let (first, spare) =
        (Server::start(vec![stream(&refusal)]).await, Server::start(vec![good(KIND, &good_plan())]).await);
    let bench = bench_with_spare();
    let failure = planned(&bench, &agents(two(first.endpoint(KIND), spare.endpoint(KIND)))).await.unwrap_err();
    assert_eq!(failure.code, "model.refused");
    assert_eq!(spare.requests(), 0);
}

#[tokio::test]
async fn when_no_model_answers_the_step_waits_for_the_model_that_may_recover() {
    let gone = error("401 Unauthorized", "", "authentication_error", "who are you");
    let busy = error("429 Too Many Requests", "retry-after: 600\r\n", "rate_limit_error", "slow down");
    let (first, spare) = (Server::start(vec![gone.clone()]).await, Server::start(vec![busy]).await);
    let bench = bench_with_spare();
    let failure = planned(&bench, &agents(two(first.endpoint(KIND), spare.endpoint(KIND)))).await.unwrap_err();
    assert_eq!((failure.code.as_str(), failure.class), ("model.rate_limited", FailureClass::Retriable));
    assert_eq!(failure.retry_after_ms, Some(600_000));
    let said = &failure.message;
    assert!(
        said.contains("fake/org/model-1") && said.contains("spare/small") && said.contains("who are you"),
        "{said}"
    );
    let spare = Server::start(vec![gone]).await;
    let failure = planned(&bench, &agents(two(first.endpoint(KIND), spare.endpoint(KIND)))).await.unwrap_err();
    assert_eq!((failure.code.as_str(), failure.class), ("model.auth", FailureClass::Fatal));
}

#[tokio::test]
async fn a_command_of_this_machine_plans() {
    let mut bench = Bench::live();
    bench.run_input.model = live("cli", "any");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plan.json");
    std::fs::write(&file, good_plan()).unwrap();
    let line = format!("grep -q 'Softmax of rows' && cat {}", file.display());
    let command = CommandConfig { shell: true, ..CommandConfig::new(vec![line]) };
    let catalog = Catalog::default().with_commands(BTreeMap::from([("cli".to_owned(), command)]));
    let output = planned(&bench, &agents(catalog)).await.unwrap();
    let call = &output.calls()[0];
    assert_eq!((call.model.as_str(), call.scripted, call.output_tokens), ("cli/any", false, None));
}
