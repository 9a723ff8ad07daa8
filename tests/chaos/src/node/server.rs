//! A server: the real one over the real store, with a toy workflow and toy agents.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use axum::Router;
use clap::Args;
use nightshift_engine::store::Store;
use nightshift_server::{OsRandom, Parts, Server, ServerConfig};
use nightshift_store::fault::FaultyStore;
use nightshift_store::{OpenOptions, PostgresOptions, SqlStore};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::control::{JumpingClock, obey};
use crate::toy::{Log, ToyAgents, ToyWorkflow, view};

/// The operator's token.
pub(crate) const TOKEN: &str = "chaos-operator";
/// The workers' token.
pub(crate) const WORKER_TOKEN: &str = "chaos-worker";
/// How long a lease lasts when nothing else is said, in milliseconds.
const LEASE_MS: u64 = 1_500;
/// How often workers send a heartbeat, in milliseconds.
const HEARTBEAT_MS: u64 = 300;
/// How often servers give a sign of life, in milliseconds.
const PULSE_MS: u64 = 200;
/// Signal of a write beyond the size that a file may have: 25 on every Linux.
const SIGXFSZ: i32 = 25;

#[derive(Args)]
pub(crate) struct Options {
    /// `sqlite:FOLDER` or `postgres://…`.
    #[arg(long)]
    database: String,
    /// Where to listen.
    #[arg(long)]
    bind: SocketAddr,
    /// What the orchestrator says.
    #[arg(long)]
    control_file: PathBuf,
    /// Where executions are written down.
    #[arg(long)]
    log: PathBuf,
    /// Largest size of the database, in bytes: `SQLite` behaves beyond it as on a full disk.
    #[arg(long)]
    max_size_bytes: Option<u64>,
    /// Name in lists.
    #[arg(long)]
    name: String,
    /// Agents' steps at once.
    #[arg(long, default_value_t = 4)]
    agent_slots: usize,
    /// How long a lease lasts, in milliseconds.
    #[arg(long, default_value_t = LEASE_MS)]
    lease_ms: u64,
}

/// Opens a database by its address.
pub(crate) async fn open(database: &str, max_size_bytes: Option<u64>) -> anyhow::Result<Arc<SqlStore>> {
    let store = match database.strip_prefix("sqlite:") {
        Some(folder) => {
            let options = OpenOptions { create: true, max_size_bytes, ..OpenOptions::default() };
            SqlStore::open_sqlite(&PathBuf::from(folder), options).await
        }
        None if database.starts_with("postgres://") => {
            SqlStore::open_postgres(database, PostgresOptions::default()).await
        }
        None => bail!("`{database}` is neither sqlite:FOLDER nor postgres://…"),
    };
    Ok(Arc::new(store.context("the database cannot be opened")?))
}

pub(super) async fn run(options: Options, end: CancellationToken) -> anyhow::Result<()> {
    // A process that is not told to survive this signal dies of a full disk quota instead of seeing an error.
    let _too_large = signal(SignalKind::from_raw(SIGXFSZ))?;
    let log = Log::open(&options.log)?;
    let clock = Arc::new(JumpingClock::default());
    let sql = open(&options.database, options.max_size_bytes).await?;
    let store = Arc::new(FaultyStore::counting(sql.clone()));
    let full = store.clone();

    obey(options.control_file, clock.clone(), move |is_full| full.set_full(is_full))?;
    let config = ServerConfig {
        bind: options.bind,
        token: TOKEN.to_owned().into(),
        worker_token: WORKER_TOKEN.to_owned().into(),
        reads_need_token: false,
        rates: nightshift_server::Rates::default(),
        drives: true,
        own_workers: 0,
        agent_slots: options.agent_slots,
        lease_ms: options.lease_ms,
        heartbeat_ms: HEARTBEAT_MS,
        pulse_ms: PULSE_MS,
        sole: store.kind() == "sqlite",
        retention: None,
        request_deadline: nightshift_server::DEFAULT_REQUEST_DEADLINE,
        otlp_endpoint: None,
        name: options.name,
        version: "chaos".to_owned(),
    };
    let parts = Parts {
        store,
        workflow: Arc::new(ToyWorkflow),
        view,
        agents: Arc::new(ToyAgents { log }),
        clock,
        random: Arc::new(OsRandom),
        attempts: None,
    };
    let running = Server::start(config, parts, Router::new()).await?;
    let shutdown = running.shutdown_handle();
    tokio::spawn(async move {
        end.cancelled().await;
        shutdown.begin();
    });
    running.join().await?;
    sql.close().await?;
    Ok(())
}
