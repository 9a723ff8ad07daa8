//! The outcome of an attempt, in one word.

use serde::{Deserialize, Serialize};

use crate::verdict::ProcessEnd;

/// The final outcome of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum AttemptOutcome {
    /// Still in the works.
    Pending,
    /// The reply held no usable code.
    NoCode,
    /// The rules were broken.
    NotCompliant,
    /// It did not compile.
    CompileFailed,
    /// It crashed.
    Crashed,
    /// It hung.
    TimedOut,
    /// It ate memory.
    MemoryExceeded,
    /// Other failures at run time.
    RuntimeFailed,
    /// Wrong results.
    Incorrect,
    /// Right, and not faster than the baseline.
    CorrectNotFaster,
    /// Right and faster than the baseline.
    CorrectFaster,
}

impl AttemptOutcome {
    /// Every outcome.
    pub const ALL: [Self; 11] = [
        Self::Pending,
        Self::NoCode,
        Self::NotCompliant,
        Self::CompileFailed,
        Self::Crashed,
        Self::TimedOut,
        Self::MemoryExceeded,
        Self::RuntimeFailed,
        Self::Incorrect,
        Self::CorrectNotFaster,
        Self::CorrectFaster,
    ];

    /// The outcome of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.as_str() == text)
    }

    /// The stored and printed name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::NoCode => "no_code",
            Self::NotCompliant => "not_compliant",
            Self::CompileFailed => "compile_failed",
            Self::Crashed => "crashed",
            Self::TimedOut => "timed_out",
            Self::MemoryExceeded => "memory_exceeded",
            Self::RuntimeFailed => "runtime_failed",
            Self::Incorrect => "incorrect",
            Self::CorrectNotFaster => "correct_not_faster",
            Self::CorrectFaster => "correct_faster",
        }
    }

    /// Returns the outcome of a program whose process ends like this before its work is done.
    #[must_use]
    pub fn of_end(end: &ProcessEnd) -> Self {
        match end {
            ProcessEnd::Crashed { .. } => Self::Crashed,
            ProcessEnd::TimedOut { .. } => Self::TimedOut,
            ProcessEnd::MemoryExceeded { .. } => Self::MemoryExceeded,
            ProcessEnd::Finished
            | ProcessEnd::Exited { .. }
            | ProcessEnd::OutputExceeded { .. }
            | ProcessEnd::ProtocolBroken { .. }
            | ProcessEnd::LoadFailed { .. }
            | ProcessEnd::CallFailed { .. }
            | ProcessEnd::DeviceFault { .. } => Self::RuntimeFailed,
        }
    }

    /// Whether the candidate gave right results.
    #[must_use]
    pub fn is_correct(self) -> bool {
        matches!(self, Self::CorrectNotFaster | Self::CorrectFaster)
    }
}
