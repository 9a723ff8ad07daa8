//! The real clock and the real randomness behind the engine's ports.

use std::time::{SystemTime, UNIX_EPOCH};

use nightshift_engine::clock::{Clock, Random};
use nightshift_protocol::time::TimestampMs;

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> TimestampMs {
        #[expect(clippy::disallowed_methods, reason = "this is the clock that everybody else is given")]
        let now = SystemTime::now();
        let since_epoch_ms = now.duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_millis());
        TimestampMs(i64::try_from(since_epoch_ms).unwrap_or(i64::MAX))
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

    #[test]
    fn the_clock_is_past_the_year_2020() {
        assert!(SystemClock.now() > TimestampMs(1_577_836_800_000));
    }
}
