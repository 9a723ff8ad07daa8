//! What this server tells about itself: numbers for Prometheus, and spans for OpenTelemetry.
//!
//! Both are taken where everything passes by: at the store ([`ObservedStore`]) and at the door ([`requests`]). Nothing
//! else has to know of them, and nothing waits for them.

mod exporter;
mod held;
mod metrics;
mod observe;
mod observed_store;
mod requests;
mod try_span;

pub(crate) use exporter::SpanExport;
pub use exporter::{MAX_QUEUED_SPANS, SpanExporter};
pub(crate) use metrics::{BudgetLabels, DeviceUseLabels, Metrics, RouteLabels, StatusLabels, TargetLabels, seconds};
pub(crate) use observed_store::ObservedStore;
pub(crate) use requests::observe_request;
