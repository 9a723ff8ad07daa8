//! Starts and stops a server.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use secrecy::SecretString;
use tokio::net::TcpListener;
use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::config::{Parts, ServerConfig};
use crate::connections::{self, Limits};
use crate::driving::Driving;
use crate::error::ServerError;
use crate::telemetry::{SpanExport, SpanExporter};
use crate::{
    agent_loop, api, artifact_loop, driver_loop, heartbeat_loop, index_loop, live_events, notice_loop, retention_loop,
    sweeper_loop, webhook, worker_registry_loop,
};

/// Maximum time for open requests to end when the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time for the background loops to end when the server stops.
const LOOPS_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum time for the end of the server lease to be stored.
const RETIRE_TIMEOUT: Duration = Duration::from_secs(3);

/// Starts servers.
#[derive(Debug, Clone, Copy)]
pub struct Server;

/// A running server.
#[derive(Debug)]
pub struct Running {
    addr: SocketAddr,
    embedded_token: SecretString,
    shutdown: Shutdown,
    task: JoinHandle<Result<(), ServerError>>,
}

/// A handle that stops a server.
#[derive(Debug, Clone)]
pub struct Shutdown(CancellationToken);

impl Shutdown {
    /// Asks the server to stop: it claims nothing new, answers long polls, and closes its listeners.
    pub fn begin(&self) {
        self.0.cancel();
    }
}

impl Server {
    /// Binds the listener, and starts the background loops if the configuration says so. `extra` are additional pages
    /// with the same check of the reading permission.
    pub async fn start(config: ServerConfig, parts: Parts, extra: Router) -> Result<Running, ServerError> {
        config.check()?;
        let (listener, addr) = listen(config.bind).await?;
        let drives = config.drives;
        let (spans, export) = span_exporter(&config, addr)?.unzip();
        let app = App::new(config, parts, addr.to_string(), spans);
        if drives {
            // Before any worker can register, because workers of this process belong to this server lease.
            heartbeat_loop::begin(&app.driving).await?;
        }
        let router = api::router(&app, addr, extra);
        let shutdown = Shutdown(app.shared.shutdown.clone());
        let embedded_token = app.access.embedded_token.clone();
        let task = tokio::spawn(serve(app, listener, router, drives, export));
        tracing::info!(server.addr = %addr, server.drives = drives, "the server listens");
        Ok(Running { addr, embedded_token, shutdown, task })
    }
}

impl Running {
    /// Returns the address of the listener, with the real port.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the token for workers of this process. It tells the server that they end with the process.
    #[must_use]
    pub fn embedded_token(&self) -> SecretString {
        self.embedded_token.clone()
    }

    /// Returns a handle that stops it.
    #[must_use]
    pub fn shutdown_handle(&self) -> Shutdown {
        self.shutdown.clone()
    }

    /// Waits until it has ended.
    pub async fn join(self) -> Result<(), ServerError> {
        self.task.await.unwrap_or_else(|error| Err(ended(&error)))
    }

    /// Stops it and waits until it has ended: at most the two drain times and the time to end the server lease.
    pub async fn stop(self) -> Result<(), ServerError> {
        self.shutdown.begin();
        self.join().await
    }
}

/// The name of this program in traces.
const SERVICE: &str = "nightshift-server";

fn span_exporter(config: &ServerConfig, addr: SocketAddr) -> Result<Option<(SpanExporter, SpanExport)>, ServerError> {
    // An empty setting comes from a container that passes on an unset variable.
    let endpoint = config.otlp_endpoint.as_deref().map(str::trim).filter(|endpoint| !endpoint.is_empty());
    let Some(endpoint) = endpoint else { return Ok(None) };
    SpanExporter::new(endpoint, SERVICE, &config.version, &format!("{} {addr}", config.name)).map(Some)
}

/// Binds the listener. Returns it with its address, including the real port.
pub async fn listen(addr: SocketAddr) -> Result<(TcpListener, SocketAddr), ServerError> {
    let failed = |source: std::io::Error| match source.kind() {
        std::io::ErrorKind::AddrInUse => ServerError::PortInUse { addr },
        _ => ServerError::Bind { addr, source },
    };
    let listener = TcpListener::bind(addr).await.map_err(failed)?;
    let listens = listener.local_addr().map_err(failed)?;
    Ok((listener, listens))
}

async fn serve(
    app: App,
    listener: TcpListener,
    router: Router,
    drives: bool,
    export: Option<SpanExport>,
) -> Result<(), ServerError> {
    let mut loops: JoinSet<&'static str> = JoinSet::new();
    start_loops(&app, &mut loops, drives);
    if let Some(export) = export {
        start_loop(&mut loops, "span", export.run(app.shared.shutdown.clone()));
    }
    let shutdown = app.shared.shutdown.clone();
    let mut http = tokio::spawn(connections::serve(listener, router, Limits::default(), shutdown.clone()));
    let mut result = tokio::select! {
        // A requested stop also ends the other tasks, so it is polled first.
        biased;
        () = shutdown.cancelled() => Ok(()),
        ended_early = &mut http => Err(ServerError::Ended(match ended_early {
            Ok(()) => "the listener closed".to_owned(),
            Err(error) => error.to_string(),
        })),
        Some(ended_early) = loops.join_next(), if !loops.is_empty() => {
            Err(ended_early.map_or_else(|error| ended(&error), |name| {
                ServerError::Ended(format!("the {name} loop ended"))
            }))
        }
    };
    shutdown.cancel();
    let drained = tokio::time::timeout(LOOPS_TIMEOUT, async { while loops.join_next().await.is_some() {} }).await;
    if drained.is_err() {
        tracing::warn!("background loops did not end in time and are dropped");
        loops.shutdown().await;
    }
    retire(&app.driving).await;
    if !http.is_finished() && tokio::time::timeout(DRAIN_TIMEOUT, &mut http).await.is_err() {
        tracing::warn!("open requests did not end in time and are dropped");
        http.abort();
    }
    if let Err(error) = &mut result {
        tracing::error!(error = %error, "the server ended unexpectedly");
    }
    result
}

fn start_loops(app: &App, loops: &mut JoinSet<&'static str>, drives: bool) {
    let App { shared, agents, dispatch, driving, index, live, .. } = app;
    start_loop(loops, "notice", notice_loop::run(driving.clone(), index.clone()));
    start_loop(loops, "worker_registry", worker_registry_loop::run(dispatch.clone()));
    start_loop(loops, "live", live_events::run(shared.clone(), live.clone()));
    if !drives {
        return;
    }
    start_loop(loops, "webhook", webhook::run(shared.clone()));
    start_loop(loops, "heartbeat", heartbeat_loop::run(driving.clone()));
    start_loop(loops, "retention", retention_loop::run(shared.clone()));
    start_loop(loops, "artifact", artifact_loop::run(shared.clone()));
    start_loop(loops, "index", index_loop::run(index.clone(), driving.clone()));
    start_loop(loops, "driver", driver_loop::run(driving.clone()));
    start_loop(loops, "sweeper", sweeper_loop::run(driving.clone()));
    if shared.config.agent_slots > 0 {
        start_loop(loops, "agent", agent_loop::run(agents.clone(), driving.clone()));
    }
}

fn start_loop(loops: &mut JoinSet<&'static str>, name: &'static str, body: impl Future<Output = ()> + Send + 'static) {
    loops.spawn(async move {
        body.await;
        name
    });
}

/// Ends the server lease, so that other servers acquire its runs at once.
async fn retire(driving: &Driving) {
    let Some(server) = driving.server_lease.current() else { return };
    driving.server_lease.end();
    match tokio::time::timeout(
        RETIRE_TIMEOUT,
        driving.shared.store.servers.retire_server(&server, driving.shared.clock.now()),
    )
    .await
    {
        Ok(Ok(())) => tracing::info!(server.id = %server, "the server lease has ended"),
        Ok(Err(error)) => {
            tracing::warn!(error = %error, "the server lease could not be ended; other servers wait until it expires");
        }
        Err(_) => tracing::warn!("the server lease was not ended in time; other servers wait until it expires"),
    }
}

fn ended(error: &JoinError) -> ServerError {
    ServerError::Ended(error.to_string())
}
