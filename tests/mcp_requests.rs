//! A coding agent answers the open model calls of a campaign by its tools.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first thing that is not as it should be"
)]

#[path = "support/agent.rs"]
mod agent;
#[path = "support/binary.rs"]
#[expect(dead_code, reason = "the tools answer here, and no command")]
mod binary;
#[path = "support/server.rs"]
mod server;

use std::process::Stdio;

use agent::Agent;
use binary::nightshift;
use serde_json::{Value, json};
use server::Served;

const OPERATOR: &str = "the-operator-of-this-test";
const WORKER: &str = "the-worker-of-this-test";
/// Maximum number of bytes of an answer of the default size.
const MAX_ANSWER_BYTES: usize = 8 * 1024;
/// Calls after which a request has to be open: each waits for 45 seconds at most.
const MAX_CALLS: usize = 4;

async fn next(agent: &Agent) -> Value {
    for _ in 0..MAX_CALLS {
        let answer = agent.answer("next_request", json!({"wait_s": 45, "agent": "the tester"})).await;
        assert!(answer.to_string().len() <= MAX_ANSWER_BYTES, "{}", answer.to_string().len());
        if answer["request"].is_object() {
            return answer["request"].clone();
        }
    }
    panic!("no request was opened");
}

#[tokio::test]
async fn an_agent_takes_reads_answers_and_gives_back_requests() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = nightshift(&folder.path().join("server"));
    command.env("NIGHTSHIFT_SERVER__TOKEN", OPERATOR).env("NIGHTSHIFT_SERVER__WORKER_TOKEN", WORKER);
    let served = Served::start(command, &[]);
    let mut command = nightshift(&folder.path().join("client"));
    command.env("NIGHTSHIFT_SERVER__TOKEN", OPERATOR).args(["--server", &served.address]);
    command.arg("mcp").stderr(Stdio::null());
    let agent = Agent::spawn(command).await;

    let wish = json!({"task": "row_softmax", "model": "external/agent", "max_attempts": 1, "idempotency_key": "one"});
    agent.answer("create_campaign", wish).await;
    let taken = next(&agent).await;
    assert_eq!((taken["role"].as_str(), taken["turn"].as_u64()), (Some("planner"), Some(1)));
    let none = agent.answer("next_request", json!({"wait_s": 0})).await;
    assert!(none["request"].is_null(), "{none}");

    let mut prompt = taken["prompt"]["text"].as_str().unwrap().to_owned();
    let mut offset = taken["prompt"]["next_offset"].as_u64();
    while let Some(begin) = offset {
        let part = agent.answer("read_request", json!({"request": taken["request"], "offset": begin})).await;
        assert!(part.to_string().len() <= MAX_ANSWER_BYTES, "{}", part.to_string().len());
        prompt.push_str(part["section"]["text"].as_str().unwrap());
        offset = part["section"]["next_offset"].as_u64();
    }
    assert!(prompt.contains("Softmax over the rows of a matrix"), "{prompt}");
    assert!(prompt.contains("# What your answer has to contain"), "{prompt}");

    let with = |text: &str| json!({"request": taken["request"], "lease": taken["lease"], "text": text});
    let said = agent.refusal("answer_request", with("{\"summary\": \"fuse it\"}")).await;
    assert!(said.contains("answer.schema_mismatch") && said.contains("missing"), "{said}");
    let release = json!({"request": taken["request"], "lease": taken["lease"]});
    agent.answer("release_request", release).await;
    let again = next(&agent).await;
    assert_eq!(again["request"], taken["request"]);
    let plan = json!({
        "summary": "Fuse it.",
        "subtasks": [{
            "title": "softmax", "scope": ["softmax"], "fusion_boundary": "the whole program",
            "contract": {"inputs": [], "outputs": []}, "methods": ["one pass"], "expected_bottleneck": "memory",
            "risk": "none", "time_share": null, "expected_gain": null, "target_speedup": null,
        }],
        "correctness_risks": [],
    })
    .to_string();
    let said = agent.refusal("answer_request", with(&plan)).await;
    assert!(said.contains("request.lease_lost"), "a lease that was given back: {said}");
    let answer = json!({"request": again["request"], "lease": again["lease"], "text": plan, "model": "a model"});
    assert_eq!(agent.answer("answer_request", answer.clone()).await["repeated"], false);
    assert_eq!(agent.answer("answer_request", answer).await["repeated"], true);
    // Whether the plan names the operators of the task is what the run says, with its next request.
    let after = next(&agent).await;
    assert_ne!(after["request"], taken["request"]);
    agent.client.cancel().await.unwrap();
}
