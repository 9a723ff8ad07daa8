//! Turns of agent sessions with live models: tools as native calls in each wire format, and what is left of the budget.

use nightshift_optimizer::agent::Agents;
use nightshift_optimizer::model::WireFormat;
use nightshift_protocol::attempt::{AgentTool, SessionRequest, Stage, TurnReply};
use nightshift_protocol::attempt_memory::AttemptMemory;
use nightshift_protocol::budget::Resource;
use nightshift_protocol::step::{CodeRequest, StepInput, StepOutput};
use serde_json::{Value, json};

use crate::fixture::{Bench, agents, plan_version, prepared};
use crate::server::{Answer, Server, catalog, event, events_of_end, events_of_text, good, stream};
use crate::wire::ALL;

const KEY: &str = "subtask1/attempt1/turn1/write_code";
const PROGRAM: &str = "#include \"nightshift.h\"\nint x;\n";

fn turn_step(bench: &Bench, hints: &[&str]) -> StepInput {
    let session = SessionRequest {
        turn: 1,
        opens_attempt: true,
        turns: Vec::new(),
        last: None,
        best: None,
        turns_left: 5,
        submissions_left: 2,
        programs: Vec::new(),
    };
    StepInput::WriteCode {
        task: bench.task.clone(),
        prepared: Box::new(prepared()),
        request: Box::new(CodeRequest {
            stage: Stage::Draft,
            plan: plan_version(),
            subtask: 1,
            parent: None,
            modification: None,
            method: None,
            near: None,
            candidate: None,
            fix_turn: 0,
            session: Some(Box::new(session)),
            history: Vec::new(),
            memory: AttemptMemory::default(),
            hints: hints.iter().map(|&hint| hint.to_owned()).collect(),
        }),
    }
}

async fn take(bench: &Bench, agents: &Agents) -> (TurnReply, String) {
    let output = bench.carry_out(agents, KEY, &turn_step(bench, &[])).await.unwrap();
    let StepOutput::TurnTaken { turn, calls } = output else { panic!("{output:?}") };
    (*turn, bench.memory.text(&calls.last().unwrap().reply))
}

/// A reply that says something and calls a function, its arguments in pieces where the format has pieces.
fn calling(kind: WireFormat, name: &str, arguments: &Value) -> Answer {
    let arguments = arguments.to_string();
    let (first, rest) = arguments.split_at(arguments.len() / 2);
    let said = events_of_text(kind, "I measure first.");
    let (call, end) = match kind {
        WireFormat::Openai => {
            let chunk = |call: Value| event("", &json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}));
            let begin = json!({
                "index": 0, "id": "c1", "type": "function", "function": {"name": name, "arguments": first},
            });
            let more = json!({"index": 0, "function": {"arguments": rest}});
            (chunk(begin) + &chunk(more), events_of_end(kind, "tool_calls"))
        }
        WireFormat::OpenaiResponses => {
            let output = json!([
                {"type": "message", "content": [{"type": "output_text", "text": "I measure first."}]},
                {"type": "function_call", "call_id": "c1", "name": name, "arguments": arguments},
            ]);
            let response = json!({
                "status": "completed", "error": null, "output": output,
                "usage": {"input_tokens": 11, "output_tokens": 22},
            });
            let ended = json!({"type": "response.completed", "response": response});
            (String::new(), event("response.completed", &ended))
        }
        WireFormat::Anthropic => {
            let block = json!({"type": "tool_use", "id": "c1", "name": name, "input": {}});
            let begin = json!({"type": "content_block_start", "index": 1, "content_block": block});
            let piece = |text: &str| {
                let delta = json!({"type": "input_json_delta", "partial_json": text});
                let delta = json!({"type": "content_block_delta", "index": 1, "delta": delta});
                event("content_block_delta", &delta)
            };
            (event("content_block_start", &begin) + &piece(first) + &piece(rest), events_of_end(kind, "tool_use"))
        }
    };
    stream(&(said + &call + &end))
}

fn offered(body: &Value) -> Vec<&str> {
    let tools = body["tools"].as_array().into_iter().flatten();
    tools.filter_map(|tool| tool["name"].as_str().or(tool["function"]["name"].as_str())).collect()
}

#[tokio::test]
async fn a_native_call_is_the_same_turn_as_the_text_that_says_it() {
    let arguments = json!({"note": "a first try", "program": PROGRAM});
    let mut replies = Vec::new();
    for kind in ALL {
        let server = Server::start(vec![calling(kind, "measure", &arguments)]).await;
        let mut endpoint = server.endpoint(kind);
        endpoint.tool_calls = Some(true);
        let bench = Bench::live();
        let (turn, reply) = take(&bench, &agents(catalog(endpoint))).await;
        assert_eq!((turn.tool, turn.note.as_str()), (Some(AgentTool::Measure), "a first try"), "{kind:?}");
        assert_eq!(bench.memory.text(turn.source.as_ref().unwrap()), PROGRAM, "{kind:?}");
        let body = server.received()[0].body.clone();
        assert_eq!(offered(&body), AgentTool::ALL.map(AgentTool::as_str), "{kind:?}: {body}");
        replies.push(reply);
    }
    assert!(replies.iter().all(|reply| *reply == replies[0]), "{replies:?}");

    let script = [("subtask1.attempt1.turn1.write_code", replies[0].as_str())];
    let played = Bench::scripted(&script);
    let (turn, _) = take(&played, &agents(nightshift_optimizer::model::Catalog::default())).await;
    assert_eq!((turn.tool, turn.note.as_str()), (Some(AgentTool::Measure), "a first try"));
}

#[tokio::test]
async fn a_model_without_tool_calls_writes_the_text_form() {
    let text = format!("```json\n{{\"tool\": \"build\", \"note\": \"n\"}}\n```\n```cpp\n{PROGRAM}```\n");
    for kind in ALL {
        let server = Server::start(vec![good(kind, &text)]).await;
        let mut endpoint = server.endpoint(kind);
        endpoint.tool_calls = Some(false);
        let bench = Bench::live();
        let (turn, reply) = take(&bench, &agents(catalog(endpoint))).await;
        assert_eq!((turn.tool, reply.as_str()), (Some(AgentTool::Build), text.as_str()), "{kind:?}");
        assert!(server.received()[0].body.get("tools").is_none(), "{kind:?}");
    }
    for (kind, has_tools) in
        [(WireFormat::Openai, false), (WireFormat::OpenaiResponses, true), (WireFormat::Anthropic, true)]
    {
        let server = Server::start(vec![good(kind, &text)]).await;
        let bench = Bench::live();
        let (turn, _) = take(&bench, &agents(server.catalog(kind))).await;
        assert_eq!(turn.tool, Some(AgentTool::Build), "{kind:?}: a model may write although it has functions");
        assert_eq!(server.received()[0].body.get("tools").is_some(), has_tools, "{kind:?}");
    }
}

#[tokio::test]
async fn a_call_that_cannot_be_used_is_asked_again() {
    for kind in ALL {
        let wrong = calling(kind, "shell", &json!({"note": "n"}));
        let server = Server::start(vec![wrong, calling(kind, "finish", &json!({"note": "done"}))]).await;
        let mut endpoint = server.endpoint(kind);
        endpoint.tool_calls = Some(true);
        let bench = Bench::live();
        let (turn, _) = take(&bench, &agents(catalog(endpoint))).await;
        assert_eq!((turn.tool, turn.note.as_str()), (Some(AgentTool::Finish), "done"), "{kind:?}");
        let asked = server.received()[1].body.to_string();
        assert!(asked.contains("there is no tool `shell`"), "{kind:?}: {asked}");
    }
}

#[tokio::test]
async fn a_turn_says_what_the_budget_has_left_and_is_found_again_when_less_is_left() {
    let text = "```json\n{\"tool\": \"finish\", \"note\": \"n\", \"key\": \"k-1\"}\n```\n";
    let server = Server::start(vec![good(WireFormat::Anthropic, text)]).await;
    let agents = agents(server.catalog(WireFormat::Anthropic));
    let bench = Bench::live();
    bench.memory.cap(Resource::Tokens, 900_000, 0);
    let (turn, _) = take(&bench, &agents).await;
    assert_eq!(turn.keys, ["k-1"]);
    let asked = server.received()[0].body.to_string();
    assert!(asked.contains("Left of the campaign's budget: 900000 of 900000 tokens."), "{asked}");
    assert!(bench.memory.spent(Resource::Tokens).0 > 0);
    assert_eq!(take(&bench, &agents).await.0, turn);
    assert_eq!(server.requests(), 1, "the committed call is found, although the budget has moved");
}

#[tokio::test]
async fn advice_stands_last_and_leaves_the_beginning_of_the_prompt_as_it_was() {
    let text = "```json\n{\"tool\": \"finish\", \"note\": \"n\"}\n```\n";
    let mut asked = Vec::new();
    for hints in [&[][..], &["try the tensor cores"]] {
        let server = Server::start(vec![good(WireFormat::Openai, text)]).await;
        let bench = Bench::live();
        bench.carry_out(&agents(server.catalog(WireFormat::Openai)), KEY, &turn_step(&bench, hints)).await.unwrap();
        let messages = server.received()[0].body["messages"].clone();
        asked.push(messages.as_array().unwrap().last().unwrap()["content"].as_str().unwrap().to_owned());
    }
    let added = asked[1].strip_prefix(&asked[0]).unwrap();
    assert!(added.contains("try the tensor cores"), "{added}");
}
