//! Time as it is stored and sent: milliseconds since the Unix epoch, from the server's clock.

use serde::{Deserialize, Serialize};

/// Milliseconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct TimestampMs(pub i64);

impl TimestampMs {
    /// The moment `duration_ms` later; saturates.
    #[must_use]
    pub fn plus_ms(self, duration_ms: u64) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration_ms).unwrap_or(i64::MAX)))
    }

    /// The moment `duration_ms` earlier; saturates.
    #[must_use]
    pub fn minus_ms(self, duration_ms: u64) -> Self {
        Self(self.0.saturating_sub(i64::try_from(duration_ms).unwrap_or(i64::MAX)))
    }

    /// Milliseconds from `earlier` to this moment; zero when `earlier` is later.
    #[must_use]
    pub fn since_ms(self, earlier: Self) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0)
    }
}
