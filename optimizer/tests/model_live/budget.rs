//! What live calls set aside before they are made, and what is settled when they are over.

use nightshift_optimizer::agent::Agents;
use nightshift_optimizer::model::{Catalog, EndpointConfig, PriceTable, WireFormat};
use nightshift_protocol::attempt_memory::AttemptMemory;
use nightshift_protocol::budget::Resource;
use nightshift_protocol::campaign::{EXTERNAL, ModelChoice};
use nightshift_protocol::model_call::{ModelCallSummary, StopCause};
use nightshift_protocol::step::{FailureClass, StepFailure, StepInput, StepOutput};
use serde_json::json;
use tokio::net::TcpSocket;

use crate::fixture::{Bench, attempt, config, plan, plan_version, prepared};
use crate::server::{Answer, MODEL, Server, catalog, error, events_of_text, good, stream, stream_head};

const NOTHING: (u64, u64) = (0, 0);
const KIND: WireFormat = WireFormat::Openai;

fn good_plan() -> String {
    serde_json::to_string(&plan()).unwrap()
}

fn plan_step(bench: &Bench) -> StepInput {
    StepInput::Plan { task: bench.task.clone(), prepared: Box::new(prepared()), hints: Vec::new() }
}

/// Agents that know the model's price: one US dollar for a million tokens of prompt, ten for a million of reply.
fn priced(catalog: Catalog) -> Agents {
    let table = format!("[[price]]\nmodel = 'fake/{MODEL}'\ninput_usd = 1\noutput_usd = 10\n");
    let mut config = config(catalog);
    config.prices = PriceTable::empty().with(&table).unwrap();
    Agents::new(config)
}

async fn planned(bench: &Bench, agents: &Agents) -> Result<StepOutput, StepFailure> {
    bench.carry_out(agents, "plan", &plan_step(bench)).await
}

#[tokio::test]
async fn only_a_live_model_outside_the_price_table_has_no_price() {
    let server = Server::start(Vec::new()).await;
    let agents = priced(server.catalog(KIND));
    let live =
        |endpoint: &str, model: &str| ModelChoice::Live { endpoint: endpoint.to_owned(), model: model.to_owned() };
    for choice in [live("fake", MODEL), live(EXTERNAL, "any"), ModelChoice::Scripted] {
        assert!(agents.has_price(&choice), "{choice:?}");
    }
    assert!(!agents.has_price(&live("fake", "unpriced")));
}

#[tokio::test]
async fn an_answered_call_counts_what_it_took_and_gives_the_rest_back() {
    let server = Server::start(vec![good(KIND, &good_plan())]).await;
    let bench = Bench::live();
    let agents = priced(server.catalog(KIND));
    planned(&bench, &agents).await.unwrap();
    assert_eq!(bench.memory.spent(Resource::Tokens), (11 + 22, 0));
    assert_eq!(bench.memory.spent(Resource::CostMicrousd), (11 + 220, 0));
    planned(&bench, &agents).await.unwrap();
    assert_eq!(bench.memory.spent(Resource::Tokens), (11 + 22, 0), "what was answered is not paid for again");
}

#[tokio::test]
async fn an_answer_that_was_committed_while_the_budget_was_waited_for_is_used_and_not_paid_again() {
    let server = Server::start(Vec::new()).await;
    let bench = Bench::live();
    let reply = bench.memory.keep(good_plan().as_bytes());
    bench.memory.answer_elsewhere(ModelCallSummary {
        model: format!("fake/{MODEL}"),
        scripted: false,
        prompt_version: "1".to_owned(),
        prompt: reply.clone(),
        reply,
        input_tokens: Some(11),
        output_tokens: Some(22),
        price_microusd: None,
        reasoning: None,
        cached_input_tokens: None,
        cache_write_tokens: None,
        reasoning_tokens: None,
        latency_ms: 1,
        turn: 1,
        stop: StopCause::End,
        role: None,
        fell_back: Vec::new(),
    });
    let output = planned(&bench, &priced(server.catalog(KIND))).await.unwrap();
    assert!(matches!(output, StepOutput::Planned { .. }), "{output:?}");
    assert_eq!(server.requests(), 0, "no model is asked");
    assert_eq!(bench.memory.spent(Resource::Tokens), NOTHING, "what was set aside is given back");
}

#[tokio::test]
async fn no_model_is_asked_when_it_cannot_be_known_whether_the_question_was_answered() {
    let server = Server::start(Vec::new()).await;
    let bench = Bench::live();
    bench.memory.fail_once_reserved("find_call");
    let failure = planned(&bench, &priced(server.catalog(KIND))).await.unwrap_err();
    assert_eq!((failure.code.as_str(), failure.class), ("store.failed", FailureClass::Retriable));
    assert_eq!(server.requests(), 0);
    assert_eq!(bench.memory.spent(Resource::Tokens), NOTHING);
}

#[tokio::test]
async fn a_model_without_a_known_price_counts_tokens_alone() {
    let server = Server::start(vec![good(KIND, &good_plan())]).await;
    let bench = Bench::live();
    planned(&bench, &Agents::new(config(server.catalog(KIND)))).await.unwrap();
    assert_eq!(bench.memory.spent(Resource::Tokens), (33, 0));
    assert_eq!(bench.memory.spent(Resource::CostMicrousd), NOTHING);
}

#[tokio::test]
async fn replies_from_a_script_cost_nothing() {
    let bench = Bench::scripted(&[("plan", &good_plan())]);
    bench.memory.cap(Resource::Tokens, 0, 0);
    bench.memory.cap(Resource::CostMicrousd, 0, 0);
    planned(&bench, &priced(Catalog::default())).await.unwrap();
    assert_eq!(bench.memory.spent(Resource::Tokens), NOTHING);
}

#[tokio::test]
async fn an_answer_that_does_not_say_what_it_took_counts_as_the_most_that_it_can_have_taken() {
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let body = events_of_text(KIND, &good_plan()) + &format!("data: {end}\n\ndata: [DONE]\n\n");
    let server = Server::start(vec![stream(&body)]).await;
    let bench = Bench::live();
    planned(&bench, &priced(server.catalog(KIND))).await.unwrap();
    let (tokens, reserved) = bench.memory.spent(Resource::Tokens);
    assert!(tokens > 32_768 && reserved == 0, "{tokens}");
    let (cost, _) = bench.memory.spent(Resource::CostMicrousd);
    assert!(cost > 327_680, "{cost}");
}

#[tokio::test]
async fn a_call_that_broke_off_within_its_answer_counts_as_a_whole() {
    let server = Server::start(vec![stream(&events_of_text(KIND, "half of"))]).await;
    let bench = Bench::live();
    let failure = planned(&bench, &priced(server.catalog(KIND))).await.unwrap_err();
    assert_eq!(failure.code, "model.truncated");
    let (tokens, reserved) = bench.memory.spent(Resource::Tokens);
    assert!(tokens > 32_768 && tokens < 2 * 32_768 && reserved == 0, "{tokens}");
}

#[tokio::test]
async fn a_call_that_stalls_within_its_answer_counts_as_a_whole() {
    let half = [stream_head().into_bytes(), events_of_text(KIND, "half of").into_bytes()].concat();
    let server = Server::start(vec![Answer::Stall(half)]).await;
    let mut endpoint = server.endpoint(KIND);
    endpoint.timeouts.idle_ms = 50;
    let bench = Bench::live();
    let failure = planned(&bench, &priced(catalog(endpoint))).await.unwrap_err();
    assert_eq!(failure.code, "model.timeout");
    let (tokens, reserved) = bench.memory.spent(Resource::Tokens);
    assert!(tokens > 32_768 && reserved == 0, "{tokens}");
}

#[tokio::test]
async fn a_call_that_was_refused_before_it_began_costs_nothing() {
    for (status, code) in [
        ("429 Too Many Requests", "model.rate_limited"),
        ("401 Unauthorized", "model.auth"),
        ("400 Bad Request", "model.bad_request"),
        ("500 Internal Server Error", "model.server_error"),
    ] {
        let server = Server::start(vec![error(status, "", "some_error", "no")]).await;
        let bench = Bench::live();
        let failure = planned(&bench, &priced(server.catalog(KIND))).await.unwrap_err();
        assert_eq!(failure.code, code);
        assert_eq!(bench.memory.spent(Resource::Tokens), NOTHING, "{status}");
    }
}

#[tokio::test]
async fn a_gateway_that_lost_patience_says_nothing_about_the_model_behind_it() {
    let server = Server::start(vec![error("504 Gateway Timeout", "", "timeout", "no")]).await;
    let bench = Bench::live();
    planned(&bench, &priced(server.catalog(KIND))).await.unwrap_err();
    let (tokens, reserved) = bench.memory.spent(Resource::Tokens);
    assert!(tokens > 0 && reserved == 0);
}

#[tokio::test]
async fn a_server_that_is_not_there_costs_nothing() {
    // Nothing listens at the address, and no other test gets it while the socket is there.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let mut endpoint = EndpointConfig::new(KIND, format!("http://{}/v1", socket.local_addr().unwrap()));
    endpoint.retry_delay_ms = 1;
    let bench = Bench::live();
    let failure = planned(&bench, &priced(catalog(endpoint))).await.unwrap_err();
    assert_eq!(failure.code, "model.unreachable");
    assert_eq!(bench.memory.spent(Resource::Tokens), NOTHING);
}

#[tokio::test]
async fn a_call_that_the_campaign_cannot_afford_is_not_made() {
    let server = Server::start(vec![good(KIND, &good_plan())]).await;
    let bench = Bench::live();
    bench.memory.cap(Resource::CostMicrousd, 1_000, 0);
    let failure = planned(&bench, &priced(server.catalog(KIND))).await.unwrap_err();
    assert_eq!((failure.code.as_str(), failure.class), ("budget.exhausted", FailureClass::Fatal));
    assert!(failure.message.starts_with("`cost_microusd`"), "{failure}");
    assert_eq!((server.requests(), bench.memory.spent(Resource::CostMicrousd)), (0, NOTHING));
}

#[tokio::test]
async fn a_call_waits_for_what_parallel_work_has_set_aside() {
    let server = Server::start(vec![good(KIND, &good_plan())]).await;
    let bench = Bench::live();
    bench.memory.cap(Resource::Tokens, 100_000, 90_000);
    let failure = planned(&bench, &priced(server.catalog(KIND))).await.unwrap_err();
    assert_eq!((failure.code.as_str(), failure.class), ("budget.wait", FailureClass::Retriable));
    assert!(failure.retry_after_ms.is_some_and(|wait_ms| wait_ms > 0));
    assert_eq!(server.requests(), 0);
}

#[tokio::test]
async fn a_verifier_or_judge_without_money_is_no_result() {
    let server = Server::start(vec![good(KIND, "x")]).await;
    let bench = Bench::live();
    bench.memory.cap(Resource::Tokens, 10, 0);
    let agents = priced(server.catalog(KIND));
    let diagnose = StepInput::Diagnose {
        task: bench.task.clone(),
        prepared: Box::new(prepared()),
        plan: Box::new(plan_version()),
        attempt: Box::new(attempt(&bench.memory, "correct_faster", "int x;\n")),
        history: Vec::new(),
        memory: AttemptMemory::default(),
        hints: Vec::new(),
    };
    let judge = StepInput::Judge {
        task: bench.task.clone(),
        plan: Box::new(plan_version()),
        attempt: Box::new(attempt(&bench.memory, "correct_faster", "int x;\n")),
        parent_source: None,
        modification: None,
        parent_speedup: None,
        parent_bound: None,
    };
    for input in [diagnose, judge] {
        let failure = bench.carry_out(&agents, "j", &input).await.unwrap_err();
        assert_eq!(failure.code, "budget.exhausted");
    }
}

#[tokio::test]
async fn what_was_answered_before_the_money_ran_out_is_kept_with_the_failure() {
    let server = Server::start(vec![good(KIND, "no plan at all")]).await;
    let agents = priced(server.catalog(KIND));
    let probe = Bench::live();
    probe.memory.fail_once("record_call");
    planned(&probe, &agents).await.unwrap_err();
    let (_, first_turn) = probe.memory.spent(Resource::Tokens);
    let bench = Bench::live();
    // Enough for the first turn, and not for the one that asks again.
    bench.memory.cap(Resource::Tokens, first_turn + 10, 0);
    let failure = planned(&bench, &agents).await.unwrap_err();
    assert_eq!((failure.code.as_str(), failure.calls.len()), ("budget.exhausted", 1));
    assert_eq!(bench.memory.spent(Resource::Tokens), (33, 0));
}

#[tokio::test]
async fn an_answer_that_could_not_be_recorded_stays_set_aside_until_the_try_ends() {
    let server = Server::start(vec![good(KIND, &good_plan())]).await;
    let bench = Bench::live();
    bench.memory.fail_once("record_call");
    planned(&bench, &priced(server.catalog(KIND))).await.unwrap_err();
    let (used, reserved) = bench.memory.spent(Resource::Tokens);
    assert!(used == 0 && reserved > 32_768, "the store counts it as used when the lease ends");
}
