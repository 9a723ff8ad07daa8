//! Tools that the Coder can use in an agent session.

use serde::{Deserialize, Serialize};

/// A tool of an agent session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum AgentTool {
    /// Compile a program.
    Build,
    /// Compile it and check its results.
    Check,
    /// Compile, check and time it.
    Measure,
    /// Compile, check, time and profile it.
    Profile,
    /// Take it through the whole ladder as an attempt.
    Submit,
    /// Have the Verifier diagnose a submitted attempt.
    Diagnose,
    /// Show the program and the result of an earlier attempt or turn.
    Read,
    /// End the session.
    Finish,
}

impl AgentTool {
    /// Every tool.
    pub const ALL: [Self; 8] = [
        Self::Build,
        Self::Check,
        Self::Measure,
        Self::Profile,
        Self::Submit,
        Self::Diagnose,
        Self::Read,
        Self::Finish,
    ];

    /// The tool of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.as_str() == text)
    }

    /// The stored and printed name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Build => "build",
            Self::Check => "check",
            Self::Measure => "measure",
            Self::Profile => "profile",
            Self::Submit => "submit",
            Self::Diagnose => "diagnose",
            Self::Read => "read",
            Self::Finish => "finish",
        }
    }

    /// Returns whether the tool takes a program.
    #[must_use]
    pub fn takes_program(self) -> bool {
        matches!(self, Self::Build | Self::Check | Self::Measure | Self::Profile | Self::Submit)
    }
}
