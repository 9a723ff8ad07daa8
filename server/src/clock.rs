//! The real clock and randomness behind the engine's ports.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nightshift_engine::clock::{Clock, Random};
use nightshift_engine::store::{Database, StoreError};
use nightshift_protocol::time::TimestampMs;
use tokio::time::Instant;

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> TimestampMs {
        #[expect(clippy::disallowed_methods, reason = "this is the clock that all other code receives")]
        let now = SystemTime::now();
        let since_epoch_ms = now.duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_millis());
        TimestampMs(i64::try_from(since_epoch_ms).unwrap_or(i64::MAX))
    }
}

/// Maximum duration of a reading of the database's clock. The error of a reading is up to half of its duration.
const SLOWEST_READING: Duration = Duration::from_secs(1);

/// The clock of a shared database, so that all servers agree on expired leases and dead servers.
///
/// Between two readings the monotonic clock advances it. Before the first reading, and for a database without a clock
/// of its own, it is the machine's clock.
pub(crate) struct SharedClock {
    machine: Arc<dyn Clock>,
    reading: RwLock<Option<(TimestampMs, Instant)>>,
}

impl SharedClock {
    pub(crate) fn new(machine: Arc<dyn Clock>) -> Self {
        Self { machine, reading: RwLock::default() }
    }

    /// Reads the clock of the database, if it has one.
    pub(crate) async fn synchronize(&self, database: &dyn Database) -> Result<(), StoreError> {
        let sent = Instant::now();
        if let Some(at) = database.database_now().await? {
            self.set(at, sent, Instant::now());
        }
        Ok(())
    }

    /// Sets the clock: the database returned `at` at a moment between `sent` and `answered`.
    pub(crate) fn set(&self, at: TimestampMs, sent: Instant, answered: Instant) {
        let took = answered.duration_since(sent);
        let mut reading = self.reading.write().unwrap_or_else(PoisonError::into_inner);
        if reading.is_none() || took <= SLOWEST_READING {
            *reading = Some((at, sent + took / 2));
        }
    }

    /// Returns the current time.
    pub(crate) fn now(&self) -> TimestampMs {
        match *self.reading.read().unwrap_or_else(PoisonError::into_inner) {
            None => self.machine.now(),
            Some((at, since)) => at.plus_ms(u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)),
        }
    }
}

impl Clock for SharedClock {
    fn now(&self) -> TimestampMs {
        Self::now(self)
    }
}

/// Randomness of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct OsRandom;

impl Random for OsRandom {
    fn uuid(&self) -> u128 {
        uuid::Uuid::now_v7().as_u128()
    }

    fn unit(&self) -> f64 {
        rand::random::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_ordered_by_the_moment_they_were_made() {
        let ids: Vec<u128> = (0..1_000).map(|_| OsRandom.uuid()).collect();
        assert!(ids.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn a_unit_is_below_one() {
        assert!((0..1_000).map(|_| OsRandom.unit()).all(|unit| (0.0..1.0).contains(&unit)));
    }

    #[tokio::test(start_paused = true)]
    async fn the_clock_of_the_database_goes_before_that_of_the_machine() {
        let clock = SharedClock::new(Arc::new(SystemClock));
        assert!(clock.now() > TimestampMs(1_577_836_800_000), "nothing was read yet");
        let sent = Instant::now();
        tokio::time::advance(Duration::from_millis(200)).await;
        clock.set(TimestampMs(5_000), sent, Instant::now());
        assert_eq!(clock.now(), TimestampMs(5_100), "it was read in the middle of the call");
        tokio::time::advance(Duration::from_millis(900)).await;
        assert_eq!(clock.now(), TimestampMs(6_000));
        // A slow answer is imprecise.
        let sent = Instant::now();
        tokio::time::advance(Duration::from_secs(2)).await;
        clock.set(TimestampMs(70_000), sent, Instant::now());
        assert_eq!(clock.now(), TimestampMs(8_000));
    }

    #[test]
    fn the_clock_is_past_the_year_2020() {
        assert!(SystemClock.now() > TimestampMs(1_577_836_800_000));
    }
}
