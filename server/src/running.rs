//! Starting and stopping.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use secrecy::SecretString;
use tokio::net::TcpListener;
use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::config::{Parts, ServerConfig};
use crate::connections::{self, Limits};
use crate::error::ServerError;
use crate::telemetry::{SpanExport, SpanExporter};
use crate::{
    agent_loop, api, attempt_index, driver_loop, live, notice_loop, pulse_loop, retention_loop, roster_loop,
    sweeper_loop, webhook,
};

/// How long open requests may take to end when the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the background loops may take to end when the server stops.
const LOOPS_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the end of the server's life may take to be written.
const RETIRE_TIMEOUT: Duration = Duration::from_secs(3);

/// Starts servers.
#[derive(Debug, Clone, Copy)]
pub struct Server;

/// A server that listens.
#[derive(Debug)]
pub struct Running {
    addr: SocketAddr,
    embedded_token: SecretString,
    shutdown: Shutdown,
    task: JoinHandle<Result<(), ServerError>>,
}

/// Stops a server from anywhere.
#[derive(Debug, Clone)]
pub struct Shutdown(CancellationToken);

impl Shutdown {
    /// Asks the server to stop: nothing new is claimed, long polls are answered, listeners close.
    pub fn begin(&self) {
        self.0.cancel();
    }
}

impl Server {
    /// Listens, and starts the background loops when the configuration says so. `extra` are pages beside the API; who
    /// may read is checked for them too.
    pub async fn start(config: ServerConfig, parts: Parts, extra: Router) -> Result<Running, ServerError> {
        config.check()?;
        let (listener, addr) = listen(config.bind).await?;
        let drives = config.drives;
        let (spans, export) = span_exporter(&config, addr)?.unzip();
        let app = Arc::new(App::new(config, parts, addr.to_string(), spans));
        if drives {
            // Before anyone can register: workers of this process belong to this life.
            pulse_loop::begin(&app).await?;
        }
        let router = api::router(&app, addr, extra);
        let shutdown = Shutdown(app.shutdown.clone());
        let embedded_token = app.embedded_token.clone();
        let task = tokio::spawn(serve(app, listener, router, drives, export));
        tracing::info!(server.addr = %addr, server.drives = drives, "the server listens");
        Ok(Running { addr, embedded_token, shutdown, task })
    }
}

impl Running {
    /// Where it listens, with the real port.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The token for workers of this process: the server knows by it that they end with it.
    #[must_use]
    pub fn embedded_token(&self) -> SecretString {
        self.embedded_token.clone()
    }

    /// A handle that stops it.
    #[must_use]
    pub fn shutdown_handle(&self) -> Shutdown {
        self.shutdown.clone()
    }

    /// Waits until it has ended.
    pub async fn join(self) -> Result<(), ServerError> {
        self.task.await.unwrap_or_else(|error| Err(ended(&error)))
    }

    /// Stops it and waits until it has ended: at most the two drain times and the time to end its life.
    pub async fn stop(self) -> Result<(), ServerError> {
        self.shutdown.begin();
        self.join().await
    }
}

/// The name of this program in traces.
const SERVICE: &str = "nightshift-server";

fn span_exporter(config: &ServerConfig, addr: SocketAddr) -> Result<Option<(SpanExporter, SpanExport)>, ServerError> {
    // An empty setting is what a container gets whose environment passes on an unset variable.
    let endpoint = config.otlp_endpoint.as_deref().map(str::trim).filter(|endpoint| !endpoint.is_empty());
    let Some(endpoint) = endpoint else { return Ok(None) };
    SpanExporter::new(endpoint, SERVICE, &config.version, &format!("{} {addr}", config.name)).map(Some)
}

/// Listens there: the listener, and the address as it has it, with the real port.
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
    app: Arc<App>,
    listener: TcpListener,
    router: Router,
    drives: bool,
    export: Option<SpanExport>,
) -> Result<(), ServerError> {
    let mut loops: JoinSet<&'static str> = JoinSet::new();
    start_loops(&app, &mut loops, drives);
    if let Some(export) = export {
        start_loop(&mut loops, "span", export.run(app.shutdown.clone()));
    }
    let shutdown = app.shutdown.clone();
    let mut http = tokio::spawn(connections::serve(listener, router, Limits::default(), shutdown.clone()));
    let mut result = tokio::select! {
        // A stop that was asked for also ends the others: it is looked at first.
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
    retire(&app).await;
    if !http.is_finished() && tokio::time::timeout(DRAIN_TIMEOUT, &mut http).await.is_err() {
        tracing::warn!("open requests did not end in time and are dropped");
        http.abort();
    }
    if let Err(error) = &mut result {
        tracing::error!(error = %error, "the server ended unexpectedly");
    }
    result
}

fn start_loops(app: &Arc<App>, loops: &mut JoinSet<&'static str>, drives: bool) {
    start_loop(loops, "notice", notice_loop::run(app.clone()));
    start_loop(loops, "roster", roster_loop::run(app.clone()));
    start_loop(loops, "live", live::run(app.clone()));
    if !drives {
        return;
    }
    start_loop(loops, "webhook", webhook::run(app.clone()));
    start_loop(loops, "pulse", pulse_loop::run(app.clone()));
    start_loop(loops, "retention", retention_loop::run(app.clone()));
    start_loop(loops, "index", attempt_index::run(app.clone()));
    start_loop(loops, "driver", driver_loop::run(app.clone()));
    start_loop(loops, "sweeper", sweeper_loop::run(app.clone()));
    if app.config.agent_slots > 0 {
        start_loop(loops, "agent", agent_loop::run(app.clone()));
    }
}

fn start_loop(loops: &mut JoinSet<&'static str>, name: &'static str, body: impl Future<Output = ()> + Send + 'static) {
    loops.spawn(async move {
        body.await;
        name
    });
}

/// Ends this server's life, so that others go on with its runs at once.
async fn retire(app: &App) {
    let Some(server) = app.life.current() else { return };
    app.life.end();
    match tokio::time::timeout(RETIRE_TIMEOUT, app.store.retire_server(&server, app.clock.now())).await {
        Ok(Ok(())) => tracing::info!(server.id = %server, "this server's life is over"),
        Ok(Err(error)) => {
            tracing::warn!(error = %error, "this server's life could not be ended: others wait until it runs out");
        }
        Err(_) => tracing::warn!("this server's life was not ended in time: others wait until it runs out"),
    }
}

fn ended(error: &JoinError) -> ServerError {
    ServerError::Ended(error.to_string())
}
