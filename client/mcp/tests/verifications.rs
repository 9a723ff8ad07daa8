//! Tests of verifications with a fake judge: their order, their limits, and the size of answers with hostile programs.
#![expect(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use nightshift_mcp::ports::{Caller, Connection, Judge, Judged, ListedTask, Servers, Tasks, VerifyRequest};
use nightshift_mcp::{MAX_ANSWER_BYTES, MAX_WINDOW_BYTES, Offer, Service, ToolError};
use nightshift_protocol::attempt::AttemptOutcome;
use nightshift_protocol::judgement::Judgement;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::task::{PrecisionPolicy, Target, TaskBundle};
use nightshift_protocol::verdict::{Finding, Severity};
use rmcp::model::{CallToolRequestParams, CallToolResult, ClientRequest, Request};
use rmcp::service::{PeerRequestOptions, RunningService};
use rmcp::{RoleClient, ServiceExt as _};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Timeout of each wait.
const LIMIT: Duration = Duration::from_mins(1);
/// Capacity of the pipes between client and server, in bytes.
const PIPE_BYTES: usize = 1 << 20;

/// A port without a server.
struct NoServers;

#[async_trait]
impl Servers for NoServers {
    async fn connect(&self, _caller: &Caller) -> Result<Connection, ToolError> {
        Err(ToolError::new("server.unreachable", "there is none"))
    }
}

/// A port without tasks, which the judge does not need.
struct NoTasks;

impl Tasks for NoTasks {
    fn list(&self, _folder: Option<&str>) -> Result<Vec<ListedTask>, ToolError> {
        Ok(Vec::new())
    }

    fn load(&self, _task: &str) -> Result<TaskBundle, ToolError> {
        Err(ToolError::new("task.not_found", "there is none"))
    }

    fn create(&self, _files: &BTreeMap<String, String>, _target: Option<Target>) -> Result<TaskBundle, ToolError> {
        Err(ToolError::new("task.not_found", "there is none"))
    }

    fn contract(&self, _bundle: &TaskBundle) -> Result<String, ToolError> {
        Ok(String::new())
    }
}

/// A judge that handles as many programs as it has permits, and returns results of maximum size.
struct PlayedJudge {
    permits: Semaphore,
    running: AtomicUsize,
    judged: AtomicUsize,
}

#[async_trait]
impl Judge for PlayedJudge {
    async fn judge(&self, request: VerifyRequest, cancel: CancellationToken) -> Result<Judged, ToolError> {
        assert_eq!(self.running.fetch_add(1, Ordering::SeqCst), 0, "one program is judged at a time");
        let permit = tokio::select! {
            permit = self.permits.acquire() => Some(permit.unwrap()),
            () = cancel.cancelled() => None,
        };
        self.running.fetch_sub(1, Ordering::SeqCst);
        let Some(permit) = permit else { return Err(ToolError::new("verification.cancelled", "cancelled")) };
        permit.forget();
        self.judged.fetch_add(1, Ordering::SeqCst);
        let much = "\u{1b}\"\\\n漢".repeat(20_000);
        let finding = |severity| Finding { code: "x".repeat(5_000), severity, message: much.clone(), line: Some(1) };
        let build = json!({
            "library": null, "end": {"kind": "exited", "status": 1}, "log": "0".repeat(64), "build_key": "", "cached": false,
            "toolchain": {"program": "c++", "path": "", "version": much, "flags": [much], "fingerprint": ""}, "duration_ms": 1,
            "messages": [{"severity": "error", "file": much, "line": 1, "column": 1, "message": much}],
            "report": {"vectorized_loops": [], "missed_loops": [], "instructions": 1, "wide_vector_instructions": 0,
                "fma_instructions": 0, "scalar_math_calls": [], "library_bytes": 8},
            "sandbox": {"means": [], "isolates_files": true, "isolates_network": true},
        });
        Ok(Judged {
            task: much.clone(),
            against: much.clone(),
            precision: PrecisionPolicy::default(),
            machine: serde_json::from_value(json!({
                "host": "h", "os": "o", "processor": much, "cores": 1, "features": [], "memory_bytes": 1,
                "cpp_toolchain": null, "last_level_cache_bytes": null, "cuda_toolchain": null, "gpus": [],
                "sandbox": {"means": [], "isolates_files": true, "isolates_network": true},
            }))
            .unwrap(),
            baselines: None,
            fastest: None,
            unexamined: vec!["only one shape was checked".to_owned()],
            result: Ok(Box::new(Judgement {
                outcome: match request.source.as_str() {
                    "broken" => AttemptOutcome::CompileFailed,
                    "right" => AttemptOutcome::CorrectFaster,
                    _ => AttemptOutcome::NotCompliant,
                },
                findings: vec![
                    finding(match request.source.as_str() {
                        "broken" | "right" => Severity::Note,
                        _ => Severity::Violation,
                    });
                    50
                ],
                build: Some(serde_json::from_value(build).unwrap()),
                check: None,
                measurement: None,
                measurement_end: None,
                profile: None,
                profile_failure: request.profile.then(|| StepFailure::fatal("profile.no_counters", much)),
            })),
        })
    }
}

/// Returns a client of a service whose judge has this many permits.
async fn client(permits: usize) -> (RunningService<RoleClient, ()>, Arc<PlayedJudge>) {
    let judge = Arc::new(PlayedJudge {
        permits: Semaphore::new(permits),
        running: AtomicUsize::new(0),
        judged: AtomicUsize::new(0),
    });
    let service = Service::new(Offer {
        servers: Box::new(NoServers),
        tasks: Arc::new(NoTasks),
        judge: Some(judge.clone()),
        read_only: false,
        run: None,
        version: "0".to_owned(),
    });
    let (one, other) = tokio::io::duplex(PIPE_BYTES);
    tokio::spawn(async move { service.serve(one).await.unwrap().waiting().await });
    (().serve(other).await.unwrap(), judge)
}

fn call(name: &str, arguments: &Value) -> CallToolRequestParams {
    CallToolRequestParams::new(name.to_owned()).with_arguments(arguments.as_object().unwrap().clone())
}

async fn answer(client: &RunningService<RoleClient, ()>, name: &str, arguments: Value) -> CallToolResult {
    tokio::time::timeout(LIMIT, client.call_tool(call(name, &arguments))).await.unwrap().unwrap()
}

fn value(result: &CallToolResult) -> Value {
    assert_ne!(result.is_error, Some(true), "{result:?}");
    result.structured_content.clone().unwrap()
}

async fn begin(client: &RunningService<RoleClient, ()>, source: &str) -> String {
    let begun = value(&answer(client, "verify_program", json!({"task": "t", "source": source, "wait_s": 0})).await);
    begun["verification"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn judging_goes_on_when_its_call_is_cancelled() {
    let (client, judge) = client(0).await;
    let wish = json!({"task": "t", "source": "a", "wait_s": 45, "idempotency_key": "k"});
    let request = ClientRequest::CallToolRequest(Request::new(call("verify_program", &wish)));
    let asked = client.send_cancellable_request(request, PeerRequestOptions::no_options()).await.unwrap();
    // It is running before the client loses interest.
    let handle = {
        let begun = json!({"task": "t", "source": "a", "wait_s": 0, "idempotency_key": "k"});
        value(&answer(&client, "verify_program", begun).await)["verification"].as_str().unwrap().to_owned()
    };
    asked.cancel(Some("the user pressed a key".to_owned())).await.unwrap();
    judge.permits.add_permits(1);
    let ended = answer(&client, "get_verification", json!({"verification": handle, "wait_s": 45})).await;
    assert_eq!(value(&ended)["state"], "ended");
    assert_eq!(judge.judged.load(Ordering::SeqCst), 1, "it was judged once");
}

#[tokio::test]
async fn programs_wait_for_each_other_and_the_same_open_program_is_judged_once() {
    let (client, judge) = client(0).await;
    let first = begin(&client, "a").await;
    let second = begin(&client, "b").await;
    assert_eq!(begin(&client, "a").await, first, "an open one is found again");
    let state = value(&answer(&client, "get_verification", json!({"verification": second, "wait_s": 0})).await);
    assert_eq!(state["state"], "queued", "{state}");
    judge.permits.add_permits(2);
    for handle in [&second, &first] {
        let ended = value(&answer(&client, "get_verification", json!({"verification": handle, "wait_s": 45})).await);
        assert_eq!(ended["state"], "ended", "{ended}");
    }
    assert_ne!(begin(&client, "a").await, first, "one that ended is judged again");
}

#[tokio::test]
async fn the_oldest_ended_verifications_are_forgotten() {
    let (client, _) = client(1_000).await;
    let mut handles = Vec::new();
    for number in 0..80 {
        handles.push(begin(&client, &number.to_string()).await);
        let last = handles.last().unwrap();
        let ended = value(&answer(&client, "get_verification", json!({"verification": last, "wait_s": 45})).await);
        assert_eq!(ended["state"], "ended", "{number}");
    }
    let first = answer(&client, "get_verification", json!({"verification": handles[0]})).await;
    assert_eq!(first.is_error, Some(true), "{first:?}");
    value(&answer(&client, "get_verification", json!({"verification": handles[79]})).await);
}

#[tokio::test]
async fn answers_stay_small_whatever_programs_say() {
    let (client, _) = client(1_000).await;
    for source in ["broken", "refused"] {
        let handle = begin(&client, source).await;
        let ended = answer(&client, "get_verification", json!({"verification": handle, "wait_s": 45})).await;
        let bytes = value(&ended).to_string().len();
        assert!(bytes <= MAX_ANSWER_BYTES, "{source}: {bytes} bytes");
        assert!(value(&ended)["result"]["reason"].is_string(), "{source}");
        for (limit, most) in [(None, MAX_ANSWER_BYTES), (Some(u32::MAX), MAX_WINDOW_BYTES + 2_048)] {
            let wish = json!({"verification": handle, "section": "compiler", "limit": limit});
            let part = value(&answer(&client, "get_verification", wish).await);
            assert!(part.to_string().len() <= most, "{source}: {} bytes", part.to_string().len());
            assert!(part["section"]["next_offset"].is_number(), "there is more");
        }
    }
    let refused = answer(&client, "get_verification", json!({"verification": "x".repeat(100_000)})).await;
    assert!(serde_json::to_string(&refused).unwrap().len() <= MAX_ANSWER_BYTES);
    let unknown = answer(&client, &"y".repeat(100_000), json!({})).await;
    assert!(serde_json::to_string(&unknown).unwrap().len() <= MAX_ANSWER_BYTES);
    let wrong = answer(&client, "get_verification", json!({"verification": {"z".repeat(50_000): 1}})).await;
    assert!(serde_json::to_string(&wrong).unwrap().len() <= MAX_ANSWER_BYTES);
}

#[tokio::test]
async fn what_was_not_examined_and_why_there_is_no_profile_is_said() {
    let (client, _) = client(1_000).await;
    let verified = async |wish: Value| {
        let begun = value(&answer(&client, "verify_program", wish).await);
        let wish = json!({"verification": begun["verification"], "wait_s": 45});
        value(&answer(&client, "get_verification", wish).await)
    };
    let plain = verified(json!({"task": "t", "source": "right"})).await;
    assert_eq!(plain["result"]["evidence"]["complete"], false, "{plain}");
    assert_eq!(plain["result"]["evidence"]["missing"][0], "only one shape was checked", "{plain}");
    assert!(plain["next"].as_str().unwrap().contains("profile=true"), "{plain}");

    let profiled = verified(json!({"task": "t", "source": "right", "profile": true})).await;
    assert_eq!(profiled["result"]["profile_failure"]["code"], "profile.no_counters", "{profiled}");
    assert!(profiled["next"].as_str().unwrap().contains("profile_failure"), "{profiled}");
    assert!(profiled.to_string().len() <= MAX_ANSWER_BYTES, "{profiled}");
}

#[tokio::test]
async fn a_tool_that_changes_something_says_that_no_server_answers_and_stays_in_the_list() {
    let (client, _judge) = client(0).await;
    let tools = client.list_all_tools().await.unwrap();
    assert!(tools.iter().any(|tool| tool.name == "next_request"), "the role is unknown, and the server decides");
    let answer = client.call_tool(call("next_request", &json!({}))).await.unwrap();
    let said = serde_json::to_string(&answer.content).unwrap();
    assert!(said.contains("server.unreachable"), "{said}");
}
