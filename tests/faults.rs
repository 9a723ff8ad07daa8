//! A whole campaign over a store that fails: every single write fails once, before it was done or after, and the
//! campaign ends as if nothing had happened. Server, strategy, agents and the worker's life are the real ones; only
//! the machine is played, because the numbers must not depend on it.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test stops at the first thing that is not as it should be, and says what it covered"
)]

#[path = "support/tiny_task.rs"]
mod tiny_task;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use nightshift_client::Client;
use nightshift_engine::store::{PageRequest, RunStore};
use nightshift_optimizer::agent::{Agents, AgentsConfig};
use nightshift_optimizer::model::Catalog;
use nightshift_optimizer::task_file::load_folder;
use nightshift_protocol::api::{CreateCampaign, LeasedStep, RegisterWorker};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::budget::BudgetCaps;
use nightshift_protocol::campaign::{CAMPAIGN_SCHEMA, CampaignSpec, CampaignTask, ModelChoice};
use nightshift_protocol::run::RunStatus;
use nightshift_protocol::step::{StepFailure, StepInput, StepOutput};
use nightshift_protocol::task::TaskGoal;
use nightshift_sandbox::process::CancelFlag;
use nightshift_server::{Parts, Server, ServerConfig};
use nightshift_store::fault::{Fault, FaultyStore};
use nightshift_store::{OpenOptions, SqlStore};
use nightshift_worker::lease::{self, Work};
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Campaigns at once.
const AT_ONCE: usize = 16;
/// Maximum time of one campaign: far more than it takes, far less than for ever.
const LIMIT: Duration = Duration::from_secs(90);
/// Speedups of the three attempts.
const SPEEDUPS: [f64; 3] = [2.0, 16.0, 4.0];
/// Writes that a campaign has at the very least: fewer would mean that the faults miss it.
const FEWEST_WRITES: u64 = 40;
/// Methods of which each campaign calls at least one: their first calls fail for certain.
const METHODS: [&str; 6] =
    ["create_campaign", "commit", "record_model_call", "put_artifact", "register_worker", "register_server"];

/// A machine that answers by table.
struct Table;

impl Work for Table {
    fn carry_out(&self, step: &LeasedStep, _cancel: &CancelFlag) -> Result<StepOutput, StepFailure> {
        let attempt =
            step.key.split('/').find_map(|part| part.strip_prefix("attempt")?.parse::<usize>().ok()).unwrap_or(1);
        let output = match &step.input {
            StepInput::PrepareTask { .. } => json!({"step": "task_prepared", "prepared": {
                "reference": build(), "reference_library": library(), "truth_library": library(),
                "baseline_median_ns": 1e6, "reference_normalized_error": 0.01, "warnings": [], "machine": machine(),
            }}),
            StepInput::Build { .. } => json!({"step": "built", "report": build()}),
            StepInput::Check { .. } => json!({"step": "checked", "report": {
                "end": {"kind": "finished"}, "error_histogram": [0, 0, 0, 4096, 0, 0, 0, 0, 0], "deterministic": true,
                "findings": [], "printed": "", "cases": [{"shape": "default", "inputs": "declared", "passed": true,
                "wrong_elements": 0, "elements": 4096, "worst": null, "reference_normalized_error": 0.01}],
            }}),
            StepInput::Measure { .. } => {
                json!({"step": "measured", "measurement": measurement(SPEEDUPS[attempt - 1]), "findings": []})
            }
            StepInput::Profile { .. } => json!({"step": "profiled", "profile": {
                "tier": "played", "missing": [], "arithmetic_intensity": null, "peak_flops_per_s": 1e9,
                "peak_bytes_per_s": 1e9, "roofline_share": null, "roofline_bound": "unknown", "compiler": report(),
            }}),
            other => return Err(StepFailure::fatal("test.unexpected_step", format!("{:?}", other.kind()))),
        };
        Ok(serde_json::from_value(output).expect("the table holds outputs"))
    }
}

fn library() -> ArtifactHash {
    ArtifactHash::of(b"library")
}

fn report() -> Value {
    json!({"vectorized_loops": [], "missed_loops": [], "instructions": 10, "wide_vector_instructions": 0,
        "fma_instructions": 0, "scalar_math_calls": [], "library_bytes": 100})
}

fn isolation() -> Value {
    json!({"means": [], "isolates_files": true, "isolates_network": true})
}

fn machine() -> Value {
    json!({"host": "played", "os": "Linux", "processor": "played", "cores": 2, "features": [], "memory_bytes": 1,
        "last_level_cache_bytes": null, "cpp_toolchain": null, "sandbox": isolation()})
}

fn build() -> Value {
    json!({"library": library(), "end": {"kind": "finished"}, "messages": [], "log": library(), "build_key": "k",
        "toolchain": {"program": "c++", "path": "/c++", "version": "1", "flags": [], "fingerprint": "f"},
        "cached": false, "duration_ms": 1, "report": report(), "sandbox": isolation()})
}

fn measurement(speedup: f64) -> Value {
    json!({"speedup": {"estimate": speedup, "low": speedup * 0.99, "high": speedup * 1.01}, "confidence": 0.95,
        "baseline_median_ns": 1e6, "candidate_median_ns": 1e6 / speedup, "baseline_cv": 0.01, "candidate_cv": 0.01,
        "baseline_samples_ns": [1_000_000], "candidate_samples_ns": [1], "outside_to_inside_time": 1.0,
        "achieved_flops_per_s": null, "achieved_bytes_per_s": null, "precise": true, "baseline": "reference",
        "sandbox": isolation(), "machine": machine()})
}

/// Passes of the three attempts: the second is the best by a factor of four.
const ATTEMPT_PASSES: [u32; 3] = [16, 2, 8];

/// What has to be equal in the end: committed steps in order, number and source of the best attempt, model calls.
#[derive(Debug, Clone, PartialEq, Eq)]
struct History {
    committed: Vec<String>,
    best_attempt: Option<u32>,
    best_source: Option<ArtifactHash>,
    calls: Vec<String>,
}

/// Repeats what a store error made fail, as every client of ours does.
async fn repeat<T, E: std::fmt::Display, F: Future<Output = Result<T, E>>>(
    what: &str,
    mut call: impl FnMut() -> F,
) -> T {
    let begin = Instant::now();
    loop {
        match call().await {
            Ok(value) => return value,
            Err(error) => assert!(begin.elapsed() < LIMIT, "{what}: {error}"),
        }
        tokio::task::yield_now().await;
    }
}

/// A server that is quick to notice.
fn settings(token: &SecretString, worker_token: &SecretString) -> ServerConfig {
    ServerConfig {
        bind: SocketAddr::from(([127, 0, 0, 1], 0)),
        token: token.clone(),
        worker_token: worker_token.clone(),
        reads_need_token: false,
        rates: nightshift_server::Rates::default(),
        drives: true,
        own_workers: 0,
        agent_slots: 4,
        lease_ms: 1_000,
        heartbeat_ms: 200,
        // Sixteen servers share this machine: a life must outlast the pauses that they cause each other.
        pulse_ms: 1_000,
        sole: true,
        retention: None,
        request_deadline: nightshift_server::DEFAULT_REQUEST_DEADLINE,
        otlp_endpoint: None,
        name: "test".to_owned(),
        version: "test".to_owned(),
    }
}

/// A campaign of one task, without limits.
fn unlimited(task: CampaignTask) -> CampaignSpec {
    CampaignSpec {
        schema: CAMPAIGN_SCHEMA,
        name: "faults".to_owned(),
        model: ModelChoice::Scripted,
        models: nightshift_protocol::models::ModelPlan::default(),
        knowledge: nightshift_protocol::campaign::KnowledgeUse::default(),
        untrusted_replies: false,
        strategy: "stitch".to_owned(),
        goal: TaskGoal::default(),
        allow_unsandboxed: false,
        budget: BudgetCaps::default(),
        schedule: None,
        priority: 0,
        weight: 1,
        gates: BTreeSet::new(),
        labels: BTreeSet::new(),
        tasks: vec![task],
    }
}

/// What came of a campaign.
struct Outcome {
    writes: BTreeMap<&'static str, u64>,
    fired: bool,
    history: History,
}

async fn campaign(task: &Path, fault: Option<Fault>) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    let inner = Arc::new(SqlStore::open_sqlite(folder.path(), OpenOptions::default()).await.unwrap());
    let store = Arc::new(FaultyStore::with(inner.ports(), fault));
    let (token, worker_token) = (SecretString::from("the-operator"), SecretString::from("worker-token"));
    let config = settings(&token, &worker_token);
    let agents = Arc::new(Agents::new(AgentsConfig::new(Catalog::default(), Arc::new(|_| None)).unwrap()));
    // The caller repeats a start that fails.
    let server =
        repeat("the start", || Server::start(config.clone(), Parts::new(store.ports(), agents.clone()), Router::new()))
            .await;
    let address = format!("http://{}", server.addr());

    let stop = CancellationToken::new();
    let port = Arc::new(Client::new(&address, Some(worker_token)).unwrap());
    let introduction = RegisterWorker {
        name: "played".to_owned(),
        embedded: false,
        offers: serde_json::from_value(json!({
            "targets": ["cpu"],
            "cpu_slots": 1,
            "devices": [{"index": 0, "target": "cpu", "name": "cpu", "memory_bytes": 1, "shared_slots": 1}],
            "machine": machine(),
        }))
        .unwrap(),
        version: "test".to_owned(),
    };
    let worker = tokio::spawn(lease::serve(port, Arc::new(Table), introduction, stop.clone()));

    let client = Client::new(&address, Some(token)).unwrap();
    let loaded = load_folder(task).unwrap();
    let bundle = serde_json::to_vec(&loaded.bundle).unwrap();
    let replies = serde_json::to_vec(&loaded.replies.unwrap()).unwrap();
    let task = CampaignTask {
        name: loaded.bundle.spec.name.clone(),
        bundle: repeat("the task", || client.put_artifact(&bundle)).await,
        scripted_replies: Some(repeat("the replies", || client.put_artifact(&replies)).await),
    };
    let request = CreateCampaign { spec: unlimited(task) };
    let created = repeat("the campaign", || client.create_campaign(&request, "once")).await;
    let run = created.runs[0].clone();

    let begin = Instant::now();
    let mut seen = 0;
    loop {
        let page = repeat("the events", || client.run_events(&run, seen, 5_000)).await;
        seen = page.events.last().map_or(seen, |event| event.seq);
        if page.status.is_final() {
            assert_eq!(page.status, RunStatus::Completed, "{fault:?}");
            break;
        }
        assert!(begin.elapsed() < LIMIT, "stuck after {fault:?}");
    }
    stop.cancel();
    worker.await.unwrap().unwrap();

    let mut committed = Vec::new();
    let events = inner.events_after(&run, 0, 1_000).await.unwrap();
    for (index, record) in events.iter().enumerate() {
        assert_eq!(record.seq, u64::try_from(index + 1).unwrap(), "the log has no gaps");
        if record.event.kind() == "step_completed" {
            committed.push(record.event.step_key().unwrap().to_owned());
        }
    }
    let distinct: BTreeSet<&String> = committed.iter().collect();
    assert_eq!(distinct.len(), committed.len(), "every step is committed exactly once: {committed:?}");
    let detail = repeat("the run", || client.run(&run)).await;
    let view = detail.view;
    let best = view.best_attempt.and_then(|best| view.attempts.iter().find(|attempt| attempt.number == best));
    let history = History {
        committed,
        best_attempt: view.best_attempt,
        best_source: best.and_then(|attempt| attempt.source.clone()),
        calls: view
            .attempts
            .iter()
            .flat_map(|attempt| {
                attempt.calls.iter().map(move |call| format!("{} {} {}", attempt.number, call.reply, call.turn))
            })
            .collect(),
    };
    let everything = inner.list_runs(None, None, PageRequest { limit: 10, before: None }).await.unwrap();
    assert_eq!(everything.len(), 1, "a repeated request created no second campaign");
    let outcome = Outcome { writes: store.writes_by_method(), fired: store.fired(), history };
    server.stop().await.unwrap();
    inner.close().await.unwrap();
    outcome
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_single_write_may_fail_once_and_the_campaign_ends_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let task = tiny_task::write(folder.path(), "gaussian", &ATTEMPT_PASSES);
    let Outcome { writes, history: expected, .. } = campaign(&task, None).await;
    assert!(writes.values().sum::<u64>() >= FEWEST_WRITES, "{writes:?}");
    assert_eq!(expected.best_attempt, Some(2));
    assert!(expected.committed.contains(&"subtask1/attempt3/judge".to_owned()), "{:?}", expected.committed);

    let mut fired = BTreeSet::new();
    let mut running: JoinSet<(Fault, Outcome)> = JoinSet::new();
    let faults = Fault::at_each(&writes);
    let mut open = faults.iter().copied();
    loop {
        while running.len() < AT_ONCE
            && let Some(fault) = open.next()
        {
            let task = task.clone();
            running.spawn(async move { (fault, campaign(&task, Some(fault)).await) });
        }
        let Some(done) = running.join_next().await else { break };
        let (fault, outcome) = done.unwrap();
        if outcome.fired {
            fired.insert(fault);
        }
        assert_eq!(outcome.history, expected, "after {fault:?}");
    }
    println!("{} of {} writes failed, before or after: {writes:?}", fired.len(), faults.len());
    // Heartbeats come with time, so the last of them may be missing; what happens once in any case is not.
    for fault in faults.iter().filter(|fault| fault.nth == 1 && METHODS.contains(&fault.method)) {
        assert!(fired.contains(fault), "{fault:?} never happened");
    }
    assert!(METHODS.iter().all(|method| writes.contains_key(method)), "not each of {METHODS:?}: {writes:?}");
}
