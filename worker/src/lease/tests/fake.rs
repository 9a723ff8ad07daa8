//! A server in memory, and work that goes on until it is let go or killed.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use nightshift_protocol::api::{
    Claim, Claimed, DeviceReading, FreeSlots, Heartbeat, HeartbeatReply, LeasedStep, QuarantinedDevice, RegisterWorker,
    Report, ReportReply, ReportResult, TryOutcome, WorkerRegistered,
};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::id::{RunId, StepId, WorkerId};
use nightshift_protocol::machine::{DeviceOffer, MachineFacts, Offers, SandboxReport};
use nightshift_protocol::step::{StepFailure, StepInput, StepOutput};
use nightshift_protocol::task::Target;
use uuid::Uuid;

use crate::gpu::DeviceHealthMonitor;
use crate::lease::{Stop, Work, WorkerError, work};
use crate::server_api::{ServerApi, ServerApiError, UNKNOWN_WORKER};
use nightshift_sandbox::process::CancelFlag;

/// Maximum time that a test waits for what has to happen.
pub(super) const PATIENCE: Duration = Duration::from_secs(40);
/// A worker on a busy machine sends a heartbeat in this time.
const LEASE_MS: u64 = 5_000;
pub(super) const HEARTBEAT_MS: u64 = 60;

pub(super) const CPU: &str = "worker/cpu/none";
pub(super) const SHARED: &str = "worker/cpu/shared";
pub(super) const EXCLUSIVE: &str = "worker/cpu/exclusive";

/// A server with as much memory as the tests ask about.
#[derive(Default)]
pub(super) struct FakeServer {
    pub(super) state: Mutex<ServerState>,
    pub(super) changed: tokio::sync::Notify,
}

#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fault of its own that a test switches on")]
pub(super) struct ServerState {
    pub(super) registrations: u128,
    pub(super) known: Option<WorkerId>,
    pub(super) ready: BTreeMap<String, VecDeque<LeasedStep>>,
    pub(super) asked: Vec<FreeSlots>,
    /// What the calls that are on their way say to be free.
    pub(super) on_their_way: Vec<FreeSlots>,
    /// Steps that came with the answer to a report.
    pub(super) given_with_reports: usize,
    pub(super) draining: bool,
    /// How many steps more than was said to be free the server gives.
    pub(super) generous_by: u32,
    pub(super) leased: HashMap<StepId, u64>,
    pub(super) cancelled: HashSet<StepId>,
    pub(super) committed: Vec<(StepId, TryOutcome)>,
    pub(super) reports_seen: u32,
    pub(super) heartbeats_fail: bool,
    /// Reports are taken, but their answers do not arrive.
    pub(super) report_answers_lost: u32,
    pub(super) refuse_reports_of_completion: bool,
    pub(super) refuse_registration: bool,
    /// How devices were offered last.
    pub(super) offered: Vec<DeviceOffer>,
    /// What heartbeats told of devices, when they told something.
    pub(super) told: Vec<Vec<QuarantinedDevice>>,
    /// What heartbeats told last of how devices are.
    pub(super) readings: Vec<DeviceReading>,
    /// Devices that an operator released.
    pub(super) released: Vec<u32>,
}

pub(super) fn failure(code: &str, transient: bool) -> ServerApiError {
    ServerApiError { code: code.to_owned(), message: format!("{code} happened"), transient }
}

impl FakeServer {
    pub(super) fn state(&self) -> MutexGuard<'_, ServerState> {
        let Ok(state) = self.state.lock() else { panic!("a test panicked with the server's state in hand") };
        state
    }

    pub(super) fn change<T>(&self, change: impl FnOnce(&mut ServerState) -> T) -> T {
        let result = change(&mut self.state());
        self.changed.notify_waiters();
        result
    }

    pub(super) fn offer(&self, n: u128, route: &str, timeout_ms: u64) -> StepId {
        let step = StepId::from_uuid(Uuid::from_u128(n));
        let leased = LeasedStep {
            step: step.clone(),
            epoch: 1,
            run: RunId::from_uuid(Uuid::from_u128(1)),
            key: format!("step{n}"),
            route: route.to_owned(),
            input: StepInput::PrepareTask { task: ArtifactHash::of(&n.to_le_bytes()) },
            timeout_ms,
            device: None,
            traceparent: None,
        };
        self.change(|state| state.ready.entry(route.to_owned()).or_default().push_back(leased));
        step
    }

    /// Waits until something is true of the server.
    pub(super) async fn until(&self, what: &str, mut is_true: impl FnMut(&ServerState) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let changed = self.changed.notified();
            if is_true(&self.state()) {
                return;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(tokio::time::timeout(left, changed).await.is_ok(), "timed out: {what}");
        }
    }

    pub(super) fn check_known(state: &ServerState, worker: &WorkerId) -> Result<(), ServerApiError> {
        if state.known.as_ref() == Some(worker) { Ok(()) } else { Err(failure(UNKNOWN_WORKER, false)) }
    }

    /// What is ready and fits, as the server decides it: on a device, an exclusive step goes before shared ones.
    pub(super) fn take(state: &mut ServerState, free: &FreeSlots) -> Vec<LeasedStep> {
        let mut steps = Vec::new();
        for _ in 0..free.cpu + if free.cpu > 0 { state.generous_by } else { 0 } {
            steps.extend(Self::pop(state, CPU, None));
        }
        for device in &free.devices {
            let exclusive = device.exclusive.then(|| Self::pop(state, EXCLUSIVE, Some(device.index))).flatten();
            let is_taken = exclusive.is_some();
            steps.extend(exclusive);
            let waits = state.ready.get(EXCLUSIVE).is_some_and(|queue| !queue.is_empty());
            for _ in 0..if is_taken || waits { 0 } else { device.shared } {
                steps.extend(Self::pop(state, SHARED, Some(device.index)));
            }
        }
        steps
    }

    fn pop(state: &mut ServerState, route: &str, device: Option<u32>) -> Option<LeasedStep> {
        let step = state.ready.get_mut(route)?.pop_front()?;
        state.leased.insert(step.step.clone(), step.epoch);
        Some(LeasedStep { device, ..step })
    }
}

impl FakeServer {
    async fn claim_held(&self, worker: &WorkerId, claim: &Claim) -> Result<Claimed, ServerApiError> {
        let deadline = tokio::time::Instant::now() + Duration::from_millis(claim.wait_ms);
        loop {
            let changed = self.changed.notified();
            let (steps, draining) = {
                let mut state = self.state();
                Self::check_known(&state, worker)?;
                let draining = state.draining;
                (if draining { Vec::new() } else { Self::take(&mut state, &claim.free) }, draining)
            };
            if !steps.is_empty() || draining {
                self.changed.notify_waiters();
                return Ok(Claimed { steps, draining, held_ms: 0 });
            }
            if tokio::time::timeout_at(deadline, changed).await.is_err() {
                return Ok(Claimed { steps: Vec::new(), draining: false, held_ms: 0 });
            }
        }
    }
}

impl ServerApi for FakeServer {
    async fn register(&self, request: &RegisterWorker) -> Result<WorkerRegistered, ServerApiError> {
        self.change(|state| {
            state.offered.clone_from(&request.offers.devices);
            if state.refuse_registration {
                return Err(failure("auth.invalid_token", false));
            }
            state.registrations += 1;
            let worker = WorkerId::from_uuid(Uuid::from_u128(state.registrations));
            state.known = Some(worker.clone());
            Ok(WorkerRegistered { worker, lease_ms: LEASE_MS, heartbeat_ms: HEARTBEAT_MS })
        })
    }

    async fn claim(&self, worker: &WorkerId, claim: &Claim) -> Result<Claimed, ServerApiError> {
        self.change(|state| {
            state.asked.push(claim.free.clone());
            state.on_their_way.push(claim.free.clone());
        });
        let answer = self.claim_held(worker, claim).await;
        self.change(|state| {
            if let Some(place) = state.on_their_way.iter().position(|free| *free == claim.free) {
                state.on_their_way.remove(place);
            }
        });
        answer
    }

    async fn heartbeat(
        &self,
        worker: &WorkerId,
        heartbeat: &Heartbeat,
        _within: Duration,
    ) -> Result<HeartbeatReply, ServerApiError> {
        if let Some(told) = &heartbeat.quarantined {
            self.change(|state| state.told.push(told.clone()));
        }
        if let Some(readings) = &heartbeat.readings {
            self.change(|state| state.readings.clone_from(readings));
        }
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
            released: state.released.clone(),
        })
    }

    async fn report(&self, leased: &LeasedStep, report: &Report) -> Result<ReportReply, ServerApiError> {
        let step = &leased.step;
        self.change(|state| {
            state.reports_seen += 1;
            Self::check_known(state, &report.worker)?;
            if state.refuse_reports_of_completion && matches!(report.result, TryOutcome::Completed { .. }) {
                return Err(failure("request.too_large", false));
            }
            let already = state.committed.iter().any(|(committed, _)| committed == step);
            let result = if already {
                ReportResult::Committed
            } else if state.leased.get(step) == Some(&report.epoch) {
                state.leased.remove(step);
                state.committed.push((step.clone(), report.result.clone()));
                ReportResult::Committed
            } else {
                ReportResult::LeaseLost
            };
            if state.report_answers_lost > 0 {
                state.report_answers_lost -= 1;
                return Err(failure("server.timed_out", true));
            }
            let steps = report.free.as_ref().map(|free| Self::take(state, free)).unwrap_or_default();
            state.given_with_reports += steps.len();
            Ok(ReportReply { result, steps })
        })
    }
}

/// Steps that go on until they are let go or killed.
#[derive(Default)]
pub(super) struct FakeWork {
    pub(super) state: Mutex<WorkState>,
    pub(super) changed: Condvar,
}

#[derive(Default)]
pub(super) struct WorkState {
    pub(super) let_go: bool,
    pub(super) panic: bool,
    /// It goes on although it is killed.
    pub(super) deaf: bool,
    pub(super) running: HashSet<StepId>,
    pub(super) most_running: usize,
    pub(super) killed: HashSet<StepId>,
    /// Steps that ran on the same device as an exclusive one, at the same time.
    pub(super) disturbed: usize,
    /// What runs on each device, and whether it has it alone.
    pub(super) on_devices: HashMap<u32, Vec<bool>>,
    pub(super) most_exclusive: usize,
}

impl FakeWork {
    pub(super) fn free_running() -> Self {
        let work = Self::default();
        work.change(|state| state.let_go = true);
        work
    }

    pub(super) fn state(&self) -> MutexGuard<'_, WorkState> {
        match self.state.lock() {
            Ok(state) => state,
            Err(poisoned) => poisoned.into_inner(),
        }
    }

    pub(super) fn change<T>(&self, change: impl FnOnce(&mut WorkState) -> T) -> T {
        let result = change(&mut self.state());
        self.changed.notify_all();
        result
    }

    /// Waits until something is true of the work.
    pub(super) async fn until(self: &Arc<Self>, what: &str, is_true: impl Fn(&WorkState) -> bool + Send + 'static) {
        let work = Arc::clone(self);
        let waited = tokio::task::spawn_blocking(move || {
            let state = work.state();
            match work.changed.wait_timeout_while(state, PATIENCE, |state| !is_true(state)) {
                Ok((_state, waited)) => !waited.timed_out(),
                Err(_) => false,
            }
        });
        assert!(waited.await.is_ok_and(|came| came), "timed out: {what}");
    }
}

impl Work for FakeWork {
    fn carry_out(&self, step: &LeasedStep, cancel: &CancelFlag) -> Result<StepOutput, StepFailure> {
        let is_exclusive = step.route == EXCLUSIVE;
        self.change(|state| {
            state.running.insert(step.step.clone());
            state.most_running = state.most_running.max(state.running.len());
            if let Some(device) = step.device {
                let there = state.on_devices.entry(device).or_default();
                there.push(is_exclusive);
                let disturbed = there.len() > 1 && there.contains(&true);
                state.disturbed += usize::from(disturbed);
                let exclusive = state.on_devices.values().filter(|there| there.contains(&true)).count();
                state.most_exclusive = state.most_exclusive.max(exclusive);
            }
        });
        let mut state = self.state();
        while !state.let_go && (state.deaf || !cancel.is_cancelled()) && !state.panic {
            // The flag is polled, as the watcher of a process does.
            let Ok((next, _)) = self.changed.wait_timeout(state, Duration::from_millis(5)) else {
                panic!("a test panicked with the work's state in hand")
            };
            state = next;
        }
        state.running.remove(&step.step);
        if let Some(there) = step.device.and_then(|device| state.on_devices.get_mut(&device))
            && let Some(place) = there.iter().position(|alone| *alone == is_exclusive)
        {
            there.remove(place);
        }
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

pub(super) fn introduction(embedded: bool, cpu_slots: u32) -> RegisterWorker {
    introduction_with_devices(embedded, cpu_slots, 1)
}

pub(super) fn introduction_with_devices(embedded: bool, cpu_slots: u32, devices: u32) -> RegisterWorker {
    let machine = MachineFacts {
        host: "night".to_owned(),
        os: String::new(),
        processor: String::new(),
        cores: 2,
        features: Vec::new(),
        memory_bytes: 0,
        last_level_cache_bytes: None,
        core: None,
        cpp_toolchain: None,
        cuda_toolchain: None,
        gpus: Vec::new(),
        sandbox: SandboxReport::default(),
    };
    let device = |index| DeviceOffer {
        index,
        target: Target::Cpu,
        name: String::new(),
        uuid: None,
        compute_capability: None,
        memory_bytes: 0,
        shared_slots: 2,
        quarantine: None,
    };
    let offers = Offers {
        targets: vec![Target::Cpu],
        cpu_slots,
        devices: (0..devices).map(device).collect(),
        tools: BTreeSet::new(),
        labels: BTreeSet::new(),
        machine,
    };
    RegisterWorker { name: "night".to_owned(), embedded, offers, version: "0".to_owned() }
}

/// A worker at work.
pub(super) struct Running {
    pub(super) server: Arc<FakeServer>,
    pub(super) work: Arc<FakeWork>,
    pub(super) stop: Stop,
    pub(super) worker: tokio::task::JoinHandle<Result<(), WorkerError>>,
}

pub(super) fn start(work: FakeWork) -> Running {
    start_with(FakeServer::default(), work, introduction(false, 2))
}

pub(super) fn start_with(server: FakeServer, work: FakeWork, introduction: RegisterWorker) -> Running {
    start_draining_within(server, work, introduction, PATIENCE)
}

pub(super) fn start_draining_within(
    server: FakeServer,
    played: FakeWork,
    introduction: RegisterWorker,
    drain_timeout: Duration,
) -> Running {
    start_in(server, played, introduction, None, drain_timeout)
}

pub(super) fn start_with_gpus(
    server: FakeServer,
    played: FakeWork,
    introduction: RegisterWorker,
    monitor: Arc<DeviceHealthMonitor>,
) -> Running {
    start_in(server, played, introduction, Some(monitor), PATIENCE)
}

fn start_in(
    server: FakeServer,
    played: FakeWork,
    introduction: RegisterWorker,
    monitor: Option<Arc<DeviceHealthMonitor>>,
    drain_timeout: Duration,
) -> Running {
    let (server, played, stop) = (Arc::new(server), Arc::new(played), Stop::default());
    let session = work(Arc::clone(&server), Arc::clone(&played), introduction, monitor, stop.clone(), drain_timeout);
    Running { server, work: played, stop, worker: tokio::spawn(session) }
}

impl Running {
    pub(super) async fn end(self) -> Result<(), WorkerError> {
        self.stop.shutdown.cancel();
        self.ended().await
    }

    /// Waits for the worker to end by itself.
    pub(super) async fn ended(self) -> Result<(), WorkerError> {
        match tokio::time::timeout(PATIENCE, self.worker).await {
            Ok(Ok(result)) => result,
            other => panic!("the worker did not end well: {other:?}"),
        }
    }

    pub(super) async fn until_running(&self, step: &StepId) {
        let step = step.clone();
        self.work.until("the step runs", move |state| state.running.contains(&step)).await;
    }

    pub(super) async fn until_killed(&self, step: &StepId) {
        let step = step.clone();
        self.work.until("the step is killed", move |state| state.killed.contains(&step)).await;
    }

    pub(super) async fn until_committed(&self, count: usize) {
        self.server.until("steps are committed", move |state| state.committed.len() >= count).await;
    }
}

pub(super) fn failure_of(outcome: &TryOutcome) -> &StepFailure {
    match outcome {
        TryOutcome::Failed { failure } => failure,
        other => panic!("expected a failure, found {other:?}"),
    }
}
