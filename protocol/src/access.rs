//! Who may do what over the API.

use serde::{Deserialize, Serialize};

use crate::id::TokenId;
use crate::time::TimestampMs;

/// What a token allows. `Viewer`, `Operator` and `Admin` include each other in this order; `Worker` stands apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Reads.
    Viewer,
    /// Reads, creates campaigns and controls runs.
    Operator,
    /// Registers as a worker, claims, reports; nothing else.
    Worker,
    /// Everything, tokens and retention too.
    Admin,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 4] = [Self::Viewer, Self::Operator, Self::Worker, Self::Admin];

    /// The stored and printed name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Worker => "worker",
            Self::Admin => "admin",
        }
    }

    /// The role of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == text)
    }

    /// Whether this role may do what `needed` may.
    #[must_use]
    pub fn includes(self, needed: Self) -> bool {
        match needed {
            Self::Viewer => self != Self::Worker,
            Self::Operator => matches!(self, Self::Operator | Self::Admin),
            Self::Worker => matches!(self, Self::Worker | Self::Admin),
            Self::Admin => self == Self::Admin,
        }
    }
}

/// A token in a list. The secret is shown once, when it is created; only its hash is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokenView {
    /// Id.
    pub id: TokenId,
    /// Name for people; the log of a run names it as the actor.
    pub name: String,
    /// What it allows.
    pub role: Role,
    /// When it was created.
    pub created_at: TimestampMs,
    /// When it ends by itself.
    pub expires_at: Option<TimestampMs>,
    /// When it was revoked.
    pub revoked_at: Option<TimestampMs>,
    /// When it was last used, within a minute.
    pub last_used_at: Option<TimestampMs>,
}

/// `POST /tokens`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreateToken {
    /// Name for people.
    pub name: String,
    /// What it allows.
    pub role: Role,
    /// How long it is valid, in milliseconds; for good without it.
    #[serde(default)]
    pub valid_for_ms: Option<u64>,
}

/// Answer to `POST /tokens`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokenCreated {
    /// The token as lists show it.
    pub token: TokenView,
    /// The secret, shown this once.
    pub secret: String,
}

impl std::fmt::Debug for TokenCreated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenCreated").field("token", &self.token).finish_non_exhaustive()
    }
}
