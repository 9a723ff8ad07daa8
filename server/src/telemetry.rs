//! Telemetry of this server: metrics for Prometheus, and spans for OpenTelemetry.
//!
//! Both are recorded at two central places: at the store ([`Observer`]) and at the HTTP layer (`api/observe_request.rs`). No
//! other code depends on them or waits for them.

mod exporter;
mod metrics;
mod observe;
mod observed_change;
mod observer;
mod running_tries;
mod try_span;

use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::time::Instant;

pub(crate) use exporter::SpanExport;
pub use exporter::{MAX_QUEUED_SPANS, SpanExporter};
pub(crate) use metrics::{
    BudgetLabels, DeviceLabels, DeviceUseLabels, Metrics, QuarantineLabels, RequestLabels, RouteLabels, StatusLabels,
    seconds,
};
pub(crate) use observer::Observer;

/// The state of telemetry.
pub(crate) struct Telemetry {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) spans: Option<SpanExporter>,
    /// Time of the last query of the metrics to the store.
    pub(crate) asked_at: Mutex<Option<Instant>>,
}
