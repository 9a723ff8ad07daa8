//! The lease loop against a server in memory.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use nightshift_protocol::api::{
    Claim, Claimed, Heartbeat, HeartbeatReply, LeasedStep, RegisterWorker, Report, ReportReply, TryOutcome,
    WorkerRegistered,
};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::id::{RunId, StepId, WorkerId};
use nightshift_protocol::machine::{MachineFacts, Offers, SandboxReport};
use nightshift_protocol::step::{FailureClass, StepFailure, StepInput, StepOutput};
use nightshift_protocol::task::Target;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Work, WorkerError, serve};
use crate::port::{Port, PortError, UNKNOWN_WORKER};
use crate::process::CancelFlag;

/// Longest time that a test waits for what has to happen.
const PATIENCE: Duration = Duration::from_secs(20);
const LEASE_MS: u64 = 600;
const HEARTBEAT_MS: u64 = 60;

const CPU: &str = "worker/cpu/none";
const SHARED: &str = "worker/cpu/shared";
const EXCLUSIVE: &str = "worker/cpu/exclusive";

/// A server with as much memory as the tests ask about.
#[derive(Default)]
struct FakeServer {
    state: Mutex<ServerState>,
    changed: tokio::sync::Notify,
}

#[derive(Default)]
struct ServerState {
    registrations: u128,
    known: Option<WorkerId>,
    ready: BTreeMap<String, VecDeque<LeasedStep>>,
    asked: Vec<Vec<(String, u32)>>,
    leased: HashMap<StepId, u64>,
    cancelled: HashSet<StepId>,
    committed: Vec<(StepId, TryOutcome)>,
    reports_seen: u32,
    heartbeats_fail: bool,
    /// Reports are taken, but their answers do not arrive.
    report_answers_lost: u32,
    refuse_reports_of_completion: bool,
    refuse_registration: bool,
}

fn failure(code: &str, transient: bool) -> PortError {
    PortError { code: code.to_owned(), message: format!("{code} happened"), transient }
}

impl FakeServer {
    fn state(&self) -> MutexGuard<'_, ServerState> {
        match self.state.lock() {
            Ok(state) => state,
            Err(_) => panic!("a test panicked with the server's state in hand"),
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut ServerState) -> T) -> T {
        let result = change(&mut self.state());
        self.changed.notify_waiters();
        result
    }

    fn offer(&self, n: u128, route: &str, timeout_ms: u64) -> StepId {
        let step = StepId::from_uuid(Uuid::from_u128(n));
        let leased = LeasedStep {
            step: step.clone(),
            epoch: 1,
            run: RunId::from_uuid(Uuid::from_u128(1)),
            key: format!("step{n}"),
            route: route.to_owned(),
            input: StepInput::PrepareTask { task: ArtifactHash::of(&n.to_le_bytes()) },
            timeout_ms,
        };
        self.change(|state| state.ready.entry(route.to_owned()).or_default().push_back(leased));
        step
    }

    /// Waits until something is true of the server.
    async fn until(&self, what: &str, mut is_true: impl FnMut(&ServerState) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let changed = self.changed.notified();
            if is_true(&self.state()) {
                return;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(tokio::time::timeout(left, changed).await.is_ok(), "waited in vain: {what}");
        }
    }

    fn check_known(state: &ServerState, worker: &WorkerId) -> Result<(), PortError> {
        if state.known.as_ref() == Some(worker) { Ok(()) } else { Err(failure(UNKNOWN_WORKER, false)) }
    }

    fn take(state: &mut ServerState, claim: &Claim) -> Vec<LeasedStep> {
        let mut steps = Vec::new();
        for (route, count) in &claim.free {
            for _ in 0..*count {
                let Some(step) = state.ready.get_mut(route).and_then(VecDeque::pop_front) else { break };
                state.leased.insert(step.step.clone(), step.epoch);
                steps.push(step);
            }
        }
        steps
    }
}

impl Port for FakeServer {
    async fn register(&self, _: &RegisterWorker) -> Result<WorkerRegistered, PortError> {
        self.change(|state| {
            if state.refuse_registration {
                return Err(failure("auth.invalid_token", false));
            }
            state.registrations += 1;
            let worker = WorkerId::from_uuid(Uuid::from_u128(state.registrations));
            state.known = Some(worker.clone());
            Ok(WorkerRegistered { worker, lease_ms: LEASE_MS, heartbeat_ms: HEARTBEAT_MS })
        })
    }

    async fn claim(&self, worker: &WorkerId, claim: &Claim) -> Result<Claimed, PortError> {
        self.state().asked.push(claim.free.clone());
        let deadline = tokio::time::Instant::now() + Duration::from_millis(claim.wait_ms.min(300));
        loop {
            let changed = self.changed.notified();
            let steps = {
                let mut state = self.state();
                Self::check_known(&state, worker)?;
                Self::take(&mut state, claim)
            };
            if !steps.is_empty() {
                self.changed.notify_waiters();
                return Ok(Claimed { steps });
            }
            if tokio::time::timeout_at(deadline, changed).await.is_err() {
                return Ok(Claimed { steps: Vec::new() });
            }
        }
    }

    async fn heartbeat(&self, worker: &WorkerId, heartbeat: &Heartbeat) -> Result<HeartbeatReply, PortError> {
        let state = self.state();
        if state.heartbeats_fail {
            return Err(failure("server.unreachable", true));
        }
        Self::check_known(&state, worker)?;
        // A committed step is told by the answer to its report: the tests of lost answers wait for exactly that.
        let is_committed = |step: &StepId| state.committed.iter().any(|(committed, _)| committed == step);
        let lost = heartbeat
            .leases
            .iter()
            .filter(|(step, epoch)| state.leased.get(step) != Some(epoch) && !is_committed(step));
        let cancelled = heartbeat.leases.iter().filter(|(step, _)| state.cancelled.contains(step));
        Ok(HeartbeatReply {
            lost: lost.map(|(step, _)| step.clone()).collect(),
            cancelled: cancelled.map(|(step, _)| step.clone()).collect(),
        })
    }

    async fn report(&self, step: &StepId, report: &Report) -> Result<ReportReply, PortError> {
        self.change(|state| {
            state.reports_seen += 1;
            Self::check_known(state, &report.worker)?;
            if state.refuse_reports_of_completion && matches!(report.result, TryOutcome::Completed { .. }) {
                return Err(failure("request.too_large", false));
            }
            let already = state.committed.iter().any(|(committed, _)| committed == step);
            let reply = if already {
                ReportReply::Committed
            } else if state.leased.get(step) == Some(&report.epoch) {
                state.leased.remove(step);
                state.committed.push((step.clone(), report.result.clone()));
                ReportReply::Committed
            } else {
                ReportReply::LeaseLost
            };
            if state.report_answers_lost > 0 {
                state.report_answers_lost -= 1;
                return Err(failure("server.timed_out", true));
            }
            Ok(reply)
        })
    }
}

/// Steps that go on until they are let go or killed.
#[derive(Default)]
struct FakeWork {
    state: Mutex<WorkState>,
    changed: Condvar,
}

#[derive(Default)]
struct WorkState {
    let_go: bool,
    panic: bool,
    running: HashSet<StepId>,
    most_running: usize,
    killed: HashSet<StepId>,
    /// Steps that ran at the same time as an exclusive one.
    disturbed: usize,
    exclusive: usize,
}

impl FakeWork {
    fn free_running() -> Self {
        let work = Self::default();
        work.change(|state| state.let_go = true);
        work
    }

    fn state(&self) -> MutexGuard<'_, WorkState> {
        match self.state.lock() {
            Ok(state) => state,
            Err(poisoned) => poisoned.into_inner(),
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut WorkState) -> T) -> T {
        let result = change(&mut self.state());
        self.changed.notify_all();
        result
    }

    /// Waits until something is true of the work.
    async fn until(self: &Arc<Self>, what: &str, is_true: impl Fn(&WorkState) -> bool + Send + 'static) {
        let work = Arc::clone(self);
        let waited = tokio::task::spawn_blocking(move || {
            let state = work.state();
            match work.changed.wait_timeout_while(state, PATIENCE, |state| !is_true(state)) {
                Ok((_state, waited)) => !waited.timed_out(),
                Err(_) => false,
            }
        });
        assert!(waited.await.is_ok_and(|came| came), "waited in vain: {what}");
    }
}

impl Work for FakeWork {
    fn carry_out(&self, step: &LeasedStep, cancel: &CancelFlag) -> Result<StepOutput, StepFailure> {
        let is_exclusive = step.route == EXCLUSIVE;
        self.change(|state| {
            state.running.insert(step.step.clone());
            state.most_running = state.most_running.max(state.running.len());
            state.exclusive += usize::from(is_exclusive);
            state.disturbed += usize::from(state.exclusive > 0 && state.running.len() > 1);
        });
        let mut state = self.state();
        while !state.let_go && !cancel.is_cancelled() && !state.panic {
            // The flag is polled, as the watcher of a process does.
            let Ok((next, _)) = self.changed.wait_timeout(state, Duration::from_millis(5)) else {
                panic!("a test panicked with the work's state in hand")
            };
            state = next;
        }
        state.running.remove(&step.step);
        state.exclusive -= usize::from(is_exclusive);
        let killed = cancel.is_cancelled();
        if killed {
            state.killed.insert(step.step.clone());
        }
        let panics = state.panic;
        drop(state);
        self.changed.notify_all();
        assert!(!panics, "the step was told to panic");
        if killed {
            return Err(StepFailure::retriable("step.cancelled", "the work was cancelled"));
        }
        let (code, message) = ("task.rejected".to_owned(), step.key.clone());
        Ok(StepOutput::TaskRejected { code, message, log: None })
    }
}

fn introduction(embedded: bool, cpu_slots: u32) -> RegisterWorker {
    let machine = MachineFacts {
        host: "night".to_owned(),
        os: String::new(),
        processor: String::new(),
        cores: 2,
        features: Vec::new(),
        memory_bytes: 0,
        last_level_cache_bytes: None,
        cpp_toolchain: None,
        sandbox: SandboxReport::default(),
    };
    let offers = Offers { targets: vec![Target::Cpu], cpu_slots, device_slots: 1, machine };
    RegisterWorker { name: "night".to_owned(), embedded, offers, version: "0".to_owned() }
}

/// A worker at work.
struct Running {
    server: Arc<FakeServer>,
    work: Arc<FakeWork>,
    shutdown: CancellationToken,
    worker: tokio::task::JoinHandle<Result<(), WorkerError>>,
}

fn start(work: FakeWork) -> Running {
    start_with(FakeServer::default(), work, introduction(false, 2))
}

fn start_with(server: FakeServer, work: FakeWork, introduction: RegisterWorker) -> Running {
    let (server, work, shutdown) = (Arc::new(server), Arc::new(work), CancellationToken::new());
    let worker = tokio::spawn(serve(Arc::clone(&server), Arc::clone(&work), introduction, shutdown.clone()));
    Running { server, work, shutdown, worker }
}

impl Running {
    async fn end(self) -> Result<(), WorkerError> {
        self.shutdown.cancel();
        match tokio::time::timeout(PATIENCE, self.worker).await {
            Ok(Ok(result)) => result,
            other => panic!("the worker did not end well: {other:?}"),
        }
    }

    async fn until_running(&self, step: &StepId) {
        let step = step.clone();
        self.work.until("the step runs", move |state| state.running.contains(&step)).await;
    }

    async fn until_killed(&self, step: &StepId) {
        let step = step.clone();
        self.work.until("the step is killed", move |state| state.killed.contains(&step)).await;
    }

    async fn until_committed(&self, count: usize) {
        self.server.until("steps are committed", move |state| state.committed.len() >= count).await;
    }
}

fn failure_of(outcome: &TryOutcome) -> &StepFailure {
    match outcome {
        TryOutcome::Failed { failure } => failure,
        other => panic!("expected a failure, found {other:?}"),
    }
}

type Outcome = Result<(), WorkerError>;

#[tokio::test]
async fn a_claimed_step_is_carried_out_and_reported() -> Outcome {
    let running = start(FakeWork::free_running());
    let step = running.server.offer(7, CPU, 60_000);
    running.until_committed(1).await;
    {
        let state = running.server.state();
        let Some((committed, TryOutcome::Completed { output })) = state.committed.first() else { panic!("no result") };
        assert_eq!(*committed, step);
        let StepOutput::TaskRejected { message, .. } = output.as_ref() else { panic!("another result") };
        assert_eq!(message, "step7");
    }
    running.end().await
}

#[tokio::test]
async fn without_heartbeats_the_worker_kills_its_work_before_anyone_else_may_have_it() -> Outcome {
    let running = start(FakeWork::default());
    let step = running.server.offer(1, CPU, 60_000);
    running.until_running(&step).await;
    let begin = Instant::now();
    running.server.change(|state| state.heartbeats_fail = true);
    running.until_killed(&step).await;
    assert!(begin.elapsed() < Duration::from_millis(LEASE_MS) + Duration::from_secs(2), "{:?}", begin.elapsed());
    assert!(running.server.state().committed.is_empty(), "what a lost lease gave is never reported");

    // The server is back: it has given the step to a new epoch, and the worker goes on.
    running.server.change(|state| {
        state.leased.clear();
        state.heartbeats_fail = false;
    });
    running.work.change(|state| state.let_go = true);
    let next = running.server.offer(2, CPU, 60_000);
    running.until_committed(1).await;
    assert_eq!(running.server.state().committed.first().map(|(step, _)| step.clone()), Some(next));
    running.end().await
}

#[tokio::test]
async fn a_lease_that_the_server_gave_away_ends_the_work_without_a_report() -> Outcome {
    let running = start(FakeWork::default());
    let step = running.server.offer(1, CPU, 60_000);
    running.until_running(&step).await;
    running.server.change(|state| state.leased.clear());
    running.until_killed(&step).await;
    assert_eq!(running.server.state().reports_seen, 0);
    running.end().await
}

#[tokio::test]
async fn a_cancelled_step_is_killed_and_reported_as_cancelled() -> Outcome {
    let running = start(FakeWork::default());
    let step = running.server.offer(1, EXCLUSIVE, 60_000);
    running.until_running(&step).await;
    running.server.change(|state| state.cancelled.insert(step.clone()));
    running.until_committed(1).await;
    assert!(running.work.state().killed.contains(&step));
    assert_eq!(running.server.state().committed, [(step, TryOutcome::Cancelled)]);
    running.end().await
}

#[tokio::test]
async fn a_report_whose_answer_was_lost_is_repeated_and_committed_once() -> Outcome {
    let running = start(FakeWork::free_running());
    running.server.change(|state| state.report_answers_lost = 2);
    running.server.offer(1, CPU, 60_000);
    running.server.until("the report is repeated", |state| state.reports_seen >= 3).await;
    assert_eq!(running.server.state().committed.len(), 1);
    running.end().await
}

#[tokio::test]
async fn a_server_that_forgot_the_worker_gets_a_new_registration_and_old_work_is_killed() -> Outcome {
    let running = start(FakeWork::default());
    let step = running.server.offer(1, CPU, 60_000);
    running.until_running(&step).await;
    running.server.change(|state| {
        state.known = None;
        state.leased.clear();
    });
    running.until_killed(&step).await;
    running.server.until("the worker registers anew", |state| state.registrations == 2).await;
    assert!(running.server.state().committed.is_empty());
    running.work.change(|state| state.let_go = true);
    running.server.offer(2, CPU, 60_000);
    running.until_committed(1).await;
    running.end().await
}

#[tokio::test]
async fn a_step_that_takes_too_long_is_killed_and_fails() -> Outcome {
    let running = start(FakeWork::default());
    let step = running.server.offer(1, CPU, 50);
    running.until_committed(1).await;
    assert!(running.work.state().killed.contains(&step));
    {
        let state = running.server.state();
        let Some((_, outcome)) = state.committed.first() else { panic!("no report") };
        assert_eq!(failure_of(outcome).code, "worker.step_timed_out");
        assert_eq!(failure_of(outcome).class, FailureClass::Retriable);
    }
    running.end().await
}

#[tokio::test]
async fn a_panic_of_the_work_is_a_failure_of_the_step_and_not_of_the_worker() -> Outcome {
    let running = start(FakeWork::default());
    running.work.change(|state| state.panic = true);
    running.server.offer(1, CPU, 60_000);
    running.until_committed(1).await;
    assert_eq!(
        running.server.state().committed.first().map(|(_, outcome)| failure_of(outcome).code.clone()),
        Some("worker.internal".to_owned())
    );
    running.work.change(|state| {
        state.panic = false;
        state.let_go = true;
    });
    running.server.offer(2, CPU, 60_000);
    running.until_committed(2).await;
    running.end().await
}

#[tokio::test]
async fn a_result_that_the_server_refuses_becomes_a_failure_that_it_takes() -> Outcome {
    let running = start(FakeWork::free_running());
    running.server.change(|state| state.refuse_reports_of_completion = true);
    running.server.offer(1, CPU, 60_000);
    running.until_committed(1).await;
    {
        let state = running.server.state();
        let Some((_, outcome)) = state.committed.first() else { panic!("no report") };
        assert_eq!(failure_of(outcome).code, "worker.report_refused");
    }
    running.end().await
}

#[tokio::test]
async fn an_exclusive_step_has_the_device_alone_and_builds_go_on_beside_it() -> Outcome {
    let running = start(FakeWork::default());
    for n in 1..=3 {
        running.server.offer(n, SHARED, 60_000);
    }
    let exclusive = running.server.offer(4, EXCLUSIVE, 60_000);
    running.work.until("two shared steps run", |state| state.running.len() == 2).await;
    running.work.change(|state| state.let_go = true);
    running.until_committed(4).await;
    assert_eq!(running.work.state().disturbed, 0, "nothing ran beside the exclusive step");
    assert!(running.server.state().committed.iter().any(|(step, _)| *step == exclusive));

    running.work.change(|state| state.let_go = false);
    let alone = running.server.offer(5, EXCLUSIVE, 60_000);
    let build = running.server.offer(6, CPU, 60_000);
    running.until_running(&alone).await;
    running.until_running(&build).await;
    running.work.change(|state| state.let_go = true);
    running.until_committed(6).await;
    running.end().await
}

#[tokio::test]
async fn no_more_builds_run_at_once_than_there_are_slots() -> Outcome {
    let running = start(FakeWork::default());
    for n in 1..=5 {
        running.server.offer(n, CPU, 60_000);
    }
    running.work.until("two builds run", |state| state.running.len() == 2).await;
    running.work.change(|state| state.let_go = true);
    running.until_committed(5).await;
    assert_eq!(running.work.state().most_running, 2);
    assert!(running.server.state().asked.iter().flatten().all(|(route, count)| route != CPU || *count <= 2));
    running.end().await
}

#[tokio::test]
async fn a_worker_that_ends_kills_its_steps_and_gives_them_back() -> Outcome {
    let running = start(FakeWork::default());
    let step = running.server.offer(1, CPU, 60_000);
    running.until_running(&step).await;
    let (server, work) = (Arc::clone(&running.server), Arc::clone(&running.work));
    running.end().await?;
    assert!(work.state().killed.contains(&step) && work.state().running.is_empty());
    let state = server.state();
    let Some((_, outcome)) = state.committed.first() else { panic!("no report") };
    assert_eq!(failure_of(outcome).code, "worker.shutting_down");
    Ok(())
}

#[tokio::test]
async fn an_embedded_worker_that_ends_leaves_its_leases_to_the_next_start_of_the_server() -> Outcome {
    let running = start_with(FakeServer::default(), FakeWork::default(), introduction(true, 1));
    let step = running.server.offer(1, CPU, 60_000);
    running.until_running(&step).await;
    let (server, work) = (Arc::clone(&running.server), Arc::clone(&running.work));
    running.end().await?;
    assert!(work.state().killed.contains(&step));
    assert_eq!(server.state().reports_seen, 0);
    Ok(())
}

#[tokio::test]
async fn a_worker_that_the_server_refuses_ends_with_the_servers_reason() {
    let server = FakeServer::default();
    server.change(|state| state.refuse_registration = true);
    let running = start_with(server, FakeWork::default(), introduction(false, 1));
    let ended = tokio::time::timeout(PATIENCE, running.worker).await;
    let Ok(Ok(Err(error))) = ended else { panic!("the worker did not end: {ended:?}") };
    assert_eq!(error.code(), "auth.invalid_token");
}
