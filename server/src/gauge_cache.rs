//! The age of the metrics that the store is asked for.

use tokio::sync::Mutex;
use tokio::time::Instant;

/// Time of the last query to the store.
#[derive(Debug, Default)]
pub(crate) struct GaugeCache(pub(crate) Mutex<Option<Instant>>);
