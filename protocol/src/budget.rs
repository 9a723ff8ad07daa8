//! What a campaign may use up, and what it has.

use serde::{Deserialize, Serialize};

/// Something that is reserved before it is used and settled afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// Price of model calls, in millionths of a US dollar.
    CostMicrousd,
    /// Tokens of model calls, in and out.
    Tokens,
    /// Time on devices, in milliseconds.
    DeviceMs,
    /// Attempts: programs that the Coder is asked for.
    Attempts,
    /// Time since the campaign began, in milliseconds. Never reserved: no step begins after it.
    WallMs,
}

impl Resource {
    /// Every resource.
    pub const ALL: [Self; 5] = [Self::CostMicrousd, Self::Tokens, Self::DeviceMs, Self::Attempts, Self::WallMs];

    /// The stored and printed name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CostMicrousd => "cost_microusd",
            Self::Tokens => "tokens",
            Self::DeviceMs => "device_ms",
            Self::Attempts => "attempts",
            Self::WallMs => "wall_ms",
        }
    }

    /// The resource of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|resource| resource.as_str() == text)
    }
}

/// An amount of a resource, in its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Amount {
    /// Of what.
    pub resource: Resource,
    /// How much.
    pub amount: u64,
}

/// Caps of a campaign; none is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct BudgetCaps {
    /// See [`Resource::CostMicrousd`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_microusd: Option<u64>,
    /// See [`Resource::Tokens`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// See [`Resource::DeviceMs`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_ms: Option<u64>,
    /// See [`Resource::Attempts`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u64>,
    /// See [`Resource::WallMs`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_ms: Option<u64>,
}

impl BudgetCaps {
    /// The cap of one resource.
    #[must_use]
    pub fn of(&self, resource: Resource) -> Option<u64> {
        match resource {
            Resource::CostMicrousd => self.cost_microusd,
            Resource::Tokens => self.tokens,
            Resource::DeviceMs => self.device_ms,
            Resource::Attempts => self.attempts,
            Resource::WallMs => self.wall_ms,
        }
    }
}

/// Where one resource of a campaign stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BudgetLine {
    /// Of what.
    pub resource: Resource,
    /// At most; none is unlimited.
    pub cap: Option<u64>,
    /// Used up.
    pub used: u64,
    /// Set aside for what is being done.
    pub reserved: u64,
}

impl BudgetLine {
    /// Whether `amount` can be set aside now.
    #[must_use]
    pub fn fits(&self, amount: u64) -> bool {
        let wanted = self.used.saturating_add(self.reserved).saturating_add(amount);
        self.cap.is_none_or(|cap| wanted <= cap)
    }

    /// Whether `amount` can never be set aside under this cap, whatever is given back.
    #[must_use]
    pub fn is_exhausted_for(&self, amount: u64) -> bool {
        self.cap.is_some_and(|cap| self.used.saturating_add(amount) > cap)
    }
}
