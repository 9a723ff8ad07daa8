//! The state of a server, composed of the states of its areas.

use std::sync::Arc;

use axum::extract::FromRef;
use nightshift_engine::driver::Driver;
use nightshift_protocol::trace::SpanSink;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::access::Access;
use crate::agents::AgentExecutor;
use crate::attempt_index::{Index, Indexer};
use crate::call_limits::CallLimits;
use crate::campaign_list::Campaigns;
use crate::clock::SharedClock;
use crate::config::{Parts, ServerConfig};
use crate::dispatch::Dispatch;
use crate::driving::Driving;
use crate::error_log_throttle::ErrorLogThrottle;
use crate::live::Live;
use crate::shared::Shared;
use crate::store_health::StoreHealth;
use crate::telemetry::{Metrics, Observer, SpanExporter, Telemetry};

/// The state of a server. A handler takes the areas that it needs.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) shared: Arc<Shared>,
    pub(crate) access: Arc<Access>,
    pub(crate) limits: Arc<CallLimits>,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) dispatch: Arc<Dispatch>,
    pub(crate) driving: Arc<Driving>,
    pub(crate) agents: Arc<dyn AgentExecutor>,
    pub(crate) live: Arc<Live>,
    pub(crate) index: Arc<Index>,
    pub(crate) campaigns: Arc<Campaigns>,
}

impl App {
    pub(crate) fn new(config: ServerConfig, parts: Parts, address: String, spans: Option<SpanExporter>) -> Self {
        let Parts { store, workflow, view, changes, agents, clock, random, attempts } = parts;
        let metrics = Arc::new(Metrics::new());
        let sink = spans.clone().map(|spans| Arc::new(spans) as Arc<dyn SpanSink>);
        let shared = Arc::new(Shared {
            config,
            store: Observer::observe(store, metrics.clone(), sink),
            store_health: StoreHealth::default(),
            error_log: ErrorLogThrottle::default(),
            view,
            state_format: workflow.state_format(),
            clock: Arc::new(SharedClock::new(clock)),
            random,
            shutdown: CancellationToken::new(),
        });
        let Shared { store, clock, random, .. } = &*shared;
        let driver = Driver::new(store.runs.clone(), store.changes.clone(), workflow, clock.clone(), random.clone());
        let indexer = attempts.map(|index| Indexer::new(store.clone(), index, view, changes));
        let access = Arc::new(Access::new(shared.clone()));
        let dispatch = Arc::new(Dispatch::new(shared.clone()));
        let index = Arc::new(Index::new(shared.clone(), indexer));
        Self {
            access,
            limits: Arc::default(),
            telemetry: Arc::new(Telemetry { metrics, spans, asked_at: Mutex::new(None) }),
            driving: Arc::new(Driving::new(shared.clone(), dispatch.clone(), driver, address)),
            dispatch,
            agents,
            live: Arc::new(Live::new(shared.new_uuid())),
            campaigns: Arc::new(Campaigns::new(shared.clone(), index.clone())),
            index,
            shared,
        }
    }
}

/// Lets handlers take these areas.
macro_rules! areas {
    ($($field:ident: $area:ty),* $(,)?) => {
        $(impl FromRef<App> for Arc<$area> {
            fn from_ref(app: &App) -> Self {
                app.$field.clone()
            }
        })*
    };
}

areas! {
    shared: Shared,
    access: Access,
    limits: CallLimits,
    telemetry: Telemetry,
    dispatch: Dispatch,
    driving: Driving,
    agents: dyn AgentExecutor,
    live: Live,
    index: Index,
    campaigns: Campaigns,
}
