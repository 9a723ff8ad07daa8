//! A worker's life: register, claim steps, carry them out, report; heartbeats apart from the work.
//!
//! The worker fences itself: when heartbeats fail until a lease could have run out by its own monotonic clock, it kills
//! that work. A server that does not know the worker any more gets a new registration, and nothing of the old life
//! survives it. When it is asked to end, it kills what runs: killing is safe, since every step can be leased again.

mod carry;
mod held;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use nightshift_client::{Client, ClientError};
use nightshift_protocol::api::{Claim, Heartbeat, LeasedStep, RegisterWorker, WorkerRegistered};
use nightshift_protocol::id::WorkerId;
use nightshift_protocol::machine::{DeviceUse, Needs, Offers};
use nightshift_protocol::step::{StepFailure, StepOutput};
use nightshift_protocol::task::Target;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::artifacts::ServerArtifacts;
use crate::execute::{Workbench, WorkbenchError};
use crate::port::{Port, PortError};
use crate::process::CancelFlag;
use held::{Held, StopCause};

/// Devices of a worker on the `cpu` target.
pub const DEVICE_SLOTS: u32 = 1;
/// Steps that share the device when no step has it alone.
pub const SHARED_STEPS: u32 = 2;
/// How long the server may hold a claim.
pub const CLAIM_WAIT: Duration = Duration::from_secs(10);
/// Shortest time between two claims that gave nothing: a server that does not hold them is not flooded.
const MIN_CLAIM_INTERVAL: Duration = Duration::from_millis(100);
/// First and longest delay before a failed call is repeated.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// How long killed work may take to end.
pub const KILL_GRACE: Duration = Duration::from_secs(5);
/// Bounds on what a server may ask for.
const HEARTBEAT_BOUNDS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_mins(1));

/// What a worker is told at its start.
#[derive(Debug, Clone)]
pub struct WorkerConfig {
    /// The server's address.
    pub server_url: String,
    /// The worker's token; empty when the server asks for none.
    pub token: SecretString,
    /// Name for people.
    pub name: String,
    /// Whether it lives in the server's process.
    pub embedded: bool,
    /// Where steps work. Removed at the end; what a killed life left there is removed at the start.
    pub scratch_dir: PathBuf,
    /// Where builds and artifacts are kept between lives. Several workers may share it.
    pub cache_dir: PathBuf,
    /// Our own binary, of which children are made.
    pub executable: PathBuf,
    /// Name or path of the C++ compiler; the first that is found without it.
    pub cpp_compiler: Option<String>,
    /// Builds at once.
    pub cpu_slots: u32,
}

/// Why a worker ended.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The address or the token cannot be used.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The machine cannot do the work.
    #[error(transparent)]
    Workbench(#[from] WorkbenchError),
    /// The server refuses this worker.
    #[error("the server refuses this worker: {0}")]
    Refused(PortError),
    /// The examination of the machine broke down.
    #[error("the machine could not be examined")]
    Examination(#[source] tokio::task::JoinError),
}

impl WorkerError {
    /// Stable code, documented in `docs/errors.md`.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::Client(error) => error.code(),
            Self::Workbench(error) => error.code(),
            Self::Refused(error) => &error.code,
            Self::Examination(_) => "worker.internal",
        }
    }
}

/// Carries out a step. Blocks; runs on a thread of its own.
pub trait Work: Send + Sync + 'static {
    /// Carries it out until it is done or `cancel` is set.
    fn carry_out(&self, step: &LeasedStep, cancel: &CancelFlag) -> Result<StepOutput, StepFailure>;
}

/// Runs a worker until `shutdown`, or until it cannot go on.
pub async fn run(config: WorkerConfig, shutdown: CancellationToken) -> Result<(), WorkerError> {
    let token = (!config.token.expose_secret().is_empty()).then(|| config.token.clone());
    let client = Client::new(&config.server_url, token)?;
    let artifacts = ServerArtifacts::new(client.clone(), tokio::runtime::Handle::current());
    let opened = {
        let config = config.clone();
        // Children die with the thread that starts them: the examination stays on one thread until it is done.
        tokio::task::spawn_blocking(move || Workbench::open(&config, Box::new(artifacts))).await
    };
    let workbench = Arc::new(opened.map_err(WorkerError::Examination)??);
    let introduction = RegisterWorker {
        name: config.name.clone(),
        embedded: config.embedded,
        offers: Offers {
            targets: vec![Target::Cpu],
            cpu_slots: config.cpu_slots.max(1),
            device_slots: DEVICE_SLOTS,
            machine: workbench.machine().clone(),
        },
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    serve(Arc::new(client), workbench, introduction, shutdown).await
}

/// Registers and works, again and again while the server forgets, until `shutdown`.
pub async fn serve<P: Port, W: Work>(
    port: Arc<P>,
    work: Arc<W>,
    introduction: RegisterWorker,
    shutdown: CancellationToken,
) -> Result<(), WorkerError> {
    loop {
        let Some(registered) = register(port.as_ref(), &introduction, &shutdown).await? else { return Ok(()) };
        tracing::info!(worker.id = %registered.worker, worker.name = %introduction.name, "the worker is registered");
        let life = Arc::new(Life::new(Arc::clone(&port), Arc::clone(&work), &introduction, registered));
        match life.run(&shutdown).await {
            End::ShutDown => return Ok(()),
            End::Forgotten => tracing::warn!("the server does not know this worker any more: it registers anew"),
            End::Refused(error) => return Err(WorkerError::Refused(error)),
        }
    }
}

async fn register<P: Port>(
    port: &P,
    introduction: &RegisterWorker,
    shutdown: &CancellationToken,
) -> Result<Option<WorkerRegistered>, WorkerError> {
    let mut backoff = Backoff::new();
    loop {
        let answer = tokio::select! {
            answer = port.register(introduction) => answer,
            () = shutdown.cancelled() => return Ok(None),
        };
        match answer {
            Ok(registered) => {
                if !backoff.is_fresh() {
                    tracing::info!("the worker is registered at last");
                }
                return Ok(Some(registered));
            }
            Err(error) if error.transient => {
                if backoff.is_fresh() {
                    tracing::warn!(error = %error, "the worker cannot register and keeps trying");
                }
                if !backoff.wait(shutdown).await {
                    return Ok(None);
                }
            }
            Err(error) => return Err(WorkerError::Refused(error)),
        }
    }
}

/// Why a life ended.
#[derive(Debug, Clone)]
enum End {
    /// It was asked to.
    ShutDown,
    /// The server does not know the worker.
    Forgotten,
    /// The server refuses the worker.
    Refused(PortError),
}

/// One registration and all that is done under it.
struct Life<P, W> {
    port: Arc<P>,
    work: Arc<W>,
    worker: WorkerId,
    embedded: bool,
    lease: Duration,
    heartbeat: Duration,
    held: Held,
    cpu: Arc<Semaphore>,
    cpu_slots: u32,
    device: Arc<Semaphore>,
    steps: TaskTracker,
    over: CancellationToken,
    end: OnceLock<End>,
}

impl<P: Port, W: Work> Life<P, W> {
    fn new(port: Arc<P>, work: Arc<W>, introduction: &RegisterWorker, registered: WorkerRegistered) -> Self {
        let cpu_slots = introduction.offers.cpu_slots.max(1);
        let lease = Duration::from_millis(registered.lease_ms.max(1));
        let heartbeat = Duration::from_millis(registered.heartbeat_ms).clamp(HEARTBEAT_BOUNDS.0, HEARTBEAT_BOUNDS.1);
        Self {
            port,
            work,
            worker: registered.worker,
            embedded: introduction.embedded,
            lease,
            heartbeat: heartbeat.min(lease / 3),
            held: Held::new(lease),
            cpu: Arc::new(Semaphore::new(cpu_slots as usize)),
            cpu_slots,
            device: Arc::new(Semaphore::new(SHARED_STEPS as usize)),
            steps: TaskTracker::new(),
            over: CancellationToken::new(),
            end: OnceLock::new(),
        }
    }

    async fn run(self: Arc<Self>, shutdown: &CancellationToken) -> End {
        let loops = TaskTracker::new();
        loops.spawn(Arc::clone(&self).beat());
        loops.spawn(Arc::clone(&self).guard());
        loops.spawn(Arc::clone(&self).claim_for_cpu());
        loops.spawn(Arc::clone(&self).claim_for_device());
        loops.close();
        tokio::select! {
            () = shutdown.cancelled() => self.finish(End::ShutDown),
            () = self.over.cancelled() => {}
        }
        let end = self.end.get().cloned().unwrap_or(End::ShutDown);
        let cause = if matches!(end, End::ShutDown) { StopCause::ShuttingDown } else { StopCause::Lost };
        // A claim that is answered in this moment must not slip past the killing.
        if tokio::time::timeout(KILL_GRACE, loops.wait()).await.is_err() {
            tracing::error!("a loop of the worker does not end");
        }
        self.held.stop_all(cause);
        self.steps.close();
        if tokio::time::timeout(KILL_GRACE * 2, self.steps.wait()).await.is_err() {
            tracing::error!(steps = self.steps.len(), "steps did not end after they were killed");
        }
        end
    }

    /// Ends this life; the first reason counts.
    fn finish(&self, end: End) {
        let _ = self.end.set(end);
        self.over.cancel();
    }

    /// What follows a failed call that is not about one step: whether it may be repeated.
    fn may_repeat(&self, error: &PortError) -> bool {
        if error.is_unknown_worker() {
            self.finish(End::Forgotten);
        } else if !error.transient {
            self.finish(End::Refused(error.clone()));
        }
        error.transient && !error.is_unknown_worker()
    }

    /// Sends heartbeats: one for all leases. Goes on without leases, so that the server knows who is there.
    async fn beat(self: Arc<Self>) {
        let mut failing = false;
        loop {
            let named = self.held.to_renew();
            let sent_at = Instant::now();
            let heartbeat = Heartbeat { leases: named.clone() };
            let call = tokio::time::timeout(self.lease / 2, self.port.heartbeat(&self.worker, &heartbeat));
            let Some(answer) = self.unless_over(call).await else { return };
            match answer {
                Ok(Ok(reply)) => {
                    self.held.renewed(&named, sent_at, &reply);
                    if failing {
                        tracing::info!("heartbeats come through again");
                    }
                    failing = false;
                }
                Ok(Err(error)) => {
                    if !self.may_repeat(&error) {
                        return;
                    }
                    if !failing {
                        tracing::warn!(error = %error, "a heartbeat failed; it is sent again until one comes through");
                    }
                    failing = true;
                }
                Err(_) if failing => {}
                Err(_) => {
                    tracing::warn!("a heartbeat was not answered in time");
                    failing = true;
                }
            }
            // Soon after a failure: there is a lease to save.
            let pause = if failing { self.heartbeat / 4 } else { self.heartbeat };
            if self.unless_over(tokio::time::sleep(pause)).await.is_none() {
                return;
            }
        }
    }

    /// Watches the clock, apart from every call: kills the work of leases that are no longer surely valid.
    async fn guard(self: Arc<Self>) {
        let interval = (self.lease / 50).clamp(Duration::from_millis(2), Duration::from_millis(250));
        while self.unless_over(tokio::time::sleep(interval)).await.is_some() {
            for step in self.held.fence(Instant::now()) {
                tracing::warn!(step.id = %step, "no heartbeat came through: the step is given up and its work killed");
            }
        }
    }

    /// Claims steps that need no device, as many as there are free slots.
    async fn claim_for_cpu(self: Arc<Self>) {
        let route = Needs::worker(Target::Cpu, DeviceUse::None).route();
        let mut backoff = Backoff::new();
        while let Some(Some(mut free)) = self.unless_over(acquire(&self.cpu, 1)).await {
            while let Ok(another) = Arc::clone(&self.cpu).try_acquire_owned() {
                free.merge(another);
            }
            let asked = vec![(route.clone(), u32::try_from(free.num_permits()).unwrap_or(self.cpu_slots))];
            let Some(steps) = self.claim(asked, &mut backoff).await else { return };
            for step in steps {
                // More than was asked for would mean a slot that nobody has: it waits for one.
                let Some(Some(slot)) = self.unless_over(take(&mut free, &self.cpu, 1)).await else { return };
                self.begin(step, slot);
            }
        }
    }

    /// Claims steps for the device, only when it is idle: an exclusive step never waits behind a stream of shared ones.
    async fn claim_for_device(self: Arc<Self>) {
        let shared = Needs::worker(Target::Cpu, DeviceUse::Shared).route();
        let exclusive = Needs::worker(Target::Cpu, DeviceUse::Exclusive).route();
        let mut backoff = Backoff::new();
        while let Some(Some(mut free)) = self.unless_over(acquire(&self.device, SHARED_STEPS)).await {
            let asked = vec![(shared.clone(), SHARED_STEPS), (exclusive.clone(), DEVICE_SLOTS)];
            let Some(mut steps) = self.claim(asked, &mut backoff).await else { return };
            steps.sort_by_key(|step| step.route != shared);
            for step in steps {
                let share = if step.route == shared { 1 } else { SHARED_STEPS };
                let Some(Some(slot)) = self.unless_over(take(&mut free, &self.device, share)).await else { return };
                self.begin(step, slot);
            }
        }
    }

    /// Asks once. The steps count as held from here on. None when this life is over.
    async fn claim(&self, free: Vec<(String, u32)>, backoff: &mut Backoff) -> Option<Vec<LeasedStep>> {
        let claim = Claim { free, wait_ms: u64::try_from(CLAIM_WAIT.as_millis()).unwrap_or(u64::MAX) };
        let asked_at = Instant::now();
        match self.unless_over(self.port.claim(&self.worker, &claim)).await? {
            Ok(claimed) => {
                if !backoff.is_fresh() {
                    tracing::info!("steps can be claimed again");
                }
                backoff.reset();
                let now = Instant::now();
                for step in &claimed.steps {
                    self.held.add(&step.step, step.epoch, now);
                }
                if claimed.steps.is_empty() {
                    let pause = MIN_CLAIM_INTERVAL.saturating_sub(asked_at.elapsed());
                    self.unless_over(tokio::time::sleep(pause)).await?;
                }
                Some(claimed.steps)
            }
            Err(error) => {
                if !self.may_repeat(&error) {
                    return None;
                }
                if backoff.is_fresh() {
                    tracing::warn!(error = %error, "a claim failed; it is repeated until the server answers");
                }
                backoff.wait(&self.over).await.then(Vec::new)
            }
        }
    }

    fn begin(self: &Arc<Self>, step: LeasedStep, slot: OwnedSemaphorePermit) {
        let Some(hold) = self.held.of(&step.step, step.epoch) else { return };
        self.steps.spawn(Arc::clone(self).carry(step, hold, slot));
    }

    /// The future's output, or none when this life is over first.
    async fn unless_over<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.over.cancelled() => None,
            output = future => Some(output),
        }
    }
}

async fn acquire(slots: &Arc<Semaphore>, count: u32) -> Option<OwnedSemaphorePermit> {
    // The semaphores are never closed; none would end the loop that asks.
    Arc::clone(slots).acquire_many_owned(count).await.ok()
}

/// `count` slots, from those in hand when they suffice.
async fn take(in_hand: &mut OwnedSemaphorePermit, slots: &Arc<Semaphore>, count: u32) -> Option<OwnedSemaphorePermit> {
    let already = in_hand.num_permits().min(count as usize);
    let mut taken = in_hand.split(already)?;
    let lacking = count - u32::try_from(already).unwrap_or(count);
    if lacking > 0 {
        taken.merge(acquire(slots, lacking).await?);
    }
    Some(taken)
}

/// Delays between repetitions of a call: doubling, with jitter, so that a fleet does not knock at once.
#[derive(Debug)]
struct Backoff {
    next: Duration,
}

impl Backoff {
    fn new() -> Self {
        Self { next: BACKOFF.0 }
    }

    fn reset(&mut self) {
        *self = Self::new();
    }

    fn is_fresh(&self) -> bool {
        self.next == BACKOFF.0
    }

    /// Waits; `false` when `stop` came first.
    async fn wait(&mut self, stop: &CancellationToken) -> bool {
        let delay = self.next.mul_f64(0.5 + rand::random::<f64>() / 2.0);
        self.next = (self.next * 2).min(BACKOFF.1);
        tokio::select! {
            biased;
            () = stop.cancelled() => false,
            () = tokio::time::sleep(delay) => true,
        }
    }
}
