//! Composes server, store, agents, dashboard and worker in one process.

mod agents;
mod knowledge;
mod late_router;
pub(crate) mod mcp_tasks;
mod open_reads;
mod open_store;
mod unfinished;
mod worker;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use nightshift_client::Client;
use nightshift_engine::store::StoreError;
use nightshift_server::{Parts, Running, Server, ServerConfig};
use nightshift_store::SqlStore;
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::random::random_text;
use crate::server_file::{self, ServerFile};

pub(crate) use agents::{catalog, check_model, key_lookup, note_silent_endpoint, prices};
pub(crate) use open_reads::{OpenReads, is_shared_machine};
pub(crate) use open_store::{artifact_options, open_store};
pub(crate) use unfinished::{PausedCampaign, Unfinished};
pub(crate) use worker::{defaults, missing_devices, nvcc_folder, work, worker_config};

/// Steps of agents that are carried out at once.
const AGENT_SLOTS: usize = 16;
/// How long a lease lasts without a heartbeat.
const LEASE_MS: u64 = 30_000;
/// How often workers send a heartbeat.
const HEARTBEAT_MS: u64 = 5_000;
/// How often a server tells the others that it lives.
const PULSE_MS: u64 = 2_000;
/// How long a worker may take to end its processes.
const WORKER_GRACE: Duration = Duration::from_secs(10);

/// What is started.
#[derive(Debug, Clone)]
pub(crate) struct Start {
    /// Whether runs are carried out, and other commands find this server.
    pub(crate) drives: bool,
    /// Whether a local worker is started.
    pub(crate) worker: bool,
    /// Whether steps of agents are carried out.
    pub(crate) agents: bool,
    /// A folder of its own with a database of its own, instead of the configured ones.
    pub(crate) data_dir: Option<PathBuf>,
    /// Where to listen.
    pub(crate) bind: SocketAddr,
    /// Name of the server for people, over the configuration's.
    pub(crate) name: Option<String>,
    /// What happens to unfinished campaigns that are found.
    pub(crate) unfinished: Unfinished,
}

impl Start {
    /// A server for one question.
    pub(crate) fn asking() -> Self {
        let bind = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        Self { drives: false, worker: false, ..Self::driving(bind) }
    }

    /// A server that carries out runs, with a local worker.
    pub(crate) fn driving(bind: SocketAddr) -> Self {
        let (name, data_dir) = (None, None);
        Self { drives: true, worker: true, agents: true, data_dir, bind, name, unfinished: Unfinished::GoOn }
    }
}

/// A server in this process.
pub(crate) struct Local {
    address: String,
    token: SecretString,
    data_dir: PathBuf,
    store: Arc<SqlStore>,
    server: Running,
    worker: Option<LocalWorker>,
    known: bool,
    reads_need_token: bool,
    paused: StdMutex<Vec<PausedCampaign>>,
}

struct LocalWorker {
    stop: CancellationToken,
    task: Mutex<JoinHandle<()>>,
    failed: watch::Receiver<Option<(String, String)>>,
}

/// Starts a server, and a worker beside it when asked.
pub(crate) async fn start(context: &Context, start: Start) -> Result<Local> {
    let config = context.config();
    let data_dir = start.data_dir.clone().unwrap_or_else(|| config.data_dir.clone());
    let database_url = config.database.url.as_ref().filter(|_| start.data_dir.is_none());
    let catalog = catalog(context)?;
    let agents = agents::agents(context, catalog)?;
    let store = Arc::new(match &start.data_dir {
        // A folder of its own has objects of its own.
        Some(folder) => SqlStore::open_sqlite(folder, nightshift_store::OpenOptions::default()).await?,
        None => open_store(context, database_url.map(ExposeSecret::expose_secret), &data_dir).await?,
    });
    let examined = if start.drives { examine_artifacts(&store, database_url.is_some()).await } else { Ok(()) };
    let prepared = match examined {
        Ok(()) => prepare(context, &start, &store).await,
        Err(failure) => Err(failure),
    };
    let paused = match prepared {
        Ok(paused) => paused,
        Err(failure) => {
            // The first failure is the one that tells.
            let _ = store.close().await;
            return Err(failure);
        }
    };
    let token = config.server.token.clone().map_or_else(random_token, Ok)?;
    let worker_token = config.server.worker_token.clone().map_or_else(random_token, Ok)?;
    let reads_need_token = !OpenReads::here(context).are_open(start.bind.ip());
    let settings = ServerConfig {
        bind: start.bind,
        token: token.clone(),
        worker_token: worker_token.clone(),
        reads_need_token,
        rates: nightshift_server::Rates::default(),
        drives: start.drives,
        own_workers: usize::from(start.worker),
        agent_slots: if start.agents { AGENT_SLOTS } else { 0 },
        lease_ms: LEASE_MS,
        heartbeat_ms: HEARTBEAT_MS,
        pulse_ms: PULSE_MS,
        sole: database_url.is_none(),
        // A hand-over keeps its folder until the user deletes it: no retention here.
        retention: config
            .server
            .retention_days
            .filter(|_| start.data_dir.is_none())
            .map(|days| Duration::from_hours(24).saturating_mul(days)),
        request_deadline: config
            .external
            .deadline_s
            .map_or(nightshift_server::DEFAULT_REQUEST_DEADLINE, |deadline_s| Duration::from_secs(deadline_s.into())),
        otlp_endpoint: config.server.otlp_endpoint.clone(),
        name: start.name.clone().or_else(|| config.server.name.clone()).unwrap_or_else(worker::host_name),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let parts = Parts::new(store.ports(), agents).with_attempts(store.clone());
    let (pages, fill) = late_router::late_router();
    let server = match Server::start(settings, parts, pages).await {
        Ok(server) => server,
        Err(error) => {
            // The first failure is the one that tells.
            let _ = store.close().await;
            return Err(error.to_api_error().into());
        }
    };
    let address = format!("http://{}", reachable(server.addr()));
    let mut local = Local {
        address,
        token,
        data_dir,
        store,
        server,
        worker: None,
        known: false,
        reads_need_token,
        paused: paused.into(),
    };
    match local.complete(context, &start, worker_token, fill) {
        Ok(()) => Ok(local),
        Err(failure) => {
            // The first failure is the one that tells.
            let _ = local.shutdown().await;
            Err(failure)
        }
    }
}

/// Prepares the database before the server carries out anything.
async fn prepare(context: &Context, start: &Start, store: &Arc<SqlStore>) -> Result<Vec<PausedCampaign>> {
    if !start.drives {
        return Ok(Vec::new());
    }
    knowledge::load(context, store.as_ref()).await?;
    match &start.unfinished {
        Unfinished::GoOn => Ok(Vec::new()),
        Unfinished::Pause { except } => unfinished::pause(&store.ports(), except.as_deref()).await,
    }
}

impl Local {
    fn complete(
        &mut self,
        context: &Context,
        start: &Start,
        worker_token: SecretString,
        fill: late_router::Fill,
    ) -> Result<()> {
        // Pages and tools read with the rights of their visitor.
        let client = Client::new(&self.address, None)?;
        let tasks = Arc::new(mcp_tasks::BundledTasks);
        let tools = nightshift_mcp::http::router(client.clone(), tasks, env!("CARGO_PKG_VERSION"));
        fill.with(nightshift_dashboard::router(client).merge(tools));
        if start.drives {
            let known = ServerFile {
                address: self.address.clone(),
                pid: std::process::id(),
                token: self.token.clone(),
                worker_token,
            };
            match server_file::write(&self.data_dir, &known) {
                Ok(()) => self.known = true,
                // With remote data and a configured token, the server is useful without the file.
                Err(failure) if context.config().database.url.is_some() && context.config().server.token.is_some() => {
                    tracing::warn!(error = %failure, "other commands of this machine do not find this server");
                }
                Err(failure) => return Err(failure),
            }
        }
        if start.worker {
            let token = self.server.embedded_token();
            let config = worker_config(context, &self.address, Some(token), true, None)?;
            let stop = CancellationToken::new();
            let (tell, failed) = watch::channel(None);
            let stopped = stop.clone();
            let otlp_endpoint = context.config().server.otlp_endpoint.clone();
            let task = tokio::spawn(async move {
                if let Err(failure) = work(config, stopped.into(), otlp_endpoint.as_deref()).await {
                    tell.send_replace(Some((failure.error.code, failure.error.message)));
                }
            });
            self.worker = Some(LocalWorker { stop, task: Mutex::new(task), failed });
        }
        Ok(())
    }

    /// Where it is reached.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Returns whether other commands of this machine find it by its file.
    pub(crate) fn is_known(&self) -> bool {
        self.known
    }

    /// Returns whether its pages ask for a token.
    pub(crate) fn reads_need_token(&self) -> bool {
        self.reads_need_token
    }

    /// Its store.
    pub(crate) fn store(&self) -> &Arc<SqlStore> {
        &self.store
    }

    /// Returns the unfinished campaigns that it paused at its start; the second call returns nothing.
    pub(crate) fn take_paused(&self) -> Vec<PausedCampaign> {
        std::mem::take(&mut *self.paused.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A client with all rights.
    pub(crate) fn client(&self) -> Result<Client> {
        Ok(Client::new(&self.address, Some(self.token.clone()))?)
    }

    /// Waits until the worker fails; without a worker, waits forever.
    pub(crate) async fn failed(&self) -> Failure {
        if let Some(worker) = &self.worker {
            let mut failed = worker.failed.clone();
            if let Ok(failure) = failed.wait_for(Option::is_some).await
                && let Some((code, message)) = failure.clone()
            {
                return Failure::new(&code, message);
            }
        }
        std::future::pending().await
    }

    /// Ends worker and server; everything is stored.
    pub(crate) async fn shutdown(self) -> Result<()> {
        if let Some(worker) = self.worker {
            worker.stop.cancel();
            let mut task = worker.task.into_inner();
            if tokio::time::timeout(WORKER_GRACE, &mut task).await.is_err() {
                tracing::warn!("the worker did not end in time; its steps are leased again by the next start");
                task.abort();
            }
        }
        server_file::remove(&self.data_dir, std::process::id());
        let stopped = self.server.stop().await;
        let closed = self.store.close().await;
        stopped.map_err(|error| Failure::from(error.to_api_error()))?;
        Ok(closed?)
    }
}

/// Says what is wrong with the place of artifacts, as far as one server can know. In a wrong place, artifacts would be lost.
async fn examine_artifacts(store: &SqlStore, is_shared: bool) -> Result<()> {
    match store.artifact_place() {
        None => tracing::info!("artifacts are stored in the database; artifacts.url names an object store for them"),
        Some((place, is_local)) if is_local && is_shared => {
            tracing::warn!(place, "artifacts are stored in a folder: every server of this database must share it");
        }
        Some(_) => {}
    }
    match store.examine_artifact_place().await {
        Ok(None) => Ok(()),
        Ok(Some(problem)) => Err(StoreError::Unusable(problem).into()),
        // It may be back before it is needed.
        Err(error) if error.is_transient() => {
            tracing::warn!(error = %error, "the object store of artifacts cannot be examined");
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// The address at which this machine reaches a server that listens everywhere.
fn reachable(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), address.port()),
        IpAddr::V6(ip) if ip.is_unspecified() => SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), address.port()),
        _ => address,
    }
}

/// An error with its causes in one line.
pub(crate) fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}

fn random_token() -> Result<SecretString> {
    Ok(random_text()?.into())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_listens_everywhere_is_reached_by_loopback() {
        for (listens, reached) in [
            ("0.0.0.0:7", "127.0.0.1:7"),
            ("[::]:7", "[::1]:7"),
            ("127.0.0.1:7", "127.0.0.1:7"),
            ("10.0.0.1:7", "10.0.0.1:7"),
        ] {
            assert_eq!(reachable(listens.parse().unwrap()).to_string(), reached);
        }
    }
}
