#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use nightshift_engine::retry::RetryPolicy;
use nightshift_protocol::id::{RunId, StepId, WorkerId};
use nightshift_protocol::machine::{DeviceOffer, MachineFacts, SandboxReport};
use nightshift_protocol::task::Target;
use uuid::Uuid;

use super::*;

/// 09:00 UTC.
const NOW: TimestampMs = TimestampMs(1_700_038_800_000);

fn step(route: &str) -> StepRecord {
    StepRecord {
        id: StepId::from_uuid(Uuid::from_u128(1)),
        run: RunId::from_uuid(Uuid::from_u128(2)),
        key: "k".to_owned(),
        kind: "measure".to_owned(),
        route: route.to_owned(),
        status: StepStatus::Scheduled,
        epoch: 0,
        tries: 0,
        retry: RetryPolicy::default(),
        timeout_ms: 1_000,
        worker: None,
        input: serde_json::Value::Null,
        output: None,
        failure: None,
        scheduled_at: NOW,
        started_at: None,
        finished_at: None,
        not_before: None,
        blocked_on: None,
        device: None,
        reserve: Vec::new(),
    }
}

fn worker(target: Target, leases: u64, last_seen_at: TimestampMs) -> WorkerRecord {
    let offers = Offers {
        targets: vec![target],
        cpu_slots: 2,
        devices: vec![DeviceOffer {
            index: 0,
            target,
            name: "device".to_owned(),
            uuid: None,
            compute_capability: (target == Target::Cuda).then(|| "8.0".parse().unwrap()),
            memory_bytes: 1,
            shared_slots: 2,
            quarantine: None,
        }],
        tools: BTreeSet::new(),
        labels: BTreeSet::new(),
        machine: MachineFacts {
            host: "host".to_owned(),
            os: "os".to_owned(),
            processor: "cpu".to_owned(),
            cores: 2,
            features: Vec::new(),
            memory_bytes: 1,
            last_level_cache_bytes: None,
            core: None,
            cpp_toolchain: None,
            cuda_toolchain: None,
            gpus: Vec::new(),
            sandbox: SandboxReport::default(),
        },
    };
    WorkerRecord {
        id: WorkerId::from_uuid(Uuid::from_u128(3)),
        name: "w".to_owned(),
        embedded: false,
        offers: serde_json::to_value(offers).unwrap(),
        version: "0".to_owned(),
        last_seen_at,
        leases,
        server: None,
        draining: false,
    }
}

fn waits(run: RunStatus, reasons: &Reasons, step: &StepRecord) -> Option<String> {
    carried_by(Carrier::Alive, run, reasons, step)
}

fn around(carrier: Carrier, run: RunStatus, reasons: &Reasons) -> Surroundings<'_> {
    Surroundings { run, carrier, agent_slots: 2, lease_ms: 15_000, own_worker_starts: false, reasons, now: NOW }
}

fn carried_by(carrier: Carrier, run: RunStatus, reasons: &Reasons, step: &StepRecord) -> Option<String> {
    around(carrier, run, reasons).waiting_for(step)
}

const START_ONE: &str = "`nightshift work` on a machine that has it starts one";

fn among(workers: Vec<WorkerRecord>, route: &str) -> String {
    waits(RunStatus::Running, &Reasons { workers, ..Reasons::default() }, &step(route)).unwrap()
}

#[test]
fn a_step_without_a_matching_worker_names_the_missing_capabilities() {
    let route = "worker/cuda/exclusive?cc=9.0&tools=ncu";
    assert_eq!(among(Vec::new(), route), format!("no worker offers {route}: no worker is alive; {START_ONE}"));
    let cuda = || worker(Target::Cuda, 0, NOW);
    assert_eq!(
        among(vec![cuda(), cuda()], route),
        format!(
            "no worker offers {route}: 2 workers are alive, they lack a device of compute capability 9.0, ncu; {START_ONE}"
        )
    );
    assert_eq!(
        among(vec![worker(Target::Cpu, 0, NOW)], "worker/cuda/none"),
        format!("no worker offers worker/cuda/none: 1 worker is alive, it lacks target cuda; {START_ONE}")
    );
}

#[test]
fn the_worker_of_the_server_is_waited_for_while_it_starts() {
    let starting = |workers: Vec<WorkerRecord>| {
        let reasons = Reasons { workers, ..Reasons::default() };
        let around = around(Carrier::Alive, RunStatus::Running, &reasons);
        Surroundings { own_worker_starts: true, ..around }.waiting_for(&step("worker/cpu/none")).unwrap()
    };
    assert_eq!(starting(Vec::new()), "the worker of this server is starting");
    assert_eq!(starting(vec![worker(Target::Cuda, 0, NOW)]), "the worker of this server is starting");
    let there = starting(vec![worker(Target::Cpu, 0, NOW)]);
    assert_eq!(there, "a worker that offers worker/cpu/none is about to take it");
}

#[test]
fn a_worker_without_recent_contact_offers_nothing() {
    let gone = worker(Target::Cpu, 0, TimestampMs(NOW.0 - 60_000));
    assert_eq!(
        among(vec![gone], "worker/cpu/none"),
        format!("no worker offers worker/cpu/none: no worker is alive; {START_ONE}")
    );
}

#[test]
fn busy_free_and_draining_workers_are_distinguished() {
    let busy = worker(Target::Cpu, 1, NOW);
    assert_eq!(
        among(vec![busy.clone()], "worker/cpu/exclusive"),
        "the only worker that offers worker/cpu/exclusive is busy"
    );
    assert_eq!(
        among(vec![busy.clone()], "worker/cpu/none"),
        "a worker that offers worker/cpu/none is about to take it"
    );
    let ending = WorkerRecord { draining: true, ..worker(Target::Cpu, 0, NOW) };
    assert_eq!(
        among(vec![ending.clone()], "worker/cpu/none"),
        "the only worker that offers worker/cpu/none is asked to end"
    );
    assert_eq!(
        among(vec![ending, busy], "worker/cpu/exclusive"),
        "the only worker that offers worker/cpu/exclusive is busy"
    );
}

#[test]
fn a_pause_and_a_retry_are_named_before_anything_else() {
    let mut waiting = step("worker/cpu/none");
    let none = Reasons::default();
    waiting.not_before = Some(NOW.plus_ms(3_500));
    assert_eq!(waits(RunStatus::Running, &none, &waiting).unwrap(), "retry in 4 s");
    waiting.failure = Some(StepFailure::retriable("model.timeout", "no answer\ncame"));
    let text = waits(RunStatus::Running, &none, &waiting).unwrap();
    assert_eq!(text, "retry in 4 s after model.timeout: no answer came");
    waiting.failure = Some(StepFailure::retriable("model.timeout", "é".repeat(5_000)));
    let text = waits(RunStatus::Running, &none, &waiting).unwrap();
    assert!(text.ends_with("é…") && text.chars().count() < 250, "{text}");
    assert_eq!(waits(RunStatus::Paused, &none, &waiting).unwrap(), "the run is paused");
}

#[test]
fn an_open_request_is_no_retry() {
    let mut waiting = step("worker/cpu/none");
    waiting.failure = Some(StepFailure::retriable("request.open", "waits for the agent `external/agent`"));
    waiting.not_before = Some(NOW.plus_ms(23 * 3_600_000));
    let text = waits(RunStatus::Running, &Reasons::default(), &waiting).unwrap();
    assert_eq!(text, "waits for the agent `external/agent`; its time ends in 23 h 0 min");
}

#[test]
fn a_closed_window_is_distinguished_from_a_retry() {
    let schedule = Schedule { window: "20:00-23:00".parse().unwrap(), time_zone: "UTC".to_owned() };
    let reasons = Reasons { schedule: Some(schedule), ..Reasons::default() };
    let mut waiting = step("worker/cpu/none");
    waiting.failure = Some(StepFailure::retriable("model.timeout", "no answer"));
    waiting.not_before = Some(NOW.plus_ms(11 * 3_600_000));
    let text = waits(RunStatus::Running, &reasons, &waiting).unwrap();
    assert_eq!(text, "the campaign's window 20:00-23:00 UTC, in 11 h 0 min");
    waiting.not_before = Some(NOW.plus_ms(1_000));
    let text = waits(RunStatus::Running, &reasons, &waiting).unwrap();
    assert_eq!(text, "retry in 1 s after model.timeout: no answer");
}

#[test]
fn a_budget_says_how_much_of_it_is_left() {
    let line = BudgetLine { resource: Resource::Tokens, cap: Some(100), used: 60, reserved: 30 };
    let reasons = Reasons { budget: vec![line], ..Reasons::default() };
    let mut waiting = step("agent/-/none");
    waiting.blocked_on = Some(Resource::Tokens);
    let text = waits(RunStatus::Running, &reasons, &waiting).unwrap();
    assert_eq!(text, "the campaign's budget of tokens: 60 used and 30 reserved of 100");
}

#[test]
fn a_gate_says_how_it_is_opened() {
    let run = RunId::from_uuid(Uuid::from_u128(0xdead_beef));
    assert_eq!(waits_at("plan", &run), "waits for approval of the plan: nightshift approve deadbeef");
    assert_eq!(waits_at("new_best", &run), "waits for approval of the new best: nightshift approve deadbeef");
}

#[test]
fn a_leased_step_has_no_reason_for_waiting() {
    let mut leased = step("worker/cpu/none");
    leased.status = StepStatus::Leased;
    assert_eq!(waits(RunStatus::Running, &Reasons::default(), &leased), None);
}

#[test]
fn a_run_whose_server_is_gone_says_who_takes_it_over() {
    let carried =
        |carrier| carried_by(carrier, RunStatus::Running, &Reasons::default(), &step("agent/-/none")).unwrap();
    assert_eq!(carried(Carrier::Alive), "one of the 2 slots of the agents");
    assert_eq!(carried(Carrier::None), "this server only reads: no server carries the run on");
    let gone = |another| Carrier::Gone { server: "alpha".to_owned(), another };
    assert_eq!(
        carried(gone(true)),
        "one of the 2 slots of the agents; its server alpha is gone, another one takes the run over within seconds"
    );
    assert!(carried(gone(false)).contains("no other is alive"));
}
