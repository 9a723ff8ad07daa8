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

    /// Returns what is left under the cap, in words; none without a cap. Reserved amounts are not left.
    #[must_use]
    pub fn left(&self) -> Option<String> {
        let cap = self.cap?;
        let left = cap.saturating_sub(self.used).saturating_sub(self.reserved);
        let [whole_left, whole_cap] = [left, cap].map(|amount| amount / 1_000);
        let cents = |microusd: u64| {
            let cents = microusd / 10_000;
            format!("{}.{:02}", cents / 100, cents % 100)
        };
        Some(match self.resource {
            Resource::CostMicrousd => format!("{} of {} US dollars", cents(left), cents(cap)),
            Resource::Tokens => format!("{left} of {cap} tokens"),
            Resource::DeviceMs => format!("{whole_left} of {whole_cap} seconds of device time"),
            Resource::Attempts => format!("{left} of {cap} attempts of the campaign"),
            Resource::WallMs => format!("{whole_left} of {whole_cap} seconds until the campaign ends"),
        })
    }

    /// Whether `amount` can never be set aside under this cap, whatever is given back.
    #[must_use]
    pub fn is_exhausted_for(&self, amount: u64) -> bool {
        self.cap.is_some_and(|cap| self.used.saturating_add(amount) > cap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_told_only_of_limited_resources() {
        let line = |resource, cap| BudgetLine { resource, cap, used: 1_500_000, reserved: 250_000 };
        let left = |resource| line(resource, Some(2_000_000)).left();
        assert_eq!(left(Resource::CostMicrousd).as_deref(), Some("0.25 of 2.00 US dollars"));
        assert_eq!(left(Resource::Tokens).as_deref(), Some("250000 of 2000000 tokens"));
        assert_eq!(left(Resource::DeviceMs).as_deref(), Some("250 of 2000 seconds of device time"));
        assert_eq!(line(Resource::Tokens, None).left(), None);
        assert_eq!(line(Resource::Tokens, Some(1)).left().as_deref(), Some("0 of 1 tokens"));
    }
}
