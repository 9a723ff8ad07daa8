//! The steps of an attempt, and what follows one.

use nightshift_protocol::step::StepKind;
use serde::{Deserialize, Serialize};

/// The step of an attempt that is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum AttemptStep {
    WriteCode,
    Build,
    Check,
    /// After a correct program that declares tunables, before anything else is done with it.
    Tune,
    /// After the first correct attempt of a subtask, on the `cuda` target.
    Sanitize,
    Measure,
    Confirm,
    /// Before a new best is published, on the `cuda` target.
    SanitizeBest,
    Profile,
    Diagnose,
    Judge,
}

impl AttemptStep {
    /// The last segment of the step's key.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Confirm => "confirm",
            Self::SanitizeBest => "sanitize_best",
            other => other.kind().as_str(),
        }
    }

    pub(super) fn kind(self) -> StepKind {
        match self {
            Self::WriteCode => StepKind::WriteCode,
            Self::Build => StepKind::Build,
            Self::Check => StepKind::Check,
            Self::Tune => StepKind::Tune,
            Self::Sanitize | Self::SanitizeBest => StepKind::Sanitize,
            Self::Measure | Self::Confirm => StepKind::Measure,
            Self::Profile => StepKind::Profile,
            Self::Diagnose => StepKind::Diagnose,
            Self::Judge => StepKind::Judge,
        }
    }
}

/// The consequence of a step of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterStep {
    /// The attempt's next step.
    Step(AttemptStep),
    /// The turn of an agent session has its result.
    TurnOver,
    /// The attempt is finished: route.
    Finished,
}
