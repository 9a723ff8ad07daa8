//! Injected sources of time and randomness.

use nightshift_protocol::time::TimestampMs;

/// The server's clock.
pub trait Clock: Send + Sync {
    /// Returns the current time.
    fn now(&self) -> TimestampMs;
}

/// Randomness for ids and jitter. Strategies never see it.
pub trait Random: Send + Sync {
    /// Returns a UUID of version 7 as its 128 bits.
    fn uuid(&self) -> u128;

    /// Returns a number in `[0, 1)`.
    fn unit(&self) -> f64;
}
