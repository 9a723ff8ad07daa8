//! State shared by all request handlers and background loops.

use std::sync::Arc;

use nightshift_engine::clock::Random;
use nightshift_engine::driver::Driver;
use nightshift_engine::store::Store;
use nightshift_protocol::time::TimestampMs;
use nightshift_protocol::trace::SpanSink;
use nightshift_store::AttemptIndex;
use secrecy::SecretString;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::agents::AgentExecutor;
use crate::attempt_inbox::Inbox;
use crate::attempt_index::Indexer;
use crate::campaign_facts::CampaignFacts;
use crate::clock::SharedClock;
use crate::config::{Parts, ServerConfig, ViewFn};
use crate::dispatch::Dispatcher;
use crate::error_log_throttle::ErrorLogThrottle;
use crate::fences::Fences;
use crate::gauge_cache::GaugeCache;
use crate::keys::Keys;
use crate::leases::Leases;
use crate::live::Live;
use crate::rate_limits::RateLimits;
use crate::run_inputs::RunInputs;
use crate::secret::new_secret;
use crate::server_lease::ServerLease;
use crate::store_health::StoreHealth;
use crate::sweeper_schedule::SweeperSchedule;
use crate::telemetry::{Metrics, Observer, SpanExporter};
use crate::wake::Wake;
use crate::worker_registry::WorkerRegistry;

/// Maximum number of calls that wait for a run's log. A further call is answered at once.
const MAX_HELD_POLLS: usize = 1_024;
/// Maximum number of concurrent artifact transfers, which bounds their memory.
const MAX_TRANSFERS: usize = 8;
/// Maximum number of tables written at once; a further one waits.
const MAX_TABLES: usize = 4;

/// The shared state.
pub(crate) struct App {
    pub(crate) config: ServerConfig,
    /// Address of the listener, with the real port.
    pub(crate) address: String,
    pub(crate) keys: Keys,
    pub(crate) rate_limits: RateLimits,
    /// The token of the worker in this process.
    pub(crate) embedded_token: SecretString,
    pub(crate) store: Store,
    pub(crate) driver: Driver,
    /// The state format that this server writes and reads.
    pub(crate) state_format: u32,
    pub(crate) view: ViewFn,
    pub(crate) agents: Arc<dyn AgentExecutor>,
    pub(crate) clock: Arc<SharedClock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) spans: Option<SpanExporter>,
    pub(crate) gauges: GaugeCache,
    pub(crate) server_lease: ServerLease,
    pub(crate) live: Live,
    pub(crate) fences: Fences,
    pub(crate) leases: Leases,
    pub(crate) worker_registry: WorkerRegistry,
    pub(crate) inputs: RunInputs,
    pub(crate) dispatcher: Dispatcher,
    pub(crate) sweeper_schedule: SweeperSchedule,
    pub(crate) wake: Wake,
    pub(crate) store_health: StoreHealth,
    pub(crate) error_log: ErrorLogThrottle,
    /// Notified when a request may have been opened.
    pub(crate) requests: Notify,
    pub(crate) held_polls: Semaphore,
    pub(crate) transfers: Semaphore,
    pub(crate) tables: Arc<Semaphore>,
    pub(crate) shutdown: CancellationToken,
    pub(crate) attempts: Option<Arc<dyn AttemptIndex>>,
    /// Writes the index of attempts.
    pub(crate) indexer: Option<Indexer>,
    pub(crate) indexing: Inbox,
    pub(crate) campaigns: CampaignFacts,
}

impl App {
    pub(crate) fn new(config: ServerConfig, parts: Parts, address: String, spans: Option<SpanExporter>) -> Self {
        let metrics = Arc::new(Metrics::new());
        let sink = spans.clone().map(|spans| Arc::new(spans) as Arc<dyn SpanSink>);
        let store = Observer::observe(parts.store, metrics.clone(), sink);
        let embedded_token = SecretString::from(new_secret(&*parts.random));
        let clock = Arc::new(SharedClock::new(parts.clock));
        let state_format = parts.workflow.state_format();
        let driver =
            Driver::new(store.runs.clone(), store.changes.clone(), parts.workflow, clock.clone(), parts.random.clone());
        let index = parts.attempts.clone();
        let indexer = index.map(|index| Indexer::new(store.clone(), index, parts.view, parts.changes));
        Self {
            live: Live::new(Uuid::from_u128(parts.random.uuid())),
            keys: Keys::new(&config.token, &config.worker_token, &embedded_token),
            embedded_token,
            rate_limits: RateLimits::new(config.rates),
            config,
            address,
            store,
            driver,
            state_format,
            view: parts.view,
            agents: parts.agents,
            clock,
            random: parts.random,
            metrics,
            spans,
            gauges: GaugeCache::default(),
            server_lease: ServerLease::new(),
            fences: Fences::default(),
            leases: Leases::default(),
            worker_registry: WorkerRegistry::default(),
            inputs: RunInputs::default(),
            dispatcher: Dispatcher::default(),
            sweeper_schedule: SweeperSchedule::default(),
            wake: Wake::new(),
            store_health: StoreHealth::default(),
            error_log: ErrorLogThrottle::default(),
            requests: Notify::new(),
            held_polls: Semaphore::new(MAX_HELD_POLLS),
            transfers: Semaphore::new(MAX_TRANSFERS),
            tables: Arc::new(Semaphore::new(MAX_TABLES)),
            shutdown: CancellationToken::new(),
            indexer,
            attempts: parts.attempts,
            indexing: Inbox::default(),
            campaigns: CampaignFacts::default(),
        }
    }

    pub(crate) fn new_uuid(&self) -> Uuid {
        Uuid::from_u128(self.random.uuid())
    }

    /// Returns the expiry of a lease that is taken or extended at `at`.
    pub(crate) fn lease_end(&self, at: TimestampMs) -> TimestampMs {
        at.plus_ms(self.config.lease_ms)
    }
}
