//! Attempts to be begun, among them repairs of attempts that failed.

use nightshift_protocol::attempt::{Attempt, AttemptOutcome, Stage};
use nightshift_protocol::attempt_memory::Modification;

/// An attempt to be begun.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Opening {
    /// Its subtask of the plan in force.
    pub(super) subtask: u32,
    /// Why it is written.
    pub(super) stage: Stage,
    /// The attempt that it starts from.
    pub(super) parent: Option<u32>,
    /// The one change that is asked for.
    pub(super) modification: Option<Modification>,
}

/// Ways to fail that count as the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    NoCode,
    Compliance,
    Compile,
    Runtime,
    Incorrect,
}

impl Failure {
    pub(super) fn of(outcome: AttemptOutcome) -> Option<Self> {
        match outcome {
            AttemptOutcome::Pending | AttemptOutcome::CorrectFaster | AttemptOutcome::CorrectNotFaster => None,
            AttemptOutcome::NoCode => Some(Self::NoCode),
            AttemptOutcome::NotCompliant => Some(Self::Compliance),
            AttemptOutcome::CompileFailed => Some(Self::Compile),
            AttemptOutcome::Crashed
            | AttemptOutcome::TimedOut
            | AttemptOutcome::MemoryExceeded
            | AttemptOutcome::RuntimeFailed => Some(Self::Runtime),
            AttemptOutcome::Incorrect => Some(Self::Incorrect),
        }
    }

    pub(super) fn describe(self) -> &'static str {
        match self {
            Self::NoCode => "gave no program",
            Self::Compliance => "broke the rules",
            Self::Compile => "did not compile",
            Self::Runtime => "failed at run time",
            Self::Incorrect => "gave wrong results",
        }
    }

    /// The attempt that mends `last`. It goes on with the change that `last` was asked for.
    pub(super) fn repair(self, last: &Attempt) -> Opening {
        let (stage, parent) = match self {
            // There is nothing to mend: the same request once more.
            Self::NoCode => (last.stage, last.parent),
            Self::Compliance => (Stage::RepairCompliance, Some(last.number)),
            Self::Compile => (Stage::RepairCompile, Some(last.number)),
            Self::Runtime => (Stage::RepairRuntime, Some(last.number)),
            Self::Incorrect => (Stage::RepairCorrectness, Some(last.number)),
        };
        Opening { subtask: last.subtask, stage, parent, modification: last.modification.clone() }
    }
}
