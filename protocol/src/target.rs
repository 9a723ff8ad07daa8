//! The hardware that programs are written for.

use serde::{Deserialize, Serialize};

/// The hardware that a program is written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// The host processor, built by the system C++ compiler.
    Cpu,
    /// An NVIDIA GPU, built by nvcc.
    Cuda,
}

impl Target {
    /// Every target.
    pub const ALL: [Self; 2] = [Self::Cpu, Self::Cuda];

    /// `cpu` or `cuda`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
        }
    }
}
