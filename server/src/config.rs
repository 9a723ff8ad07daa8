//! What a server is started with.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use nightshift_engine::clock::{Clock, Random};
use nightshift_engine::store::Store;
use nightshift_engine::workflow::{AnyWorkflow, WorkflowError};
use nightshift_protocol::api::RunView;
use nightshift_store::AttemptIndex;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use crate::access::Rates;
use crate::agents::AgentExecutor;
use crate::clock::{OsRandom, SystemClock};
use crate::error::ServerError;

/// Shortest lease: below this, a busy machine loses its work for nothing.
pub(crate) const MIN_LEASE_MS: u64 = 200;
/// Longest lease: this long the work of a lost machine lies idle.
pub(crate) const MAX_LEASE_MS: u64 = 600_000;
/// Shortest time between two pulses: below this, the pulse itself is a load.
pub(crate) const MIN_PULSE_MS: u64 = 50;
/// Longest time between two pulses: three of them go by before the runs of a dead server move.
pub(crate) const MAX_PULSE_MS: u64 = 60_000;
/// Pulses that may be missed: then the server's life is over.
pub(crate) const PULSES_OF_A_LIFE: u64 = 3;
/// How long the life of a server lasts that is alone with its database: ten years.
const SOLE_LIFE_MS: u64 = 10 * 365 * 24 * 60 * 60 * 1_000;
/// Time between two pulses when nothing else is said, in milliseconds.
pub const DEFAULT_PULSE_MS: u64 = 2_000;
/// Shortest time for which finished campaigns are kept.
const MIN_RETENTION: Duration = Duration::from_hours(1);
/// Shortest and longest time to answer a request.
const MIN_REQUEST_DEADLINE: Duration = Duration::from_secs(1);
const MAX_REQUEST_DEADLINE: Duration = Duration::from_hours(24 * 366);
/// Time to answer a request by default.
pub const DEFAULT_REQUEST_DEADLINE: Duration = Duration::from_hours(24);
/// Shortest token that is configured: others can be guessed.
const MIN_TOKEN_CHARS: usize = 12;
/// Most steps that the agents carry out at once.
pub(crate) const MAX_AGENT_SLOTS: usize = 1_024;

/// Settings.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Where to listen; port 0 picks a free one.
    pub bind: SocketAddr,
    /// The operator's token: may do everything.
    pub token: SecretString,
    /// The workers' token: registration, claims, heartbeats, reports and artifacts, nothing else.
    pub worker_token: SecretString,
    /// Whether reading needs the operator's token too.
    pub reads_need_token: bool,
    /// How often one caller may call.
    pub rates: Rates,
    /// Whether the background loops run. A command that only reads starts a server without them.
    pub drives: bool,
    /// Workers that are started in this process: as long as not so many have registered, steps wait for them.
    pub own_workers: usize,
    /// Steps of agents that are carried out at once.
    pub agent_slots: usize,
    /// How long a lease lasts without a heartbeat, in milliseconds.
    pub lease_ms: u64,
    /// How often workers send a heartbeat, in milliseconds.
    pub heartbeat_ms: u64,
    /// How often the server tells the others that it lives and looks for work that nobody told it about, in
    /// milliseconds. After three pulses without a sign its runs belong to whoever takes them.
    pub pulse_ms: u64,
    /// Whether the database is embedded in this process, which has locked it: no other server can be alive.
    pub sole: bool,
    /// How long finished campaigns are kept after their last run ended; for good without it.
    pub retention: Option<Duration>,
    /// How long outside agents have time to answer a request.
    pub request_deadline: Duration,
    /// Where spans are sent (OTLP over HTTP), for example `http://127.0.0.1:4318`; without it, none are made.
    pub otlp_endpoint: Option<String>,
    /// Name of the server for people, in lists.
    pub name: String,
    /// Version of the server.
    pub version: String,
}

impl ServerConfig {
    pub(crate) fn check(&self) -> Result<(), ServerError> {
        let wrong = |message: &str| Err(ServerError::Config(message.to_owned()));
        if [&self.token, &self.worker_token].iter().any(|token| token.expose_secret().len() < MIN_TOKEN_CHARS) {
            return wrong("the operator's token and the workers' token must have at least 12 characters");
        }
        if self.token.expose_secret() == self.worker_token.expose_secret() {
            return wrong("the operator's token and the workers' token must differ: workers run untrusted programs");
        }
        if !(MIN_LEASE_MS..=MAX_LEASE_MS).contains(&self.lease_ms) {
            return wrong("a lease must last between 200 ms and 600000 ms");
        }
        if self.heartbeat_ms == 0 || self.heartbeat_ms.saturating_mul(2) > self.lease_ms {
            return wrong("the heartbeat must come at least twice within a lease");
        }
        if !(MIN_PULSE_MS..=MAX_PULSE_MS).contains(&self.pulse_ms) {
            return wrong("the server's pulse must come every 50 ms to 60000 ms");
        }
        if self.agent_slots > MAX_AGENT_SLOTS {
            return wrong("at most 1024 steps of agents can be carried out at once");
        }
        if !(MIN_REQUEST_DEADLINE..=MAX_REQUEST_DEADLINE).contains(&self.request_deadline) {
            return wrong("outside agents must have between a second and 366 days to answer a request");
        }
        if self.retention.is_some_and(|keep_for| keep_for < MIN_RETENTION) {
            return wrong("finished campaigns must be kept for an hour at least");
        }
        Ok(())
    }

    pub(crate) fn pulse(&self) -> Duration {
        Duration::from_millis(self.pulse_ms)
    }

    /// How long a life lasts without a pulse, in milliseconds. Nobody can take over from a server whose database is
    /// locked by it: its life outlasts a machine that sleeps, and ends with the next one's start.
    pub(crate) fn life_ms(&self) -> u64 {
        if self.sole { SOLE_LIFE_MS } else { self.pulse_ms.saturating_mul(PULSES_OF_A_LIFE) }
    }

    /// The same, for the monotonic clock.
    pub(crate) fn life(&self) -> Duration {
        Duration::from_millis(self.life_ms())
    }
}

/// Reads what is known about a run from its state.
pub type ViewFn = fn(&Value) -> Result<RunView, WorkflowError>;

/// What a server is made of.
#[derive(Clone)]
pub struct Parts {
    /// The database.
    pub store: Arc<dyn Store>,
    /// What runs do next.
    pub workflow: Arc<dyn AnyWorkflow>,
    /// Reads the states that the workflow writes.
    pub view: ViewFn,
    /// Who carries out the steps of agents.
    pub agents: Arc<dyn AgentExecutor>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Ids and jitter.
    pub random: Arc<dyn Random>,
    /// The index of attempts; without it, nothing lists attempts over all runs.
    pub attempts: Option<Arc<dyn AttemptIndex>>,
}

impl Parts {
    /// The parts of a real server: the strategies, the machine's clock and randomness.
    pub fn new(store: Arc<dyn Store>, agents: Arc<dyn AgentExecutor>) -> Self {
        Self {
            store,
            workflow: Arc::new(nightshift_optimizer::strategy::StrategyWorkflow),
            view: nightshift_optimizer::strategy::view,
            agents,
            clock: Arc::new(SystemClock),
            random: Arc::new(OsRandom),
            attempts: None,
        }
    }

    /// The same, with an index of attempts on the same database.
    #[must_use]
    pub fn with_attempts(self, attempts: Arc<dyn AttemptIndex>) -> Self {
        Self { attempts: Some(attempts), ..self }
    }
}
