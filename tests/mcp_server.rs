//! The tools of MCP over the API of a server: what a viewer, an operator, a worker and a page of another site are offered,
//! over HTTP and over standard input and output.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first thing that is not as it should be"
)]

#[path = "support/agent.rs"]
mod agent;
#[path = "support/binary.rs"]
mod binary;
#[path = "support/server.rs"]
mod server;
#[path = "support/tiny_task.rs"]
mod tiny_task;

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use agent::Agent;
use binary::{expect_exit, json_lines, nightshift};
use rmcp::model::{ProtocolVersion, ReadResourceRequestParams};
use rmcp::service::{ClientLifecycleMode, serve_client_with_lifecycle};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::{Value, json};
use server::Served;

const OPERATOR: &str = "the-operator-of-this-test";
const WORKER: &str = "the-worker-of-this-test";
/// Maximum number of bytes of an answer of the default size.
const MAX_ANSWER_BYTES: usize = 8 * 1024;
/// Tools that spend, change or end something on a server.
const CHANGING: [&str; 9] = [
    "create_task",
    "create_campaign",
    "control_run",
    "signal_run",
    "add_note",
    "take_turn",
    "next_request",
    "answer_request",
    "release_request",
];
/// Maximum time that a socket is read.
const MAX_READ: Duration = Duration::from_secs(30);
/// Maximum time that a run may take.
const MAX_RUN: Duration = Duration::from_mins(2);

/// A server with one campaign that has ended.
struct Site {
    folder: tempfile::TempDir,
    served: Served,
    campaign: String,
    run: String,
    viewer: String,
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data_dir = folder.path().join("server");
        let task = tiny_task::write(folder.path(), "gaussian", &[16, 2]);
        let mut running = nightshift(&data_dir);
        running.arg("run").arg(&task).args(["--model", "scripted", "--exit", "--json"]);
        let result = json_lines(&expect_exit(&mut running, 0)).remove(0);
        let summary = &result["runs"][0]["summary"];
        let text = |key: &str| summary[key].as_str().expect("an id").to_owned();
        let mut command = nightshift(&data_dir);
        command.env("NIGHTSHIFT_SERVER__TOKEN", OPERATOR).env("NIGHTSHIFT_SERVER__WORKER_TOKEN", WORKER);
        let served = Served::start(command, &["--no-worker"]);
        let mut site = Self { served, campaign: text("campaign"), run: text("id"), viewer: String::new(), folder };
        let created = expect_exit(
            site.command(OPERATOR).args(["token", "create", "the reader", "--role", "viewer", "--json"]),
            0,
        );
        json_lines(&created).remove(0)["secret"].as_str().expect("a secret").clone_into(&mut site.viewer);
        site
    }

    /// A command against the server, with this token.
    fn command(&self, token: &str) -> Command {
        let mut command = nightshift(&self.folder.path().join("client"));
        command.env("NIGHTSHIFT_SERVER__TOKEN", token).args(["--server", &self.served.address]);
        command
    }

    /// A client over HTTP.
    async fn over_http(&self, token: &str, mode: ClientLifecycleMode) -> Agent {
        let config = StreamableHttpClientTransportConfig::with_uri(format!("{}/mcp", self.served.address));
        let transport = StreamableHttpClientTransport::from_config(config.auth_header(token));
        Agent { client: serve_client_with_lifecycle((), transport, mode).await.expect("a session") }
    }

    /// A client over standard input and output.
    async fn over_stdio(&self, token: &str) -> Agent {
        let mut command = self.command(token);
        command.arg("mcp").stderr(Stdio::null());
        Agent::spawn(command).await
    }

    /// The status and the body of a request to the tools with these headers.
    fn raw(&self, headers: &[(&str, &str)]) -> (u16, String) {
        let host = self.served.address.trim_start_matches("http://");
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
        let mut request = format!(
            "POST /mcp HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\nmcp-protocol-version: 2025-06-18\r\ncontent-length: {}\r\n",
            body.len()
        );
        for (name, value) in headers {
            write!(request, "{name}: {value}\r\n").unwrap();
        }
        let mut stream = TcpStream::connect(host).unwrap();
        stream.set_read_timeout(Some(MAX_READ)).unwrap();
        write!(stream, "{request}\r\n{body}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
        (status, answer)
    }
}

async fn names(agent: &Agent) -> Vec<String> {
    agent.tools().await.into_iter().map(|tool| tool.name.into_owned()).collect()
}

/// Reads a section to its end, in parts that are small enough.
async fn whole(agent: &Agent, tool: &str, mut wish: Value, limit: u32) -> String {
    let mut text = String::new();
    wish["limit"] = json!(limit);
    loop {
        let part = agent.answer(tool, wish.clone()).await;
        assert!(part.to_string().len() <= MAX_ANSWER_BYTES, "{tool}: {}", part.to_string().len());
        text.push_str(part["section"]["text"].as_str().unwrap());
        match part["section"]["next_offset"].as_u64() {
            Some(next) => wish["offset"] = json!(next),
            None => return text,
        }
    }
}

#[tokio::test]
async fn a_viewer_is_offered_no_tool_that_spends_or_ends_and_cannot_call_one() {
    let site = Site::new();
    let over_http = site.over_http(&site.viewer, ClientLifecycleMode::Initialize).await;
    let over_stdio = site.over_stdio(&site.viewer).await;
    for agent in [over_http, over_stdio] {
        let offered = names(&agent).await;
        assert!(offered.contains(&"get_attempt".to_owned()), "{offered:?}");
        for name in CHANGING {
            assert!(!offered.contains(&name.to_owned()), "{offered:?}");
        }
        let refused = [
            ("control_run", json!({"run": site.run, "action": "cancel"})),
            ("signal_run", json!({"run": site.run, "signal": "hint", "text": "x", "idempotency_key": "1"})),
            ("add_note", json!({"run": site.run, "text": "x"})),
            ("create_campaign", json!({"task": "row_softmax", "model": "a/b", "idempotency_key": "1"})),
            ("next_request", json!({"wait_s": 0})),
        ];
        for (tool, arguments) in refused {
            let said = agent.refusal(tool, arguments).await;
            assert!(said.contains("access.role_needed") && said.contains("operator"), "{tool}: {said}");
        }
        agent.client.cancel().await.unwrap();
    }
}

#[tokio::test]
async fn an_operator_is_offered_tools_that_change_something_unless_only_reading_was_asked_for() {
    let site = Site::new();
    let modern = ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
    let agent = site.over_http(OPERATOR, modern).await;
    let offered = names(&agent).await;
    for name in CHANGING {
        assert!(offered.contains(&name.to_owned()), "{offered:?}");
    }
    assert!(!offered.contains(&"verify_program".to_owned()), "a server judges nothing in its process: {offered:?}");

    let note = agent.answer("add_note", json!({"run": site.run, "number": 2, "text": "Fewer passes **help**."})).await;
    assert_eq!(note["about"], format!("{}/2", site.run));
    let notes = agent.answer("list_notes", json!({"run": site.run})).await;
    assert_eq!(notes["notes"][0]["text"], "Fewer passes **help**.", "{notes}");
    let hint = json!({"run": site.run, "signal": "hint", "text": "x", "idempotency_key": "1"});
    let said = agent.refusal("signal_run", hint).await;
    assert!(said.contains("Code: run."), "a run that is over takes no hint: {said}");
    let wish = json!({"task": "row_softmax", "model": "nowhere/model", "max_attempts": 1, "idempotency_key": "one"});
    let said = agent.refusal("create_campaign", wish).await;
    assert!(said.contains("nowhere"), "{said}");
    let said = agent.refusal("control_run", json!({"action": "cancel"})).await;
    assert!(said.contains("`run` or `campaign`"), "{said}");
    agent.client.cancel().await.unwrap();

    let mut command = site.command(OPERATOR);
    command.args(["mcp", "--read-only"]).stderr(Stdio::null());
    let reading = Agent::spawn(command).await;
    let offered = names(&reading).await;
    assert!(CHANGING.iter().all(|name| !offered.contains(&(*name).to_owned())), "{offered:?}");
    reading.client.cancel().await.unwrap();
}

#[tokio::test]
async fn an_approval_can_be_repeated_with_its_key_after_the_run_has_left_the_gate() {
    let folder = tempfile::tempdir().unwrap();
    let command = |name: &str| {
        let mut command = nightshift(&folder.path().join(name));
        command.env("NIGHTSHIFT_SERVER__TOKEN", OPERATOR);
        command
    };
    let served = Served::start(command("server"), &[]);
    let task = tiny_task::write(folder.path(), "gaussian", &[16, 2]);
    let client = || {
        let mut client = command("client");
        client.args(["--server", &served.address]).stdout(Stdio::null()).stderr(Stdio::null());
        client
    };
    let mut following = client();
    following.arg("run").arg(&task).args(["--model", "scripted", "--approve", "plan"]);
    let following = tokio::process::Command::from(following).kill_on_drop(true).spawn();
    let mut mcp = client();
    mcp.arg("mcp");
    let agent = Agent::spawn(mcp).await;
    let waiting = async {
        loop {
            let runs = agent.answer("list_runs", json!({})).await;
            if let Some(run) = runs["runs"][0]["run"].as_str() {
                let described = agent.answer("describe_run", json!({"run": run})).await;
                if described["summary"]["awaits"] == json!(["plan"]) {
                    return run.to_owned();
                }
            }
        }
    };
    let run = tokio::time::timeout(MAX_RUN, waiting).await.expect("the run waits for its plan to be approved");

    let mut approve = json!({"run": run, "signal": "approve", "idempotency_key": "one"});
    let said = agent.refusal("signal_run", approve.clone()).await;
    assert!(said.contains("need `gate`") && said.contains("waits now at: plan"), "{said}");
    approve["gate"] = json!("plan");
    let first = agent.answer("signal_run", approve.clone()).await;
    let ended = tokio::time::timeout(MAX_RUN, following.unwrap().wait()).await.expect("the run ends").unwrap();
    assert!(ended.success(), "{ended}");
    assert_eq!(agent.answer("signal_run", approve.clone()).await, first, "the answer that was lost");
    approve["idempotency_key"] = json!("two");
    let said = agent.refusal("signal_run", approve).await;
    assert!(said.contains("run.over"), "another request is refused: {said}");
    agent.client.cancel().await.unwrap();
}

#[tokio::test]
async fn a_run_and_its_attempts_are_read_in_bounded_parts() {
    let site = Site::new();
    let over_http = site.over_http(&site.viewer, ClientLifecycleMode::Initialize).await;
    let over_stdio = site.over_stdio(&site.viewer).await;
    for agent in [over_http, over_stdio] {
        let bounded = async |tool: &str, wish: Value| {
            let answer = agent.answer(tool, wish).await;
            assert!(answer.to_string().len() <= MAX_ANSWER_BYTES, "{tool}: {}", answer.to_string().len());
            answer
        };
        let campaigns = bounded("list_campaigns", json!({})).await;
        assert_eq!(campaigns["campaigns"][0]["campaign"], site.campaign, "{campaigns}");
        let runs = bounded("list_runs", json!({"campaign": site.campaign, "status": "completed"})).await;
        assert_eq!(runs["runs"][0]["run"], site.run, "{runs}");
        let run = bounded("describe_run", json!({"run": &site.run[site.run.len() - 8..]})).await;
        assert_eq!(run["run"]["run"], site.run, "a part of the id is enough: {run}");
        assert!(run["summary"]["reference_median_ns"].as_f64().unwrap() > 0.0, "{run}");
        for section in run["sections"].as_array().unwrap() {
            bounded("describe_run", json!({"run": site.run, "section": section})).await;
        }
        let attempts = whole(&agent, "describe_run", json!({"run": site.run, "section": "attempts"}), 6_000).await;
        assert!(attempts.lines().count() == 2 && attempts.contains("correct_faster"), "{attempts}");

        let best = bounded("get_best_program", json!({"run": site.run})).await;
        assert_eq!((&best["number"], &best["best"]), (&json!(2), &json!(true)), "{best}");
        assert!(best["section"]["text"].as_str().unwrap().contains("ns_run"), "{best}");
        let attempt = bounded("get_attempt", json!({"run": site.run, "number": 2})).await;
        assert_eq!(attempt["result"]["outcome"], "correct_faster", "{attempt}");
        assert_eq!(attempt["result"]["verdict"]["fast"], "yes", "{attempt}");
        assert!(attempt["result"]["speedup"]["low"].as_f64().unwrap() > 1.0, "{attempt}");
        let source =
            whole(&agent, "get_attempt", json!({"run": site.run, "number": 2, "section": "source"}), 200).await;
        let at_once = whole(&agent, "get_best_program", json!({"run": site.run}), 4_000).await;
        assert_eq!(source, at_once, "small parts make the same text");
        for section in attempt["sections"].as_array().unwrap() {
            let wish = json!({"run": site.run, "number": 2, "section": section});
            assert!(!whole(&agent, "get_attempt", wish, 6_000).await.is_empty(), "{section}");
            let uri = format!("nightshift://attempts/{}/2/{}", site.run, section.as_str().unwrap());
            agent.client.read_resource(ReadResourceRequestParams::new(uri)).await.unwrap();
        }
        if attempt["parent"].is_number() {
            let wish = json!({"run": site.run, "number": 2, "section": "difference"});
            assert!(whole(&agent, "get_attempt", wish, 6_000).await.starts_with("--- attempt 1\n+++ attempt 2\n"));
        }
        let found = bounded("search_history", json!({"words": "volatile", "kind": "source"})).await;
        assert!(found["total"].as_u64().unwrap() >= 1, "{found}");
        let listed = bounded("search_history", json!({"task": "gaussian", "fastest_first": true})).await;
        assert_eq!(listed["attempts"][0]["number"], 2, "{listed}");
        let said = agent.refusal("get_attempt", json!({"run": site.run, "number": 99})).await;
        assert!(said.contains("attempt.not_found") && said.contains("2 attempts"), "{said}");
        let templates = agent.client.list_all_resource_templates().await.unwrap();
        assert!(templates.iter().any(|template| template.uri_template.contains("attempts/{run}")));
        agent.client.cancel().await.unwrap();
    }
}

#[test]
fn pages_of_other_sites_workers_and_wrong_tokens_are_refused() {
    let site = Site::new();
    let bearer = |token: &str| format!("Bearer {token}");
    let (viewer, worker, wrong) = (bearer(&site.viewer), bearer(WORKER), bearer("wrong"));
    let (status, answer) = site.raw(&[("authorization", &viewer)]);
    assert!(status == 200 && answer.contains("get_attempt"), "{answer}");
    let (status, answer) = site.raw(&[("authorization", &viewer), ("origin", "https://example.com")]);
    assert!(status == 403 && answer.contains("request.origin_not_allowed"), "{answer}");
    let (status, answer) = site.raw(&[("authorization", &worker)]);
    assert!(status == 403 && answer.contains("access.role_needed"), "{answer}");
    let (status, answer) = site.raw(&[("authorization", &wrong)]);
    assert!(status == 401, "{answer}");
    // On a loopback address everyone may read, and nothing more: a cookie counts for nothing.
    let (status, answer) = site.raw(&[("cookie", "nightshift_session=x")]);
    assert!(status == 200 && !answer.contains("control_run"), "{answer}");
}

#[tokio::test]
async fn without_a_running_server_the_database_of_this_machine_is_read_and_left_to_others_between_calls() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().join("data");
    let task = tiny_task::write(folder.path(), "gaussian", &[2]);
    let mut running = nightshift(&data_dir);
    running.arg("run").arg(&task).args(["--model", "scripted", "--exit", "--json"]);
    expect_exit(&mut running, 0);
    let mut command = nightshift(&data_dir);
    command.arg("mcp").stderr(Stdio::null());
    let agent = Agent::spawn(command).await;
    // At the same time, as clients call tools that read.
    let (campaigns, runs, history) = tokio::join!(
        agent.answer("list_campaigns", json!({})),
        agent.answer("list_runs", json!({})),
        agent.answer("search_history", json!({})),
    );
    assert_eq!(campaigns["campaigns"].as_array().unwrap().len(), 1, "{campaigns}");
    assert_eq!(runs["runs"].as_array().unwrap().len(), 1, "{runs}");
    assert_eq!(history["total"], 1, "{history}");
    // Another command has the database between two calls, while the agent is still connected.
    let listed = tokio::task::spawn_blocking(move || expect_exit(nightshift(&data_dir).args(["list", "--json"]), 0));
    assert_eq!(json_lines(&listed.await.unwrap()).len(), 1);
    assert_eq!(agent.answer("list_runs", json!({})).await["runs"].as_array().unwrap().len(), 1);
    agent.client.cancel().await.unwrap();
}
