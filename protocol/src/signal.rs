//! What people tell a run while it goes on.

use serde::{Deserialize, Serialize};

/// Longest hint, in characters.
pub const MAX_HINT_CHARS: usize = 4_000;

/// A moment at which a run can be made to wait for a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Gate {
    /// After a plan was made, before the first program is written from it.
    Plan,
    /// After a new best was confirmed, before the run goes on from it.
    NewBest,
}

impl Gate {
    /// Every gate.
    pub const ALL: [Self; 2] = [Self::Plan, Self::NewBest];

    /// The stored and printed name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::NewBest => "new_best",
        }
    }

    /// The gate of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|gate| gate.as_str() == text)
    }
}

/// A signal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "signal", rename_all = "snake_case")]
pub enum Signal {
    /// Advice for the agents; they read it with their next prompts.
    Hint {
        /// The advice.
        text: String,
    },
    /// The run may pass the gate that it waits at.
    Approved {
        /// Which.
        gate: Gate,
    },
    /// The run may not pass: it plans anew, with the reason as a hint.
    Rejected {
        /// Which.
        gate: Gate,
        /// Why.
        reason: String,
    },
}
