//! The baseline over which a search has a target.

use serde::{Deserialize, Serialize};

/// The baseline that the target of a search is meant over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum TargetBaseline {
    /// The fastest way to run the reference.
    #[default]
    Fastest,
    /// The reference as it is given.
    Reference,
}

impl TargetBaseline {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Fastest, Self::Reference];

    /// The name in files and options.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fastest => "fastest",
            Self::Reference => "reference",
        }
    }
}
