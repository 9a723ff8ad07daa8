//! Servers and workers as `nightshift serve` and `nightshift worker` would have them, but for the work itself.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use async_trait::async_trait;
use axum::Router;
use nightshift_client::Client;
use nightshift_engine::store::Store;
use nightshift_optimizer::agent::{AgentPorts, AgentStep};
use nightshift_protocol::api::{LeasedStep, RegisterWorker};
use nightshift_protocol::machine::{DeviceUse, MachineFacts, Needs, Offers, SandboxReport};
use nightshift_protocol::step::{StepFailure, StepOutput};
use nightshift_protocol::task::Target;
use nightshift_sandbox::process::CancelFlag;
use nightshift_server::{AgentExecutor, DEFAULT_PULSE_MS, OsRandom, Parts, Running, Server, ServerConfig, SystemClock};
use nightshift_worker::lease::Work;
use secrecy::SecretString;

use crate::trivial::{self, Trivial};

/// Tokens of servers that only this process can reach.
const OPERATOR: &str = "bench-operator";
const WORKER: &str = "bench-worker";
/// The product's own.
pub(crate) const LEASE_MS: u64 = 30_000;
/// The product's own.
pub(crate) const HEARTBEAT_MS: u64 = 5_000;

/// Warnings go to standard error, as they would with `nightshift serve`; more when the environment asks for it.
pub(crate) fn log() {
    let filter = tracing_subscriber::EnvFilter::builder()
        .with_default_directive(tracing_subscriber::filter::LevelFilter::WARN.into())
        .from_env_lossy();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}

/// A thousand workers have a connection each, and both its ends are in this process.
pub(crate) fn raise_file_limit() -> anyhow::Result<()> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    Ok(setrlimit(Resource::Nofile, limit)?)
}

/// What a server of a measurement is like.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) agent_slots: usize,
    pub(crate) lease_ms: u64,
    pub(crate) heartbeat_ms: u64,
    /// Whether the database is embedded in its process.
    pub(crate) sole: bool,
    pub(crate) port: u16,
}

impl Settings {
    pub(crate) fn new(agent_slots: usize, sole: bool) -> Self {
        Self { agent_slots, lease_ms: LEASE_MS, heartbeat_ms: HEARTBEAT_MS, sole, port: 0 }
    }
}

/// Starts a server; its loops, its API and its listener are those of the product.
pub(crate) async fn start(
    settings: &Settings,
    store: Store,
    workflow: Trivial,
    agents: Arc<dyn AgentExecutor>,
) -> anyhow::Result<Running> {
    let config = ServerConfig {
        bind: SocketAddr::from((Ipv4Addr::LOCALHOST, settings.port)),
        token: OPERATOR.to_owned().into(),
        worker_token: WORKER.to_owned().into(),
        reads_need_token: false,
        rates: nightshift_server::Rates::default(),
        drives: true,
        own_workers: 0,
        agent_slots: settings.agent_slots,
        lease_ms: settings.lease_ms,
        heartbeat_ms: settings.heartbeat_ms,
        pulse_ms: DEFAULT_PULSE_MS,
        sole: settings.sole,
        retention: None,
        request_deadline: nightshift_server::DEFAULT_REQUEST_DEADLINE,
        otlp_endpoint: None,
        name: "bench".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let parts = Parts {
        store,
        workflow: Arc::new(workflow),
        view: trivial::view,
        changes: nightshift_optimizer::strategy::changed_attempts,
        agents,
        clock: Arc::new(SystemClock),
        random: Arc::new(OsRandom),
        attempts: None,
    };
    Ok(Server::start(config, parts, Router::new()).await?)
}

/// A client with the workers' token.
pub(crate) fn worker_client(addr: SocketAddr) -> anyhow::Result<Client> {
    Ok(Client::new(&format!("http://{addr}"), Some(SecretString::from(WORKER)))?)
}

/// What workers carry out in these measurements.
pub(crate) fn worker_needs() -> Needs {
    Needs::worker(Target::Cpu, DeviceUse::None)
}

/// A worker with so many slots for steps.
pub(crate) fn introduction(name: &str, cpu_slots: u32) -> RegisterWorker {
    let machine = MachineFacts {
        host: name.to_owned(),
        os: std::env::consts::OS.to_owned(),
        processor: std::env::consts::ARCH.to_owned(),
        cores: 1,
        features: Vec::new(),
        memory_bytes: 1 << 30,
        last_level_cache_bytes: None,
        core: None,
        cpp_toolchain: None,
        cuda_toolchain: None,
        gpus: Vec::new(),
        sandbox: SandboxReport::default(),
    };
    let offers = Offers {
        targets: vec![Target::Cpu],
        cpu_slots,
        devices: Vec::new(),
        tools: BTreeSet::new(),
        labels: BTreeSet::new(),
        machine,
    };
    RegisterWorker { name: name.to_owned(), embedded: false, offers, version: env!("CARGO_PKG_VERSION").to_owned() }
}

/// Agents that add one.
#[derive(Debug)]
pub(crate) struct AddOne;

#[async_trait]
impl AgentExecutor for AddOne {
    async fn carry_out(&self, _: &dyn AgentPorts, step: AgentStep<'_>) -> Result<StepOutput, StepFailure> {
        trivial::carry_out(step.input)
    }
}

/// A worker's work: the same.
impl Work for AddOne {
    fn carry_out(&self, step: &LeasedStep, _: &CancelFlag) -> Result<StepOutput, StepFailure> {
        trivial::carry_out(&step.input)
    }
}
