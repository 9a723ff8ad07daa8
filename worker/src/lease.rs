//! A worker's session: it registers, claims steps, carries them out and reports. Heartbeats are independent of the work.
//!
//! The worker fences itself. When heartbeats fail until a lease may have expired by the worker's monotonic clock, it kills
//! that work. When the server no longer knows the worker, it starts a new session with a new registration. A draining
//! worker claims nothing and finishes its steps. A stopping worker kills its steps, which is safe: each can be leased
//! again.

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

use std::sync::Arc;
use std::time::Duration;

use nightshift_client::{Client, ClientError};
use nightshift_protocol::api::{RegisterWorker, WorkerRegistered};
use secrecy::ExposeSecret as _;
use tokio_util::sync::CancellationToken;

use self::backoff::Backoff;
use self::session::{End, WorkerSession};
use crate::artifacts::ServerArtifacts;
pub use crate::config::WorkerConfig;
pub use crate::execute::Work;
use crate::execute::{Workbench, WorkbenchError};
use crate::gpu::{ChildProber, DeviceHealthMonitor};
use crate::offers::{InvalidOffer, offers};
use crate::server_api::{ServerApi, ServerApiError};

/// Maximum time for which the server may hold a claim.
pub const CLAIM_WAIT: Duration = Duration::from_secs(10);
/// Default time limit of draining.
pub const DRAIN_TIMEOUT: Duration = Duration::from_mins(1);
/// Time limit for killed work to end.
pub const KILL_GRACE: Duration = Duration::from_secs(5);
/// The signals that end a worker.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    /// Claim nothing more, finish current steps within [`WorkerConfig::drain_timeout`], and end.
    pub drain: CancellationToken,
    /// Kill current steps, return them to the server, and end.
    pub shutdown: CancellationToken,
}

/// Creates signals without draining.
impl From<CancellationToken> for Stop {
    fn from(shutdown: CancellationToken) -> Self {
        Self { drain: CancellationToken::new(), shutdown }
    }
}

impl Stop {
    /// Waits for either signal.
    async fn asked(&self) {
        tokio::select! {
            () = self.drain.cancelled() => {}
            () = self.shutdown.cancelled() => {}
        }
    }
}

/// The error that ended a worker.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The address or the token is invalid.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The machine cannot carry out steps.
    #[error(transparent)]
    Workbench(#[from] WorkbenchError),
    /// The configured capabilities are not available.
    #[error(transparent)]
    Offer(#[from] InvalidOffer),
    /// The server refuses this worker.
    #[error("the server refuses this worker: {0}")]
    Refused(ServerApiError),
    /// The examination of the machine panicked.
    #[error("the machine could not be examined")]
    Examination(#[source] tokio::task::JoinError),
}

impl WorkerError {
    /// Stable code, documented in `docs/reference/errors.md`.
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

/// Runs a worker until a stop signal or a fatal error.
pub async fn run(config: WorkerConfig, stop: impl Into<Stop>) -> Result<(), WorkerError> {
    let token = (!config.token.expose_secret().is_empty()).then(|| config.token.clone());
    let client = Client::new(&config.server_url, token)?;
    let artifacts = ServerArtifacts::new(client.clone(), tokio::runtime::Handle::current());
    let opened = {
        let mut config = config.clone();
        // Children die with the thread that starts them, so one thread does the whole examination.
        tokio::task::spawn_blocking(move || {
            let prober = ChildProber::new(config.executable.clone(), config.device_locks());
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

/// Registers and works until a stop signal. Registers again when the server no longer knows the worker.
pub async fn serve<P: ServerApi, W: Work>(
    port: Arc<P>,
    work: Arc<W>,
    introduction: RegisterWorker,
    stop: impl Into<Stop>,
) -> Result<(), WorkerError> {
    self::work(port, work, introduction, None, stop.into(), DRAIN_TIMEOUT).await
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
