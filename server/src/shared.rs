//! The state that every area uses: the database, time, ids, the configuration and the end of the server.

use std::sync::Arc;

use nightshift_engine::clock::Random;
use nightshift_engine::store::Store;
use nightshift_protocol::time::TimestampMs;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::clock::SharedClock;
use crate::config::{ServerConfig, ViewFn};
use crate::error_log_throttle::ErrorLogThrottle;
use crate::store_health::StoreHealth;

/// The state that every area uses.
pub(crate) struct Shared {
    pub(crate) config: ServerConfig,
    pub(crate) store: Store,
    pub(crate) store_health: StoreHealth,
    pub(crate) error_log: ErrorLogThrottle,
    /// Reads the view of a run from its state.
    pub(crate) view: ViewFn,
    /// The format of these states that this server writes and reads.
    pub(crate) state_format: u32,
    pub(crate) clock: Arc<SharedClock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) shutdown: CancellationToken,
}

impl Shared {
    pub(crate) fn new_uuid(&self) -> Uuid {
        Uuid::from_u128(self.random.uuid())
    }

    /// Returns the expiry of a lease that is taken or extended at `at`.
    pub(crate) fn lease_end(&self, at: TimestampMs) -> TimestampMs {
        at.plus_ms(self.config.lease_ms)
    }
}
