//! A worker's session: register, claim steps, carry them out, report; heartbeats apart from the work.
//!
//! The worker fences itself: when heartbeats fail until a lease could have run out by its own monotonic clock, it kills
//! that work. A server that does not know the worker any more gets a new registration, and nothing of the old session
//! survives it. When it is asked to drain, it claims nothing more and finishes what it holds; when it is asked to end, it
//! kills what runs: killing is safe, since every step can be leased again.

mod backoff;
mod carry;
mod claim;
mod device;
mod device_care;
mod held;
mod readings;
mod session;
mod slots;
#[cfg(test)]
mod tests;
mod usage;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nightshift_client::{Client, ClientError};
use nightshift_protocol::api::{LeasedStep, RegisterWorker, WorkerRegistered};
use nightshift_protocol::needs::Label;
use nightshift_protocol::step::{StepFailure, StepOutput};
use secrecy::{ExposeSecret as _, SecretString};
use tokio_util::sync::CancellationToken;

use self::backoff::Backoff;
use self::session::{End, WorkerSession};
use crate::artifacts::ServerArtifacts;
use crate::execute::{Workbench, WorkbenchError};
use crate::gpu::{ChildProber, DeviceHealthMonitor, Gpus};
use crate::offers::{InvalidOffer, offers};
use crate::server_api::{ServerApi, ServerApiError};
use nightshift_sandbox::process::CancelFlag;
use nightshift_toolchain::nvcc::NvccChoice;

/// How long the server may hold a claim.
pub const CLAIM_WAIT: Duration = Duration::from_secs(10);
/// How long a worker that drains works on, when the configuration does not say it.
pub const DRAIN_TIMEOUT: Duration = Duration::from_mins(1);
/// How long killed work may take to end.
pub const KILL_GRACE: Duration = Duration::from_secs(5);
/// What a worker is told at its start.
#[derive(Debug, Clone)]
pub struct WorkerConfig {
    /// The server's address, or those of its replicas, separated by commas.
    pub server_url: String,
    /// The worker's token; empty when the server asks for none.
    pub token: SecretString,
    /// Name for people.
    pub name: String,
    /// Whether it lives in the server's process.
    pub embedded: bool,
    /// Where steps work. Removed at the end; what a killed session left there is removed at the start.
    pub scratch_dir: PathBuf,
    /// Where builds and artifacts are kept between lives. Several workers may share it.
    pub cache_dir: PathBuf,
    /// Our own binary, of which children are made.
    pub executable: PathBuf,
    /// Name or path of the C++ compiler; the first that is found without it.
    pub cpp_compiler: Option<String>,
    /// Which CUDA compiler, and what it builds for.
    pub nvcc: NvccChoice,
    /// The Python that runs models of `PyTorch`; the first one of the search path that has it without it.
    pub python: Option<PathBuf>,
    /// The cache of Hugging Face that models of `PyTorch` may read; none without it.
    pub hf_home: Option<PathBuf>,
    /// Builds at once.
    pub cpu_slots: u32,
    /// Labels that steps may ask for.
    pub labels: BTreeSet<Label>,
    /// Folders in which tools are looked for, beside those of the system and of CUDA: the search path of the user.
    pub search_path: Vec<PathBuf>,
    /// How long the worker goes on with what it holds after it was asked to drain.
    pub drain_timeout: Duration,
    /// The GPUs that it may use.
    pub gpus: Gpus,
    /// Processes that may hold a context on the GPUs of this machine at once, all together; as many as their memory is
    /// good for, without it.
    pub gpu_contexts: Option<u32>,
    /// Whether programs are profiled with the tools that are found. Without, a profile says what compiler and roofline
    /// tell, in no time: for campaigns that want many verdicts and few reasons.
    pub profilers: bool,
}

/// How a worker is told to end.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    /// Claim nothing more, finish what is held, for at most [`WorkerConfig::drain_timeout`], and end.
    pub drain: CancellationToken,
    /// Kill what runs, give it back, and end.
    pub shutdown: CancellationToken,
}

/// Without draining.
impl From<CancellationToken> for Stop {
    fn from(shutdown: CancellationToken) -> Self {
        Self { drain: CancellationToken::new(), shutdown }
    }
}

impl Stop {
    /// Waits until either is asked for.
    async fn asked(&self) {
        tokio::select! {
            () = self.drain.cancelled() => {}
            () = self.shutdown.cancelled() => {}
        }
    }
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
    /// What it is told to offer cannot be offered.
    #[error(transparent)]
    Offer(#[from] InvalidOffer),
    /// The server refuses this worker.
    #[error("the server refuses this worker: {0}")]
    Refused(ServerApiError),
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
            Self::Offer(error) => error.code(),
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

/// Runs a worker until it is told to stop, or until it cannot go on.
pub async fn run(config: WorkerConfig, stop: impl Into<Stop>) -> Result<(), WorkerError> {
    let token = (!config.token.expose_secret().is_empty()).then(|| config.token.clone());
    let client = Client::new(&config.server_url, token)?;
    let artifacts = ServerArtifacts::new(client.clone(), tokio::runtime::Handle::current());
    let opened = {
        let mut config = config.clone();
        // Children die with the thread that starts them: the examination stays on one thread until it is done.
        tokio::task::spawn_blocking(move || {
            let prober = ChildProber::new(config.executable.clone());
            let (gpus, monitor) = DeviceHealthMonitor::open(config.gpus, Arc::new(prober));
            config.gpus = gpus;
            let workbench = Workbench::open(&config, Box::new(artifacts))?;
            let offers = offers(&config, workbench.machine().clone())?;
            Ok::<_, WorkerError>((workbench, offers, monitor, config.gpus))
        })
        .await
    };
    let (workbench, offers, monitor, gpus) = opened.map_err(WorkerError::Examination)??;
    let introduction = RegisterWorker {
        name: config.name,
        embedded: config.embedded,
        offers,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let _event_watch = device::watch_events(&monitor, gpus)?;
    let monitor = Some(monitor);
    work(Arc::new(client), Arc::new(workbench), introduction, monitor, stop.into(), config.drain_timeout).await
}

/// Registers and works, again and again while the server forgets, until it is told to stop.
pub async fn serve<P: ServerApi, W: Work>(
    port: Arc<P>,
    work: Arc<W>,
    introduction: RegisterWorker,
    stop: impl Into<Stop>,
) -> Result<(), WorkerError> {
    self::work(port, work, introduction, None, stop.into(), DRAIN_TIMEOUT).await
}

/// Like [`serve`], with GPUs that are watched over.
pub async fn serve_with_gpus<P: ServerApi, W: Work>(
    port: Arc<P>,
    work: Arc<W>,
    introduction: RegisterWorker,
    monitor: Arc<DeviceHealthMonitor>,
    stop: impl Into<Stop>,
) -> Result<(), WorkerError> {
    self::work(port, work, introduction, Some(monitor), stop.into(), DRAIN_TIMEOUT).await
}

async fn work<P: ServerApi, W: Work>(
    port: Arc<P>,
    work: Arc<W>,
    mut introduction: RegisterWorker,
    monitor: Option<Arc<DeviceHealthMonitor>>,
    stop: Stop,
    drain_timeout: Duration,
) -> Result<(), WorkerError> {
    loop {
        device::mark_quarantined(&mut introduction.offers, monitor.as_deref());
        let Some(registered) = register(port.as_ref(), &introduction, &stop).await? else { return Ok(()) };
        tracing::info!(worker.id = %registered.worker, worker.name = %introduction.name, "the worker is registered");
        let session = Arc::new(WorkerSession::new(
            Arc::clone(&port),
            Arc::clone(&work),
            &introduction,
            registered,
            monitor.clone(),
        ));
        match session.run(&stop, drain_timeout).await {
            End::ShutDown => return Ok(()),
            End::Drained { by_server: false } => {
                tracing::info!("the worker has drained and ends");
                return Ok(());
            }
            End::Drained { by_server: true } => {
                tracing::warn!("the server asked this worker to drain: it takes nothing more and ends");
                return Ok(());
            }
            End::Forgotten => tracing::warn!("the server does not know this worker any more: it registers anew"),
            End::Refused(error) => return Err(WorkerError::Refused(error)),
        }
    }
}

async fn register<P: ServerApi>(
    port: &P,
    introduction: &RegisterWorker,
    stop: &Stop,
) -> Result<Option<WorkerRegistered>, WorkerError> {
    let mut backoff = Backoff::new();
    let never = CancellationToken::new();
    loop {
        let answer = tokio::select! {
            biased;
            () = stop.asked() => return Ok(None),
            answer = port.register(introduction) => answer,
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
                tokio::select! {
                    () = stop.asked() => return Ok(None),
                    _ = backoff.wait(&never) => {}
                }
            }
            Err(error) => return Err(WorkerError::Refused(error)),
        }
    }
}
