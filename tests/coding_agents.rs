//! A coding agent is started as a process, gets the MCP server of one run, and works until its session is over.
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
#[path = "support/processes.rs"]
mod processes;
#[path = "support/server.rs"]
mod server;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use agent::Agent;
use binary::{expect_exit, json_lines, nightshift};
use processes::descendants;
use serde_json::{Value, json};
use server::Served;

const TOKEN: &str = "the-operator-of-this-test";
/// Maximum number of bytes of the instructions of an MCP server.
const MAX_INSTRUCTIONS_BYTES: u64 = 2_000;
/// Waits are bounded by this.
const LONG: Duration = Duration::from_mins(4);

/// The line that starts the agent of the tests.
fn command_line(plan: &str, replies: &Path, notes: &Path, rest: &[&str]) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/session_agent.py");
    let quoted = |text: &str| format!(" '{text}'");
    let parts = [plan, replies.to_str().unwrap(), notes.to_str().unwrap()];
    let parts: String = parts.iter().chain(rest).map(|part| quoted(part)).collect();
    format!("python3 '{}'{parts}", script.display())
}

fn notes(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn entries(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn an_agent_that_is_killed_goes_on_with_its_session_and_sees_no_other_run() {
    let folder = tempfile::tempdir().unwrap();
    let optimize = |args: &[&str]| {
        let mut command = nightshift(&folder.path().join("data"));
        command.current_dir(folder.path()).env("LAB_API_KEY", "hush").args(["optimize", "--allow-unsandboxed"]);
        command.args(args).arg("--json");
        expect_exit(&mut command, 0);
    };
    let evidence =
        |name: &str| -> Value { serde_json::from_slice(&std::fs::read(folder.path().join(name)).unwrap()).unwrap() };
    optimize(&["row_softmax", "--model", "scripted", "--max-attempts", "1", "--out", "other.cpp"]);
    let other = evidence("other.json")["run"]["summary"]["id"].as_str().unwrap().to_owned();

    let replies = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/row_softmax/replies");
    let noted = folder.path().join("notes");
    let agent = command_line("submits", &replies, &noted, &[folder.path().join("other.cpp").to_str().unwrap(), &other]);
    optimize(&["row_softmax", "--agent", &agent, "--strategy", "agent", "--max-attempts", "2", "--out", "own.cpp"]);

    let noted = notes(&noted);
    let starts: Vec<&Value> = noted.iter().filter(|note| note["pid"].is_number()).collect();
    assert_eq!(starts.len(), 2, "{noted:#?}");
    for start in &starts {
        assert_eq!(start["is_told"], true, "{start}");
        assert!(start["instructions_bytes"].as_u64().unwrap() <= MAX_INSTRUCTIONS_BYTES, "{start}");
        let variables = start["variables"].as_array().unwrap();
        assert!(variables.contains(&json!("PATH")) && !variables.contains(&json!("LAB_API_KEY")), "{start}");
    }
    let mut tools: Vec<&str> =
        starts[0]["tools"].as_array().unwrap().iter().map(|tool| tool.as_str().unwrap()).collect();
    tools.sort_unstable();
    assert_eq!(tools, ["describe_run", "get_attempt", "get_best_program", "get_turn", "take_turn"]);
    let own = [".mcp.json", "contract.md", "prompt.md", "reference.cpp", "session.md", "task.json"].map(Value::from);
    assert_eq!(starts[0]["files"], Value::from(own.to_vec()));
    assert!(starts[1]["files"].as_array().unwrap().contains(&json!("programs/turn1.cpp")), "{}", starts[1]);
    let refused = noted.iter().find(|note| note["other"].is_object()).unwrap();
    for call in ["other", "turn"] {
        assert!(refused[call]["refused"].as_str().unwrap().contains("access.other_run"), "{refused}");
    }
    assert!(refused["campaigns"]["refused"].as_str().unwrap().contains("request.no_such_tool"), "{refused}");
    assert!(refused["resource"].as_str().unwrap().contains("access.other_run"), "{refused}");

    let run = &evidence("own.json")["run"];
    let attempts = run["view"]["attempts"].as_array().unwrap();
    let turns = attempts.iter().flat_map(|attempt| attempt["turns"].as_array().unwrap());
    let turns: Vec<(u64, &str)> =
        turns.map(|turn| (turn["number"].as_u64().unwrap(), turn["tool"].as_str().unwrap())).collect();
    assert_eq!(turns[..2], [(1, "build"), (2, "submit")], "{turns:?}");
    assert!(turns.len() <= 3, "the turn before the kill was taken once: {turns:?}");
    assert!(std::fs::read_to_string(folder.path().join("own.cpp")).unwrap().contains("ns_run"));
    assert_eq!(entries(&folder.path().join("data/agents")), Vec::<String>::new(), "the workspace is removed");
}

#[test]
fn a_search_that_stops_early_writes_its_best_program_and_goes_on_later() {
    let folder = tempfile::tempdir().unwrap();
    let task = gaussian::write_task(folder.path(), "gaussian", 4096, 2);
    // Far from the roofline, where the session would end.
    std::fs::write(folder.path().join("right.cpp"), gaussian::program("", "32", "value")).unwrap();
    let bundled = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/row_softmax/replies");
    let replies = folder.path().join("replies");
    std::fs::create_dir(&replies).unwrap();
    for name in ["subtask1.attempt1.judge.md", "subtask1.attempt1.diagnose.md"] {
        std::fs::copy(bundled.join(name), replies.join(name)).unwrap();
    }
    let plan = r#"{"summary": "Evaluate the exponential fewer times.",
 "subtasks": [{"title": "gaussian", "scope": ["gaussian"], "fusion_boundary": "the whole program"}]}"#;
    std::fs::write(replies.join("plan.md"), plan).unwrap();
    let (program, evidence) = (folder.path().join("own.cpp"), folder.path().join("own.json"));
    let status = || -> Value {
        let evidence: Value = serde_json::from_slice(&std::fs::read(&evidence).unwrap()).unwrap();
        evidence["result"]["status"].clone()
    };
    let noted = folder.path().join("notes");
    let waits = command_line("waits", &replies, &noted, &[folder.path().join("right.cpp").to_str().unwrap()]);
    let search = |agent: &str| {
        let mut command = nightshift(&folder.path().join("data"));
        command.current_dir(folder.path()).args(["optimize", "--allow-unsandboxed", "--json"]).arg(&task);
        command.args(["--agent", agent, "--strategy", "agent", "--target-speedup", "1000", "--out", "own.cpp"]);
        command
    };

    let mut first = search(&waits).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("a program was submitted", || notes(&noted).iter().any(|note| note["waits"] == true));
    interrupt(&mut first);
    assert!(std::fs::read_to_string(&program).unwrap().contains("ns_run"));
    assert_eq!(status(), "running");

    std::fs::write(&program, "replaced").unwrap();
    let printed = json_lines(&expect_exit(&mut search("echo nothing to do; exit 3"), 6));
    assert_eq!(printed.last().unwrap()["error"]["code"], "agent.no_turn", "{printed:?}");
    assert!(std::fs::read_to_string(&program).unwrap().contains("ns_run"));
    assert_eq!(status(), "running");
}

/// A server with a worker, and a session whose first turn waits.
struct Site {
    folder: tempfile::TempDir,
    served: Option<Served>,
    agent: Agent,
    run: String,
}

impl Site {
    /// The server is elsewhere: clients have another data folder, its address and its token.
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = nightshift(&folder.path().join("server"));
        command
            .env("NIGHTSHIFT_SERVER__TOKEN", TOKEN)
            .env("NIGHTSHIFT_SERVER__WORKER_TOKEN", "the-worker-of-this-test");
        Self::begin(folder, Some(Served::start(command, &[]))).await
    }

    /// Clients find the server in their data folder.
    async fn local() -> (Self, Served) {
        let folder = tempfile::tempdir().unwrap();
        let served = Served::start(nightshift(&folder.path().join("client")), &[]);
        (Self::begin(folder, None).await, served)
    }

    async fn begin(folder: tempfile::TempDir, served: Option<Served>) -> Self {
        let mut command = client(folder.path(), served.as_ref());
        command.arg("mcp").stderr(Stdio::null());
        let agent = Agent::spawn(command).await;
        let task = gaussian::write_task(folder.path(), "gaussian", 4096, 3);
        std::fs::write(folder.path().join("own.cpp"), gaussian::program("", "8", "value")).unwrap();
        let wish = json!({
            "task": task, "model": "external", "strategy": "agent", "max_attempts": 2, "max_turns": 6,
            "idempotency_key": "one",
        });
        let created = agent.answer("create_campaign", wish).await;
        let run = created["runs"][0].as_str().unwrap().to_owned();
        let site = Self { folder, served, agent, run };
        assert_eq!(site.state().await["state"], "question");
        let taken = site.agent.answer("next_request", json!({"run": site.run, "wait_s": 0})).await["request"].clone();
        let plan = json!({
            "summary": "Evaluate the exponential fewer times.",
            "subtasks": [{
                "title": "gaussian", "scope": ["gaussian"], "fusion_boundary": "the whole program",
                "contract": {"inputs": [], "outputs": []}, "methods": ["fewer passes"],
                "expected_bottleneck": "compute", "risk": "none", "time_share": null, "expected_gain": null,
                "target_speedup": null,
            }],
            "correctness_risks": [],
        });
        let answer = json!({"request": taken["request"], "lease": taken["lease"], "text": plan.to_string()});
        site.agent.answer("answer_request", answer).await;
        assert_eq!(site.state().await["state"], "your_turn");
        site
    }

    /// Waits until the session is not working. Returns where it stands.
    async fn state(&self) -> Value {
        let until = Instant::now() + LONG;
        loop {
            let session = self.agent.answer("get_turn", json!({"run": self.run, "wait_s": 45})).await;
            if session["state"] != "working" {
                return session;
            }
            assert!(Instant::now() < until, "{session}");
        }
    }

    fn notes(&self) -> PathBuf {
        self.folder.path().join("notes")
    }

    fn line(&self, plan: &str) -> String {
        let program = self.folder.path().join("own.cpp");
        command_line(plan, self.folder.path(), &self.notes(), &[program.to_str().unwrap()])
    }

    /// `nightshift agent` for the session of this site.
    fn work(&self, line: &str, args: &[&str]) -> Command {
        let mut command = client(self.folder.path(), self.served.as_ref());
        command.args(["agent", line, "--of", &self.run, "--json"]).args(args);
        command
    }

    fn workspace(&self) -> PathBuf {
        self.folder.path().join("client/agents").join(&self.run)
    }
}

fn client(folder: &Path, served: Option<&Served>) -> Command {
    let mut command = nightshift(&folder.join("client"));
    if let Some(served) = served {
        command.env("NIGHTSHIFT_SERVER__TOKEN", TOKEN).args(["--server", &served.address]);
    }
    command
}

fn code(command: &mut Command, exit_code: i32) -> String {
    json_lines(&expect_exit(command, exit_code))[0]["error"]["code"].as_str().unwrap().to_owned()
}

/// `nightshift mcp --run`, with a part of the id.
async fn bound_to_its_run(site: &Site) {
    let mut command = client(site.folder.path(), site.served.as_ref());
    command.args(["mcp", "--run", &site.run[site.run.len() - 12..]]).stderr(Stdio::null());
    let bound = Agent::spawn(command).await;
    let session = bound.answer("get_turn", json!({"run": site.run, "wait_s": 0})).await;
    assert_eq!((&session["state"], &session["open_turn"]), (&json!("your_turn"), &json!(1)), "{session}");
    let described = bound.answer("describe_run", json!({"run": site.run, "section": "reference"})).await;
    assert!(described["section"]["text"].as_str().unwrap().contains("ns_run"), "{described}");
    for (tool, run) in [("describe_run", format!("run_{:032x}", 7)), ("get_turn", "cmp_7".to_owned())] {
        let said = bound.refusal(tool, json!({"run": run})).await;
        assert!(said.contains("access.other_run"), "{tool}: {said}");
    }
    let mut command = client(site.folder.path(), site.served.as_ref());
    command.args(["mcp", "--run", &site.run]).env("NIGHTSHIFT_SERVER__TOKEN", "another").stderr(Stdio::null());
    let turn = json!({"run": site.run, "tool": "build", "idempotency_key": "one"});
    let said = Agent::spawn(command).await.refusal("take_turn", turn).await;
    assert!(said.contains("auth.wrong_token") && !said.contains("call get_turn again"), "no other token comes: {said}");
    let said = bound.refusal("next_request", json!({"run": site.run})).await;
    assert!(said.contains("request.no_such_tool"), "{said}");
}

#[tokio::test]
async fn an_agent_that_takes_no_turn_is_given_up_and_the_session_stays_open_for_another() {
    let site = Site::new().await;
    bound_to_its_run(&site).await;
    assert_eq!(code(&mut site.work("no-such-program-here", &[]), 6), "agent.not_started");
    assert_eq!(code(&mut site.work("echo nothing to do; exit 3", &[]), 6), "agent.no_turn");
    let log = std::fs::read_to_string(site.workspace().join("agent.log")).unwrap();
    assert_eq!(log.matches("nothing to do").count(), 3, "{log}");
    assert_eq!(code(&mut site.work(&site.line("hangs"), &["--turn-timeout", "1"]), 6), "agent.no_turn");
    assert_eq!(site.state().await["state"], "your_turn");

    let kept = site.folder.path().join("kept");
    std::fs::remove_file(site.notes()).unwrap();
    expect_exit(&mut site.work(&site.line("builds"), &["--workspaces", kept.to_str().unwrap()]), 0);
    let session = site.state().await;
    assert_eq!((&session["state"], &session["doing"]), (&json!("ended"), &json!("agent_finished")), "{session}");
    let taken: Vec<Value> = notes(&site.notes()).into_iter().filter(|note| note["took"].is_number()).collect();
    assert_eq!(taken.len(), 2, "{taken:#?}");
    assert!(kept.join(&site.run).join("work/prompt.md").exists(), "it is kept on purpose");
}

#[tokio::test]
async fn an_interrupt_leaves_no_process_and_the_session_open() {
    let site = Site::new().await;
    let mut child = site.work(&site.line("hangs"), &[]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("the agent was started", || !notes(&site.notes()).is_empty());
    let below = descendants(child.id());
    assert!(below.len() >= 2, "the agent and its MCP server: {below:?}");
    interrupt(&mut child);
    wait_until("every process has ended", || below.iter().all(|process| !process.is_alive()));
    assert_eq!(site.state().await["state"], "your_turn");
}

#[tokio::test]
async fn a_call_waits_for_a_server_elsewhere_that_is_started_again() {
    let site = Site::new().await;
    let served = site.served.as_ref().unwrap();
    // Connections are refused until it listens.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = format!("http://{}", socket.local_addr().unwrap());
    let mut command = nightshift(&site.folder.path().join("client"));
    command.env("NIGHTSHIFT_SERVER__TOKEN", TOKEN).args(["--server", &address, "mcp", "--run", &site.run]);
    command.stderr(Stdio::null());
    let bound = Agent::spawn(command).await;
    let turn = async || bound.call("get_turn", json!({"run": site.run, "wait_s": 0})).await;
    let mut waiting = Box::pin(turn());
    let early = tokio::time::timeout(Duration::from_secs(1), &mut waiting).await;
    assert!(early.is_err(), "it waits: {early:?}");
    let listener = socket.listen(16).unwrap();
    let server = served.address.trim_start_matches("http://").to_owned();
    tokio::spawn(async move {
        while let Ok((mut from, _)) = listener.accept().await {
            let mut to = tokio::net::TcpStream::connect(&server).await.unwrap();
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut from, &mut to).await });
        }
    });
    let answered = waiting.await;
    assert_ne!(answered.is_error, Some(true), "{answered:?}");
    assert_eq!(answered.structured_content.unwrap()["state"], "your_turn");
}

#[tokio::test]
async fn a_session_goes_on_when_its_local_server_is_killed_and_started_again() {
    let (site, served) = Site::local().await;
    let noted = |name: &str| notes(&site.notes()).iter().any(|note| !note[name].is_null());
    let mut command = site.work(&site.line("restarts"), &[]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("the first turn was taken", || noted("took"));
    // `kill -9`: the next server has another token, and another port.
    drop(served);
    std::fs::write(site.notes().with_extension("go"), "").unwrap();
    wait_until("the agent calls while there is no server", || noted("goes_on"));
    let _served = Served::start(nightshift(&site.folder.path().join("client")), &[]);
    assert_eq!(end(&mut child), Some(0));
    let session = site.state().await;
    assert_eq!((&session["state"], &session["doing"]), (&json!("ended"), &json!("agent_finished")), "{session}");
    let taken = notes(&site.notes()).into_iter().filter(|note| note["took"].is_number()).collect::<Vec<_>>();
    assert_eq!(taken.len(), 2, "{taken:#?}");
    assert!(taken.iter().all(|note| note["refused"].is_null()), "{taken:#?}");
}

#[tokio::test]
async fn the_folder_of_a_session_that_ended_unseen_is_removed_by_the_next_start() {
    let (site, _served) = Site::local().await;
    let mut child = site.work(&site.line("hangs"), &[]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("the agent was started", || !notes(&site.notes()).is_empty());
    processes::kill_tree(child.id());
    child.wait().unwrap();
    let other = site.workspace().with_file_name(format!("run_{:032x}", 7));
    std::fs::create_dir(&other).unwrap();
    expect_exit(&mut site.work("echo nothing to do", &[]), 6);
    assert!(site.workspace().join("work").exists(), "its session is open");
    let finish = json!({"run": site.run, "tool": "finish", "note": "enough", "idempotency_key": "last", "wait_s": 45});
    site.agent.answer("take_turn", finish).await;
    assert_eq!(site.state().await["state"], "ended");
    expect_exit(&mut site.work("echo nothing to do", &[]), 0);
    assert!(!site.workspace().exists(), "its session is over");
    assert!(other.exists(), "the server does not know the run");
}

#[test]
fn a_server_waits_for_a_command_that_has_its_data_folder_for_a_moment() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().join("client");
    let mut alone = nightshift(&data_dir);
    assert_eq!(code(alone.args(["agent", "true", "--json"]), 6), "server.does_not_drive");
    assert!(!data_dir.exists(), "it is in no way of a server");
    std::fs::create_dir(&data_dir).unwrap();
    let lock = std::fs::File::create(data_dir.join("nightshift.lock")).unwrap();
    lock.lock().unwrap();
    let holder = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(1));
        drop(lock);
    });
    let served = Served::start(nightshift(&data_dir), &[]);
    assert!(served.address.starts_with("http://"), "{}", served.address);
    holder.join().unwrap();
    // Another server keeps it.
    let mut second = nightshift(&data_dir);
    second.args(["serve", "--bind", "127.0.0.1:0", "--json"]);
    assert_eq!(code(&mut second, 5), "store.locked");
}

/// Sends SIGINT, and waits for the exit code of an interrupted command.
#[expect(clippy::disallowed_methods, reason = "the test interrupts what it started")]
fn interrupt(child: &mut Child) {
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert_eq!(end(child), Some(130));
}

/// Waits for the exit code of a command.
fn end(child: &mut Child) -> Option<i32> {
    let until = Instant::now() + LONG;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        assert!(Instant::now() < until, "it does not end");
        std::thread::sleep(Duration::from_millis(50));
    }
}
