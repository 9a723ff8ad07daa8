//! Configuration of a server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use nightshift_engine::clock::{Clock, Random};
use nightshift_engine::store::Store;
use nightshift_engine::workflow::{AnyWorkflow, StoredState, WorkflowError};
use nightshift_optimizer::strategy::ChangedAttempts;
use nightshift_protocol::api::RunView;
use nightshift_store::AttemptIndex;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use crate::agents::AgentExecutor;
use crate::clock::{OsRandom, SystemClock};
use crate::error::ServerError;
use crate::rate_limits::Rates;

/// Minimum duration of a lease: with a shorter one, a busy machine would lose its work.
pub(crate) const MIN_LEASE_MS: u64 = 200;
/// Maximum duration of a lease: the work of a lost machine waits this long.
pub(crate) const MAX_LEASE_MS: u64 = 600_000;
/// Minimum time between two heartbeats of the server, which are themselves a load.
pub(crate) const MIN_PULSE_MS: u64 = 50;
/// Maximum time between two heartbeats of the server. Runs of a dead server move after three of them.
pub(crate) const MAX_PULSE_MS: u64 = 60_000;
/// Number of heartbeats after which a server lease expires.
pub(crate) const HEARTBEATS_PER_LEASE: u64 = 3;
/// Duration of the server lease of a server that is alone with its database: ten years.
const SOLE_LEASE_MS: u64 = 10 * 365 * 24 * 60 * 60 * 1_000;
/// Default time between two heartbeats of the server, in milliseconds.
pub const DEFAULT_PULSE_MS: u64 = 2_000;
/// Minimum retention time of finished campaigns.
const MIN_RETENTION: Duration = Duration::from_hours(1);
/// Minimum and maximum time to answer a request.
const MIN_REQUEST_DEADLINE: Duration = Duration::from_secs(1);
const MAX_REQUEST_DEADLINE: Duration = Duration::from_hours(24 * 366);
/// Default time to answer a request.
pub const DEFAULT_REQUEST_DEADLINE: Duration = Duration::from_hours(24);
/// Minimum length of a configured token, which makes guessing infeasible.
const MIN_TOKEN_CHARS: usize = 12;
/// Maximum number of steps that the agents carry out at once.
pub(crate) const MAX_AGENT_SLOTS: usize = 1_024;

/// Configuration of a server.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Listening address; port 0 selects a free port.
    pub bind: SocketAddr,
    /// The operator's token, which permits everything.
    pub token: SecretString,
    /// The workers' token, which permits only registration, claims, heartbeats, reports and artifacts.
    pub worker_token: SecretString,
    /// Whether reading needs the operator's token too.
    pub reads_need_token: bool,
    /// Rate limits per caller.
    pub rates: Rates,
    /// Whether the background loops run. A command that only reads starts a server without them.
    pub drives: bool,
    /// Number of workers started in this process. Steps wait for them until as many have registered.
    pub own_workers: usize,
    /// Maximum number of agent steps carried out at once.
    pub agent_slots: usize,
    /// Duration of a lease without a heartbeat, in milliseconds.
    pub lease_ms: u64,
    /// Time between two heartbeats of a worker, in milliseconds.
    pub heartbeat_ms: u64,
    /// Time between two heartbeats of the server, in milliseconds. Each also finds work without a notice. After three
    /// missing heartbeats, other servers acquire its runs.
    pub pulse_ms: u64,
    /// Whether this process has locked an embedded database, so that no other server can be alive.
    pub sole: bool,
    /// Retention time of finished campaigns after the end of their last run. None keeps them forever.
    pub retention: Option<Duration>,
    /// Time for outside agents to answer a request.
    pub request_deadline: Duration,
    /// Endpoint for spans (OTLP over HTTP), for example `http://127.0.0.1:4318`. None creates no spans.
    pub otlp_endpoint: Option<String>,
    /// Name of the server in lists.
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
            return wrong("the time between two heartbeats of the server must be from 50 ms to 60000 ms");
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

    /// Returns the duration of a server lease without a heartbeat, in milliseconds.
    ///
    /// No other server can take over a locked database, so that lease survives a machine that sleeps. It ends with the
    /// next start.
    pub(crate) fn server_lease_ms(&self) -> u64 {
        if self.sole { SOLE_LEASE_MS } else { self.pulse_ms.saturating_mul(HEARTBEATS_PER_LEASE) }
    }

    /// Returns the duration for the monotonic clock.
    pub(crate) fn server_lease(&self) -> Duration {
        Duration::from_millis(self.server_lease_ms())
    }
}

/// Reads the view of a run from its state.
pub type ViewFn = fn(&Value) -> Result<RunView, WorkflowError>;

/// Reads the changed attempts of a run from the changed parts of its state. The number is that of its last attempt before.
pub type ChangesFn = fn(StoredState, u32) -> Result<Option<ChangedAttempts>, WorkflowError>;

/// The components of a server.
#[derive(Clone)]
pub struct Parts {
    /// The database.
    pub store: Store,
    /// Decides what runs do next.
    pub workflow: Arc<dyn AnyWorkflow>,
    /// Reads the states of the workflow.
    pub view: ViewFn,
    /// Reads changes of these states.
    pub changes: ChangesFn,
    /// Carries out the steps of agents.
    pub agents: Arc<dyn AgentExecutor>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Source of ids and jitter.
    pub random: Arc<dyn Random>,
    /// The index of attempts. Without it, there are no lists of attempts over all runs.
    pub attempts: Option<Arc<dyn AttemptIndex>>,
}

impl Parts {
    /// Creates the components of a real server, with the strategies, the machine's clock and randomness.
    pub fn new(store: Store, agents: Arc<dyn AgentExecutor>) -> Self {
        Self {
            store,
            workflow: Arc::new(nightshift_optimizer::strategy::StrategyWorkflow),
            view: nightshift_optimizer::strategy::view,
            changes: nightshift_optimizer::strategy::changed_attempts,
            agents,
            clock: Arc::new(SystemClock),
            random: Arc::new(OsRandom),
            attempts: None,
        }
    }

    /// Adds an index of attempts on the same database.
    #[must_use]
    pub fn with_attempts(self, attempts: Arc<dyn AttemptIndex>) -> Self {
        Self { attempts: Some(attempts), ..self }
    }
}
