//! A clock that a test moves.

use std::sync::{Arc, Mutex};

use nightshift_engine::clock::Clock;
use nightshift_protocol::time::TimestampMs;

/// A clock that a test moves.
pub(crate) struct ManualClock(Mutex<TimestampMs>);

impl ManualClock {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(TimestampMs(1_700_000_000_000))))
    }

    pub(crate) fn advance_ms(&self, ms: u64) {
        let mut now = self.0.lock().unwrap();
        *now = now.plus_ms(ms);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> TimestampMs {
        *self.0.lock().unwrap()
    }
}
