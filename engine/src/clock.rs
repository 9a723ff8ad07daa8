//! Time and randomness, injected.

use nightshift_protocol::time::TimestampMs;

/// The server's clock.
pub trait Clock: Send + Sync {
    /// Now.
    fn now(&self) -> TimestampMs;
}

/// Randomness: ids and jitter. Nothing that a strategy sees.
pub trait Random: Send + Sync {
    /// A UUID of version 7 as its 128 bits.
    fn uuid(&self) -> u128;

    /// A number in `[0, 1)`.
    fn unit(&self) -> f64;
}
