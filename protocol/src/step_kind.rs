//! The kinds of steps.

use serde::{Deserialize, Serialize};

use crate::machine::{DeviceUse, Executor, Needs};
use crate::target::Target;

/// The kinds of steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// Build the reference, examine the task, take the baseline.
    PrepareTask,
    /// Planner: make the plan.
    Plan,
    /// Planner: make it anew.
    Replan,
    /// Coder: write a program.
    WriteCode,
    /// Compile it.
    Build,
    /// Is it right?
    Check,
    /// Does it keep to its memory, and are its threads in order? On the `cuda` target only.
    Sanitize,
    /// Which values of its tunables make it fastest?
    Tune,
    /// How fast is it?
    Measure,
    /// Why is it so fast?
    Profile,
    /// Verifier: what limits it, and where to go?
    Diagnose,
    /// Verifier: rubric and reward.
    Judge,
}

impl StepKind {
    /// Every kind.
    pub const ALL: [Self; 12] = [
        Self::PrepareTask,
        Self::Plan,
        Self::Replan,
        Self::WriteCode,
        Self::Build,
        Self::Check,
        Self::Sanitize,
        Self::Tune,
        Self::Measure,
        Self::Profile,
        Self::Diagnose,
        Self::Judge,
    ];

    /// The stored and printed name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PrepareTask => "prepare_task",
            Self::Plan => "plan",
            Self::Replan => "replan",
            Self::WriteCode => "write_code",
            Self::Build => "build",
            Self::Check => "check",
            Self::Sanitize => "sanitize",
            Self::Tune => "tune",
            Self::Measure => "measure",
            Self::Profile => "profile",
            Self::Diagnose => "diagnose",
            Self::Judge => "judge",
        }
    }

    /// The kind of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }

    /// Who carries it out.
    #[must_use]
    pub fn executor(self) -> Executor {
        match self {
            Self::Plan | Self::Replan | Self::WriteCode | Self::Diagnose | Self::Judge => Executor::Agent,
            Self::PrepareTask
            | Self::Build
            | Self::Check
            | Self::Sanitize
            | Self::Tune
            | Self::Measure
            | Self::Profile => Executor::Worker,
        }
    }

    /// What it needs on this target. A machine offers the target only with its compiler, so that nothing is said of that
    /// here. Sanitizer and profilers are never needed: where one is missing, the report says so.
    #[must_use]
    pub fn needs(self, target: Target) -> Needs {
        match self {
            Self::Plan | Self::Replan | Self::WriteCode | Self::Diagnose | Self::Judge => Needs::agent(),
            Self::Build => Needs::worker(target, DeviceUse::None),
            Self::Check | Self::Sanitize => Needs::worker(target, DeviceUse::Shared),
            // Contexts and inputs are made ready beside others; while times are taken, the worker keeps all of its other
            // steps off the GPU.
            Self::PrepareTask | Self::Tune | Self::Measure | Self::Profile if target == Target::Cuda => {
                Needs::worker(target, DeviceUse::Shared)
            }
            Self::PrepareTask | Self::Tune | Self::Measure | Self::Profile => {
                Needs::worker(target, DeviceUse::Exclusive)
            }
        }
    }
}
