//! What limits the speed of a program.

use serde::{Deserialize, Serialize};

/// The resource that limits a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Moving data.
    Memory,
    /// Arithmetic.
    Compute,
    /// Waiting for single operations.
    Latency,
    /// Starting kernels.
    Launch,
    /// Work of the host.
    Host,
}

impl Bound {
    /// Every bound.
    pub const ALL: [Self; 5] = [Self::Memory, Self::Compute, Self::Latency, Self::Launch, Self::Host];

    /// The bound of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|bound| bound.as_str() == text)
    }

    /// The stored and printed name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Compute => "compute",
            Self::Latency => "latency",
            Self::Launch => "launch",
            Self::Host => "host",
        }
    }
}
