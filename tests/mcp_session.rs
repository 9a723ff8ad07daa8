//! A coding agent drives an agent session by its tools: from the campaign to its summary.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first thing that is not as it should be"
)]

#[path = "support/agent.rs"]
mod agent;
#[path = "support/binary.rs"]
mod binary;
#[path = "support/gaussian.rs"]
mod gaussian;
#[path = "support/server.rs"]
mod server;

use std::path::PathBuf;
use std::process::{Command, Stdio};

use agent::Agent;
use binary::{expect_exit, json_lines, nightshift};
use rmcp::service::{ClientLifecycleMode, serve_client_with_lifecycle};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::{Value, json};
use server::Served;

const OPERATOR: &str = "the-operator-of-this-test";
const WORKER: &str = "the-worker-of-this-test";
/// Maximum number of bytes of an answer of the default size.
const MAX_ANSWER_BYTES: usize = 8 * 1024;
/// Calls after which a session has to need its agent: each waits for 45 seconds at most.
const MAX_CALLS: usize = 6;

/// A server with a worker, and two agents: one that may act, and one that may read.
struct Site {
    folder: tempfile::TempDir,
    served: Served,
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = nightshift(&folder.path().join("server"));
        command.env("NIGHTSHIFT_SERVER__TOKEN", OPERATOR).env("NIGHTSHIFT_SERVER__WORKER_TOKEN", WORKER);
        Self { served: Served::start(command, &[]), folder }
    }

    fn command(&self, token: &str) -> Command {
        let mut command = nightshift(&self.folder.path().join("client"));
        command.env("NIGHTSHIFT_SERVER__TOKEN", token).args(["--server", &self.served.address]);
        command
    }

    async fn agent(&self, token: &str) -> Agent {
        let mut command = self.command(token);
        command.arg("mcp").stderr(Stdio::null());
        Agent::spawn(command).await
    }

    async fn viewer(&self) -> Agent {
        let args = ["token", "create", "the reader", "--role", "viewer", "--json"];
        let created = json_lines(&expect_exit(self.command(OPERATOR).args(args), 0)).remove(0);
        self.agent(created["secret"].as_str().unwrap()).await
    }

    /// A task of this machine.
    fn task(&self) -> String {
        gaussian::write_task(self.folder.path(), "gaussian", 4096, 3).to_str().unwrap().to_owned()
    }
}

/// Begins a session. Returns its run.
async fn begin(agent: &Agent, task: &str, key: &str) -> String {
    let wish = json!({
        "task": task, "model": "external", "strategy": "agent", "max_attempts": 3, "max_turns": 12, "target_speedup": 1000.0,
        "max_tokens": 1_000_000, "max_device_minutes": 60, "idempotency_key": key,
    });
    let created = agent.answer("create_campaign", wish).await;
    assert!(created["next"].as_str().unwrap().contains("get_turn"), "{created}");
    created["runs"][0].as_str().unwrap().to_owned()
}

/// Waits until the session needs its agent. Answers what other roles are asked.
async fn needed(agent: &Agent, run: &str) -> Value {
    for _ in 0..MAX_CALLS {
        let session = bounded(agent, "get_turn", json!({"run": run, "wait_s": 45})).await;
        match session["state"].as_str().unwrap() {
            "question" => answer_question(agent, run).await,
            "working" => {}
            _ => return session,
        }
    }
    panic!("the session never needed its agent");
}

async fn bounded(agent: &Agent, tool: &str, wish: Value) -> Value {
    let answer = agent.answer(tool, wish).await;
    let length = answer.to_string().len();
    assert!(length <= MAX_ANSWER_BYTES, "{tool}: {length}");
    answer
}

async fn answer_question(agent: &Agent, run: &str) {
    let taken = agent.answer("next_request", json!({"run": run, "wait_s": 0})).await["request"].clone();
    let text = match taken["role"].as_str() {
        Some("planner") => json!({
            "summary": "Evaluate the exponential fewer times.",
            "subtasks": [{
                "title": "gaussian", "scope": ["gaussian"], "fusion_boundary": "the whole program",
                "contract": {"inputs": [], "outputs": []}, "methods": ["fewer passes"],
                "expected_bottleneck": "compute", "risk": "none", "time_share": null, "expected_gain": null,
                "target_speedup": null,
            }],
            "correctness_risks": [],
        }),
        Some("judge") => json!({
            "anti_hacking": 3, "engineering": 3, "operator_coverage": 3, "skill_compliance": 3, "major_hacking": false,
            "reasons": ["It does what it says."],
        }),
        other => panic!("{other:?} is asked: {taken}"),
    };
    let answer = json!({"request": taken["request"], "lease": taken["lease"], "text": text.to_string()});
    agent.answer("answer_request", answer).await;
}

/// Takes a turn. Returns the session once it needs its agent again, with the evidence of the turn.
async fn turn(agent: &Agent, run: &str, call: Value) -> Value {
    let mut wish = call;
    wish["run"] = json!(run);
    wish["wait_s"] = json!(45);
    let taken = bounded(agent, "take_turn", wish).await;
    let number = taken["turn"]["number"].clone();
    needed(agent, run).await;
    bounded(agent, "get_turn", json!({"run": run, "turn": number})).await
}

fn right(passes: u32) -> String {
    gaussian::program("", &passes.to_string(), "value")
}

/// `wrong` is the session while the reply to turn 2 has to be mended.
async fn unclear_calls_are_refused(agent: &Agent, run: &str, wrong: &Value) {
    let earlier = bounded(agent, "get_turn", json!({"run": run, "turn": 1})).await;
    assert!(earlier["text"]["text"].as_str().unwrap().contains("moonlight"), "the result of turn 1: {earlier}");
    let whole = agent.answer("get_turn", json!({"run": run, "turn": 1, "limit": 4096})).await;
    let text = |session: &Value| session["text"]["text"].as_str().unwrap().to_owned();
    let starts_alike = text(&whole).starts_with(&text(&earlier));
    assert!(whole["result"].is_null() && starts_alike, "{whole}");

    assert_eq!(wrong["open_turn"], 2, "{wrong}");
    let other = json!({"run": run, "tool": "submit", "open_turn": 1, "idempotency_key": "k0"});
    let said = agent.refusal("take_turn", other).await;
    assert!(said.contains("run.no_open_turn") && said.contains("the open turn is 2"), "{said}");
    for (field, value, reason) in [
        ("program", json!("a\n<<<<<<< SEARCH\nb\n"), "begins an edit"),
        ("edits", json!([{"search": "a\n=======", "replace": "b"}]), "`search` of edit 1"),
        ("note", json!("x".repeat(2_001)), "2000 characters"),
    ] {
        let said =
            agent.refusal("take_turn", json!({"run": run, "tool": "build", "idempotency_key": "k0", field: value}));
        let said = said.await;
        assert!(said.contains("request.invalid_arguments") && said.contains(reason), "{said}");
    }
}

async fn a_held_and_a_paused_session_say_so(agent: &Agent, run: &str) {
    let wish = json!({"run": run, "roles": ["coder"], "agent": "the other one", "wait_s": 0});
    let held = agent.answer("next_request", wish).await["request"].clone();
    let seen = bounded(agent, "get_turn", json!({"run": run})).await;
    let next = seen["next"].as_str().unwrap();
    assert!(next.contains("`the other one`") && next.contains("release_request"), "{next}");
    agent.answer("release_request", json!({"request": held["request"], "lease": held["lease"]})).await;

    agent.answer("control_run", json!({"run": run, "action": "pause"})).await;
    let paused = bounded(agent, "get_turn", json!({"run": run})).await;
    assert_eq!((&paused["turn"]["number"], &paused["turn"]["tool"]), (&json!(2), &json!("measure")), "{paused}");
    assert!(paused["open_turn"].is_null(), "{paused}");
    agent.answer("control_run", json!({"run": run, "action": "resume"})).await;
    needed(agent, run).await;
}

#[tokio::test]
async fn a_session_is_driven_from_the_campaign_to_its_summary() {
    let site = Site::new();
    let agent = site.agent(OPERATOR).await;
    let viewer = site.viewer().await;
    let run = begin(&agent, &site.task(), "one").await;

    let first = needed(&agent, &run).await;
    assert_eq!((first["state"].as_str(), first["turn"].is_null()), (Some("your_turn"), true), "{first}");
    assert_eq!((&first["turns_left"], &first["submissions_left"]), (&json!(12), &json!(3)), "{first}");
    assert!(first["text"]["text"].as_str().unwrap().contains("You are the Coder of Nightshift"), "{first}");
    let left = first["budget_left"].to_string();
    assert!(left.contains("of 1000000 tokens") && left.contains("seconds of device time"), "{left}");
    assert!(!left.contains("dollars"), "only what is limited: {left}");

    let broken = right(8).replace("return 0;", "return moonlight;");
    let built = json!({"tool": "build", "program": broken, "note": "a first try", "idempotency_key": "k1"});
    let built = turn(&agent, &run, built).await;
    assert_eq!((&built["turn"]["number"], &built["result"]["outcome"]), (&json!(1), &json!("compile_failed")));
    let text = built["text"]["text"].as_str().unwrap();
    assert!(text.contains("moonlight") && text.contains("Left: 11 turns, 3 submissions."), "{text}");
    assert!(text.contains("Left of the campaign's budget: ") && text.contains("of device time"), "{text}");

    let wrong = json!({"tool": "measure", "edits": [{"search": "not there", "replace": "x"}], "idempotency_key": "k2"});
    let wrong = turn(&agent, &run, wrong).await;
    assert_eq!((&wrong["turn"]["number"], &wrong["turn"]["over"]), (&json!(2), &json!(false)), "{wrong}");
    assert!(wrong["text"]["text"].as_str().unwrap().contains("does not match"), "{wrong}");
    assert_eq!(wrong["turns_left"], 11, "a reply that cannot be used leaves the turn open: {wrong}");
    unclear_calls_are_refused(&agent, &run, &wrong).await;

    let edit = json!([{"search": "    return moonlight;", "replace": "    return 0;"}]);
    let edited =
        if broken.contains("    return moonlight;") { json!({"edits": edit}) } else { json!({"program": right(8)}) };
    let mut measure = edited;
    measure["tool"] = json!("measure");
    measure["idempotency_key"] = json!("k3");
    let measured = turn(&agent, &run, measure.clone()).await;
    assert_eq!(measured["turn"]["number"], 2, "{measured}");
    assert!(measured["result"]["outcome"].as_str().unwrap().starts_with("correct"), "{measured}");
    assert!(measured["result"]["speedup"]["low"].is_number() && measured["best"].is_null(), "{measured}");

    measure["run"] = json!(run);
    let again = bounded(&agent, "take_turn", measure.clone()).await;
    assert_eq!((&again["turn"]["number"], &again["turns_left"]), (&json!(2), &json!(10)), "{again}");
    measure["note"] = json!("another one");
    let said = agent.refusal("take_turn", measure).await;
    assert!(said.contains("request.key_reused") && said.contains("turn 2"), "{said}");

    a_held_and_a_paused_session_say_so(&agent, &run).await;

    let submit = json!({"run": run, "tool": "submit", "open_turn": 3, "idempotency_key": "k4"});
    let said = viewer.refusal("take_turn", submit.clone()).await;
    assert!(said.contains("access.role_needed") && said.contains("operator"), "{said}");
    let seen = bounded(&viewer, "get_turn", json!({"run": run, "wait_s": 0})).await;
    assert_eq!(seen["turn"]["number"], 2, "a viewer reads: {seen}");

    let submitted = turn(&agent, &run, submit).await;
    assert_eq!((&submitted["turn"]["number"], &submitted["turn"]["attempt"]), (&json!(3), &json!(1)), "{submitted}");
    assert_eq!((&submitted["best"]["attempt"], &submitted["best"]["confirmed"]), (&json!(1), &json!(true)));
    if submitted["state"] == "your_turn" {
        assert_eq!(submitted["submissions_left"], 2, "{submitted}");
        let finish = json!({"tool": "finish", "note": "eight passes are enough", "idempotency_key": "k5"});
        let finished = turn(&agent, &run, finish).await;
        assert_eq!((finished["state"].as_str(), finished["doing"].as_str()), (Some("ended"), Some("agent_finished")));
        assert_eq!(finished["turn"]["note"], "eight passes are enough");
    }
    let said = agent.refusal("take_turn", json!({"run": run, "tool": "build", "idempotency_key": "k6"})).await;
    assert!(said.contains("run.no_open_turn") && said.contains("is over"), "{said}");
}

#[tokio::test]
async fn a_task_is_made_from_the_texts_of_its_files() {
    let site = Site::new();
    let config = StreamableHttpClientTransportConfig::with_uri(format!("{}/mcp", site.served.address));
    let transport = StreamableHttpClientTransport::from_config(config.auth_header(OPERATOR));
    let mode = ClientLifecycleMode::Initialize;
    let over_http = Agent { client: serve_client_with_lifecycle((), transport, mode).await.expect("a session") };
    let mut command = site.command(OPERATOR);
    command.arg("mcp").env("NIGHTSHIFT_WORKER__PYTHON", "/nowhere/python").stderr(Stdio::null());
    let over_stdio = Agent::spawn(command).await;

    let folder = PathBuf::from(site.task());
    let text = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let files = json!({"task.toml": text("task.toml"), "reference.cpp": text("reference.cpp")});
    let created = bounded(&over_http, "create_task", json!({"files": files})).await;
    assert_eq!((&created["name"], &created["target"]), (&json!("gaussian"), &json!("cpu")), "{created}");
    let again = bounded(&over_stdio, "create_task", json!({"files": files})).await;
    assert_eq!(again["task"], created["task"], "the same files are the same task");
    let wish = json!({"task": created["task"], "section": "reference"});
    let described = bounded(&over_http, "describe_task", wish).await;
    assert_eq!(described["section"]["text"], files["reference.cpp"]);
    let run = begin(&over_http, created["task"].as_str().unwrap(), "one").await;
    let listed = bounded(&over_http, "list_runs", json!({})).await;
    assert_eq!((&listed["runs"][0]["run"], &listed["runs"][0]["task"]), (&json!(run), &json!("gaussian")));

    let said = over_http.refusal("create_task", json!({"files": files, "target": "cuda"})).await;
    assert!(said.contains("request.invalid_arguments") && said.contains("a task for cpu"), "{said}");
    let mistaken = json!({"files": {"task.toml": text("task.toml").replace("schema = 1", "schema = 1\nspeed = 2")}});
    let said = over_http.refusal("create_task", mistaken).await;
    assert!(said.contains("task.toml:2") && said.contains("speed"), "{said}");
    let said = over_http.refusal("create_task", json!({"files": {"task.toml": text("task.toml")}})).await;
    assert!(said.contains("task.no_reference") && said.contains("reference.cpp"), "{said}");
    let model = json!({"files": {"model.py": "import torch\n\nclass Model(torch.nn.Module):\n    pass\n"}});
    let said = over_http.refusal("create_task", model.clone()).await;
    assert!(said.contains("task.no_python") && said.contains("nightshift mcp"), "{said}");
    let said = over_stdio.refusal("create_task", model).await;
    assert!(said.contains("Code: toolchain.") && said.contains("/nowhere/python"), "{said}");
    let said = site.viewer().await.refusal("create_task", json!({"files": files})).await;
    assert!(said.contains("access.role_needed"), "{said}");
}

#[tokio::test]
async fn a_call_without_an_open_turn_is_refused() {
    let site = Site::new();
    let agent = site.agent(OPERATOR).await;
    let call = |run: &str| json!({"run": run, "tool": "build", "program": right(8), "idempotency_key": "k"});
    let nowhere = format!("run_{:032x}", 7);
    assert!(agent.refusal("take_turn", call(&nowhere)).await.contains("run.not_found"));
    let task = site.task();
    let wish = json!({"task": task, "model": "external", "idempotency_key": "other", "max_attempts": 1});
    let other = agent.answer("create_campaign", wish).await["runs"][0].as_str().unwrap().to_owned();
    let run = begin(&agent, &task, "one").await;
    let asked = loop {
        let session = agent.answer("get_turn", json!({"run": run, "wait_s": 45})).await;
        if session["state"] != "working" {
            break session;
        }
    };
    assert_eq!(asked["state"], "question", "{asked}");
    let said = agent.refusal("take_turn", call(&run)).await;
    assert!(said.contains("run.no_open_turn") && said.contains("planner"), "{said}");
    agent.answer("control_run", json!({"run": run, "action": "pause"})).await;
    let said = agent.refusal("take_turn", call(&run)).await;
    assert!(said.contains("run.no_open_turn") && said.contains("is paused"), "{said}");
    // It is known once the task is prepared.
    let wait = json!({"run": other, "wait_s": 45});
    assert!(agent.refusal("get_turn", wait).await.contains("run.no_session"));
    let without = agent.refusal("take_turn", call(&other)).await;
    assert!(without.contains("run.no_session") && without.contains("strategy"), "{without}");
}
