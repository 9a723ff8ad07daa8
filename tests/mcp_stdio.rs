//! `nightshift mcp` over standard input and output: tools, verifications with handles, both ways to begin a session, and
//! what may not go wrong. The programs are for the target `cpu`.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first thing that is not as it should be"
)]

#[path = "support/agent.rs"]
mod agent;
#[path = "support/binary.rs"]
#[expect(dead_code, reason = "no command is looked at that ends by itself")]
mod binary;
#[path = "support/gaussian.rs"]
mod gaussian;

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use agent::Agent;
use binary::nightshift;
use gaussian::program;
use rmcp::model::{ProtocolVersion, ReadResourceRequestParams};
use rmcp::service::ClientLifecycleMode;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Maximum time until a program is judged, its compilers found and its reference built first.
const MAX_JUDGING: Duration = Duration::from_mins(4);
/// Maximum time between the end of the input and the end of the process.
const MAX_END: Duration = Duration::from_secs(30);
/// Maximum number of bytes of an answer for which nothing larger was asked.
const MAX_ANSWER_BYTES: usize = 8 * 1024;
/// What clients show of a description and of the instructions.
const MAX_DESCRIPTION_BYTES: usize = 2_000;

/// A folder with the task `gaussian`.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    gaussian::write_task(folder.path(), "gaussian", 2048, 1);
    folder
}

fn mcp(folder: &Path, args: &[&str]) -> Command {
    let mut command = nightshift(&folder.join("data"));
    command.current_dir(folder).args(["mcp", "--allow-unsandboxed"]).args(args).stderr(Stdio::null());
    command
}

/// Waits for the verdict of a verification.
async fn judged(agent: &Agent, handle: &Value) -> Value {
    let until = Instant::now() + MAX_JUDGING;
    loop {
        let answer = agent.answer("get_verification", json!({"verification": handle, "wait_s": 45})).await;
        if answer["state"] == "ended" {
            return answer;
        }
        assert!(Instant::now() < until, "{answer}");
    }
}

#[tokio::test]
async fn a_program_is_verified_with_a_handle_that_outlives_its_calls() {
    let folder = folder();
    let agent = Agent::spawn(mcp(folder.path(), &[])).await;
    let wish = json!({"task": "gaussian", "source": program("", "2", "value"), "wait_s": 0, "idempotency_key": "a"});
    let begun = agent.answer("verify_program", wish.clone()).await;
    let handle = &begun["verification"];
    assert!(["queued", "running"].contains(&begun["state"].as_str().unwrap()), "{begun}");
    let again = agent.answer("verify_program", wish).await;
    assert_eq!(&again["verification"], handle, "the same key is the same verification");
    let other = json!({"task": "gaussian", "source": "int x;", "idempotency_key": "a", "wait_s": 0});
    assert!(agent.refusal("verify_program", other).await.contains("request.key_reused"));

    let ended = judged(&agent, handle).await;
    let result = &ended["result"];
    assert!(result["outcome"].as_str().unwrap().starts_with("correct_"), "{ended}");
    assert_eq!(result["verdict"]["numerically_correct"], "yes", "{ended}");
    assert!(result["evidence"]["complete"].is_boolean() && result["fault"].is_null(), "{ended}");
    assert_eq!((&result["policy"], &result["shapes"]), (&json!("reference"), &json!(["default"])), "{ended}");
    assert!(result["speedup"]["low"].as_f64().unwrap() <= result["speedup"]["high"].as_f64().unwrap(), "{ended}");
    assert!(ended.to_string().len() <= MAX_ANSWER_BYTES, "{ended}");

    for section in ended["sections"].as_array().unwrap() {
        let wish = json!({"verification": handle, "section": section});
        let part = agent.answer("get_verification", wish).await;
        assert!(!part["section"]["text"].as_str().unwrap().is_empty(), "{part}");
        assert!(part.to_string().len() <= MAX_ANSWER_BYTES, "{section}: {}", part.to_string().len());
        let uri = format!("nightshift://verifications/{}/{}", handle.as_str().unwrap(), section.as_str().unwrap());
        let read = agent.client.read_resource(ReadResourceRequestParams::new(uri)).await.unwrap();
        assert_eq!(read.contents.len(), 1);
    }
    agent.client.cancel().await.unwrap();
}

#[tokio::test]
async fn a_wrong_program_and_one_that_does_not_build_are_told_with_their_first_cause() {
    let folder = folder();
    let agent = Agent::spawn(mcp(folder.path(), &[])).await;
    let verify = async |source: &str| {
        let wish = json!({"task": "gaussian", "source": source, "wait_s": 45});
        let begun = agent.answer("verify_program", wish).await;
        judged(&agent, &begun["verification"]).await
    };
    let wrong = verify(&program("", "2", "i == 7 ? value + 1 : value")).await;
    assert_eq!(wrong["result"]["outcome"], "incorrect", "{wrong}");
    assert_eq!(wrong["result"]["verdict"]["numerically_correct"], "no", "{wrong}");
    assert!(wrong["result"]["reason"].as_str().unwrap().contains("1 of 2048 elements are wrong"), "{wrong}");
    assert!(wrong["result"]["speedup"].is_null(), "times of a wrong program mean nothing: {wrong}");
    assert!(wrong["next"].as_str().unwrap().contains("check"), "{wrong}");

    let broken = verify(&program("int f() { return nothing; }", "2", "value")).await;
    assert_eq!(broken["result"]["outcome"], "compile_failed", "{broken}");
    assert!(broken["result"]["reason"].as_str().unwrap().contains("nothing"), "{broken}");
    assert_eq!(broken["result"]["verdict"]["compiled"], "no", "{broken}");
    agent.client.cancel().await.unwrap();
}

#[tokio::test]
async fn all_tools_fit_on_one_page_with_schemas_that_every_client_reads() {
    let folder = folder();
    let agent = Agent::spawn(mcp(folder.path(), &[])).await;
    let instructions = agent.client.peer_info().unwrap().instructions.clone().unwrap();
    assert!(instructions.len() <= MAX_DESCRIPTION_BYTES, "{} bytes", instructions.len());
    let tools = agent.tools().await;
    for tool in &tools {
        let name = &tool.name;
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') && name.len() <= 64, "{name}");
        let description = tool.description.as_deref().unwrap();
        assert!((50..=MAX_DESCRIPTION_BYTES).contains(&description.len()), "{name}: {} bytes", description.len());
        assert!(tool.title.is_some() && tool.annotations.is_some(), "{name}");
        for schema in [&tool.input_schema, tool.output_schema.as_ref().unwrap()] {
            assert_eq!(schema["type"], "object", "{name}");
            assert!(schema.contains_key("properties"), "{name}");
            let text = Value::Object((**schema).clone()).to_string();
            assert!(!text.contains("\"$ref\""), "{name} refers to a schema elsewhere");
            assert!(!text.contains("\"format\""), "{name} names a format that validators do not know");
        }
        assert_eq!(tool.input_schema["additionalProperties"], false, "{name} refuses what it does not know");
        for (argument, schema) in tool.input_schema["properties"].as_object().unwrap() {
            assert!(schema["description"].is_string(), "{name}: {argument} is described");
        }
    }
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_ref()).collect();
    for expected in ["list_tasks", "describe_task", "verify_program", "get_verification", "describe_run", "get_attempt"]
    {
        assert!(names.contains(&expected), "{names:?}");
    }
    assert_eq!(agent.tools().await, tools, "the order is stable");
    agent.client.cancel().await.unwrap();

    // Without a server, the tools of this machine are all that writes.
    let reading = Agent::spawn(mcp(folder.path(), &["--read-only"])).await;
    for tool in reading.tools().await {
        let is_local = ["verify_program", "cancel_verification"].contains(&tool.name.as_ref());
        let reads = tool.annotations.as_ref().unwrap().read_only_hint == Some(true);
        assert!(reads || is_local, "{} is offered to who only reads", tool.name);
    }
    assert!(reading.refusal("control_run", json!({"run": "run_1", "action": "cancel"})).await.contains("read_only"));
    reading.client.cancel().await.unwrap();
}

#[tokio::test]
async fn every_task_is_described_in_bounded_parts() {
    let folder = folder();
    let agent = Agent::spawn(mcp(folder.path(), &[])).await;
    let (mut tasks, mut offset) = (Vec::new(), json!(0));
    while !offset.is_null() {
        let page = agent.answer("list_tasks", json!({"folder": ".", "offset": offset})).await;
        assert!(page.to_string().len() <= MAX_ANSWER_BYTES, "{page}");
        tasks.extend(page["tasks"].as_array().unwrap().clone());
        offset = page["next_offset"].clone();
        assert!(!offset.is_null() || tasks.len() as u64 == page["total"].as_u64().unwrap(), "{page}");
    }
    assert!(tasks.iter().any(|task| task["task"] == "row_softmax"));
    assert!(tasks.iter().any(|task| task["task"] == "./gaussian"), "{tasks:?}");
    for task in &tasks {
        let summary = agent.answer("describe_task", json!({"task": task["task"]})).await;
        assert!(summary.to_string().len() <= MAX_ANSWER_BYTES, "{summary}");
        for section in summary["sections"].as_array().unwrap() {
            let (mut text, mut offset) = (String::new(), json!(0));
            while !offset.is_null() {
                let wish = json!({"task": task["task"], "section": section, "offset": offset});
                let part = agent.answer("describe_task", wish).await;
                assert!(part.to_string().len() <= MAX_ANSWER_BYTES, "{}", part.to_string().len());
                text.push_str(part["section"]["text"].as_str().unwrap());
                offset = part["section"]["next_offset"].clone();
            }
            let is_contract = section == "contract";
            assert!(!is_contract || (text.contains("ns_run") && text.contains("Print nothing")), "{text}");
        }
    }
    agent.client.cancel().await.unwrap();
}

#[tokio::test]
async fn bad_input_is_answered_with_an_error_that_the_model_reads() {
    let folder = folder();
    let agent = Agent::spawn(mcp(folder.path(), &[])).await;
    let ten_megabytes = "x".repeat(10 << 20);
    for (tool, arguments, code) in [
        ("describe_task", json!({"task": "row_sofmax"}), "task.not_found"),
        ("describe_task", json!({}), "request.invalid_arguments"),
        ("describe_task", json!({"task": "row_softmax", "more": 1}), "request.invalid_arguments"),
        (
            "describe_task",
            json!({"task": "row_softmax", "section": "reference", "offset": 99_999_999}),
            "request.invalid_offset",
        ),
        ("verify_program", json!({"task": "gaussian", "source": ten_megabytes}), "request.program_too_large"),
        ("verify_program", json!({"task": "gaussian", "source": " "}), "request.invalid_arguments"),
        ("verify_program", json!({"task": "gaussian", "source": "x", "policy": "loose"}), "request.invalid_arguments"),
        ("verify_program", json!({"task": "nowhere", "source": "x", "wait_s": 45}), "task.not_found"),
        (
            "verify_program",
            json!({"task": "gaussian", "source": "x", "shape": "huge", "wait_s": 45}),
            "request.no_such_shape",
        ),
        (
            "verify_program",
            json!({"task": "gaussian", "source": "class ModelNew:", "wait_s": 45}),
            "request.program_form",
        ),
        ("get_verification", json!({"verification": "ver_1"}), "verification.not_found"),
        ("describe_run", json!({"run": "../../etc"}), "run.not_found"),
        ("get_attempt", json!({"run": "run_00000000000000000000000000000000", "number": 1}), "run.not_found"),
        ("no_such_tool", json!({}), "request.no_such_tool"),
    ] {
        let said = agent.refusal(tool, arguments).await;
        assert!(said.contains(&format!("Code: {code}")), "{tool}: {said}");
        assert!(said.len() <= 2_048, "{tool}: {} bytes", said.len());
    }
    assert!(
        agent.refusal("describe_task", json!({"task": "row_sofmax"})).await.contains("did you mean `row_softmax`?")
    );
    agent.client.cancel().await.unwrap();
}

#[tokio::test]
async fn a_flood_of_verifications_is_bounded_and_cancelled_ones_make_room() {
    let folder = folder();
    let agent = Agent::spawn(mcp(folder.path(), &[])).await;
    let (mut handles, mut refused) = (Vec::new(), 0);
    for number in 0..100 {
        let source = program(&format!("// {number}"), "2", "value");
        let result = agent.call("verify_program", json!({"task": "gaussian", "source": source, "wait_s": 0})).await;
        match result.structured_content {
            Some(answer) if result.is_error != Some(true) => handles.push(answer["verification"].clone()),
            _ => refused += 1,
        }
    }
    assert!(refused >= 50 && handles.len() >= 16, "{refused} were refused, {} taken", handles.len());
    for handle in &handles {
        agent.answer("cancel_verification", json!({"verification": handle})).await;
    }
    let last = handles.last().unwrap();
    let said = agent.refusal("get_verification", json!({"verification": last, "wait_s": 45})).await;
    assert!(said.contains("verification.cancelled"), "{said}");
    agent.client.cancel().await.unwrap();
}

#[tokio::test]
async fn clients_of_every_revision_are_served() {
    let folder = folder();
    let modern = ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
    let auto = ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        legacy_version: Some(ProtocolVersion::V_2025_06_18),
    };
    for mode in [modern, auto, ClientLifecycleMode::Initialize] {
        let agent = Agent::spawn_with(mcp(folder.path(), &[]), mode.clone()).await;
        assert!(agent.tools().await.len() > 10, "{mode:?}");
        assert!(agent.answer("list_tasks", json!({})).await["total"].as_u64().unwrap() > 5, "{mode:?}");
        agent.client.cancel().await.unwrap();
    }
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let begin = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}});
        let answers = exchange(folder.path(), &[begin]);
        assert_eq!(answers[0]["result"]["protocolVersion"], version, "{answers:?}");
    }
    let meta = json!({"_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }});
    let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": meta});
    let answers = exchange(folder.path(), &[list]);
    let result = &answers[0]["result"];
    // A client drops a list without these.
    assert!(result["ttlMs"].is_number() && result["cacheScope"].is_string(), "{answers:?}");
    assert_eq!(result["resultType"], "complete", "{answers:?}");
}

/// Sends these messages, ends the input, and returns everything that came on standard output.
fn exchange(folder: &Path, messages: &[Value]) -> Vec<Value> {
    let mut child =
        mcp(folder, &["-vv"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the binary starts");
    let mut input = child.stdin.take().unwrap();
    let mut output = child.stdout.take().unwrap();
    let reading = std::thread::spawn(move || {
        let mut text = String::new();
        output.read_to_string(&mut text).map(|_| text)
    });
    for message in messages {
        writeln!(input, "{message}").unwrap();
    }
    drop(input);
    let until = Instant::now() + MAX_END;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < until || child.kill().is_err(), "it ends with its input");
        std::thread::sleep(Duration::from_millis(20));
    };
    let text = reading.join().unwrap().unwrap();
    assert!(status.success(), "{status}: {text}");
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

#[test]
fn nothing_but_messages_is_on_standard_output_and_the_end_of_the_input_ends_it() {
    let folder = folder();
    let begin = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}});
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let verify = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
        "name": "verify_program",
        "arguments": {"task": "gaussian", "source": program("", "2", "value"), "wait_s": 0}}});
    let unknown = json!({"jsonrpc": "2.0", "id": 3, "method": "no/such", "params": {}});
    let answers = exchange(folder.path(), &[begin, ready, verify, unknown]);
    let refused = answers.iter().find(|answer| answer["id"] == 3).unwrap();
    assert_eq!(refused["error"], json!({"code": -32601, "message": "this server has no method `no/such`"}));
    assert!(answers.iter().all(|answer| answer["jsonrpc"] == "2.0"), "{answers:?}");
    assert_eq!(answers[0]["result"]["serverInfo"]["name"], "nightshift", "{answers:?}");
    // A client that says nothing is no error either.
    assert!(exchange(folder.path(), &[]).is_empty());
}
