//! A server: the real one over the real store, with a toy workflow and toy agents.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use axum::Router;
use clap::Args;
use nightshift_engine::store::Database as _;
use nightshift_server::{OsRandom, Parts, Server, ServerConfig, SystemClock};
use nightshift_store::fault::FaultyStore;
use nightshift_store::{ArtifactOptions, Objects, OpenOptions, PostgresOptions, SqlStore};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::control::obey;
use crate::toy::{Log, ToyAgents, ToyWorkflow, view};

/// The operator's token.
pub(crate) const TOKEN: &str = "chaos-operator";
/// The workers' token.
pub(crate) const WORKER_TOKEN: &str = "chaos-worker";
/// Name of the bucket of artifacts.
pub(crate) const BUCKET: &str = "artifacts";
/// Prefix of all objects in it.
pub(crate) const PREFIX: &str = "nightshift";
/// Name of the access key of the object store.
pub(crate) const OBJECT_KEY: &str = "chaos-key";
/// Its secret.
pub(crate) const OBJECT_SECRET: &str = "chaos-secret";
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
    /// Address of the object store, which speaks S3's protocol.
    #[arg(long)]
    objects: String,
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

/// Opens a database by its address, with artifacts in the object store at an address.
pub(crate) async fn open(
    database: &str,
    objects: Option<&str>,
    max_size_bytes: Option<u64>,
) -> anyhow::Result<Arc<SqlStore>> {
    let artifacts = ArtifactOptions { objects: objects.map(bucket).transpose()?, ..ArtifactOptions::default() };
    let store = match database.strip_prefix("sqlite:") {
        Some(folder) => {
            let options = OpenOptions { create: true, max_size_bytes, artifacts, ..OpenOptions::default() };
            SqlStore::open_sqlite(&PathBuf::from(folder), options).await
        }
        None if database.starts_with("postgres://") => {
            SqlStore::open_postgres(database, PostgresOptions { artifacts, ..PostgresOptions::default() }).await
        }
        None => bail!("`{database}` is neither sqlite:FOLDER nor postgres://…"),
    };
    Ok(Arc::new(store.context("the database cannot be opened")?))
}

/// Opens the bucket of an object store.
fn bucket(endpoint: &str) -> anyhow::Result<Objects> {
    let settings = [
        ("AWS_ACCESS_KEY_ID", OBJECT_KEY),
        ("AWS_SECRET_ACCESS_KEY", OBJECT_SECRET),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ENDPOINT_URL", endpoint),
        ("AWS_ALLOW_HTTP", "true"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()));
    Ok(Objects::open(&format!("s3://{BUCKET}/{PREFIX}"), &settings)?)
}

pub(super) async fn run(options: Options, end: CancellationToken) -> anyhow::Result<()> {
    // A process that is not told to survive this signal dies of a full disk quota instead of seeing an error.
    let _too_large = signal(SignalKind::from_raw(SIGXFSZ))?;
    let log = Log::open(&options.log)?;
    let sql = open(&options.database, Some(&options.objects), options.max_size_bytes).await?;
    let store = Arc::new(FaultyStore::counting(sql.ports()));
    let full = store.clone();

    obey(options.control_file, move |is_full| full.set_full(is_full))?;
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
        sole: sql.kind() == "sqlite",
        retention: None,
        request_deadline: nightshift_server::DEFAULT_REQUEST_DEADLINE,
        otlp_endpoint: None,
        name: options.name,
        version: "chaos".to_owned(),
    };
    let parts = Parts {
        store: store.ports(),
        workflow: Arc::new(ToyWorkflow),
        view,
        changes: nightshift_optimizer::strategy::changed_attempts,
        agents: Arc::new(ToyAgents { log }),
        clock: Arc::new(SystemClock),
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
