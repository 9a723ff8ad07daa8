//! What a step is given and what it gives back.
#![cfg_attr(
    feature = "openapi",
    expect(clippy::large_stack_arrays, reason = "the description of a large type is made by a derive")
)]

mod failure;

use serde::{Deserialize, Serialize};

pub use self::failure::{FailureClass, StepFailure};
use crate::artifact::ArtifactHash;
use crate::attempt::{Attempt, Diagnosis, TurnReply};
use crate::attempt_memory::{AttemptMemory, Correction};
use crate::bound::Bound;
pub use crate::code_request::CodeRequest;
use crate::measurement::{Interval, Measurement};
use crate::model_call::ModelCallSummary;
use crate::plan::{Plan, PlanVersion};
pub use crate::prepared::PreparedTask;
use crate::profile::Profile;
use crate::profile::{SanitizeReport, SanitizerTool};
use crate::reports::{BuildReport, CheckReport};
use crate::rubric::{RewardBreakdown, Rubric};
pub use crate::step_kind::StepKind;
use crate::tunable::Tunable;
use crate::tune::{TuneBudget, TuneReport, TunedProgram};
use crate::verdict::{Finding, ProcessEnd};

/// What a step is given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum StepInput {
    /// See [`StepKind::PrepareTask`].
    PrepareTask {
        /// The task.
        task: ArtifactHash,
    },
    /// See [`StepKind::Plan`].
    Plan {
        /// The task.
        task: ArtifactHash,
        /// The prepared reference.
        prepared: Box<PreparedTask>,
        /// What people advised, newest first, bounded.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        hints: Vec<String>,
    },
    /// See [`StepKind::Replan`].
    Replan {
        /// The task.
        task: ArtifactHash,
        /// The prepared reference.
        prepared: Box<PreparedTask>,
        /// The plan that is given up.
        previous: Box<PlanVersion>,
        /// Why.
        reason: String,
        /// The best attempt so far.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        best: Option<Box<Attempt>>,
        /// Earlier attempts in one line each, oldest first, bounded.
        history: Vec<String>,
        /// What they have shown, bounded.
        #[serde(default, skip_serializing_if = "AttemptMemory::is_empty")]
        memory: AttemptMemory,
        /// What people advised, newest first, bounded.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        hints: Vec<String>,
    },
    /// See [`StepKind::WriteCode`].
    WriteCode {
        /// The task.
        task: ArtifactHash,
        /// The prepared reference.
        prepared: Box<PreparedTask>,
        /// What to write.
        request: Box<CodeRequest>,
    },
    /// See [`StepKind::Build`].
    Build {
        /// The task.
        task: ArtifactHash,
        /// The source.
        source: ArtifactHash,
        /// Refuse to run without a file and network sandbox: the author is a live model.
        sandbox_required: bool,
    },
    /// See [`StepKind::Check`].
    Check {
        /// The task.
        task: ArtifactHash,
        /// The candidate.
        library: ArtifactHash,
        /// The reference.
        reference_library: ArtifactHash,
        /// The truth.
        truth_library: ArtifactHash,
        /// Refuse to run without a file and network sandbox: the author is a live model.
        sandbox_required: bool,
    },
    /// See [`StepKind::Sanitize`].
    Sanitize {
        /// The task.
        task: ArtifactHash,
        /// The candidate.
        library: ArtifactHash,
        /// Its source.
        source: ArtifactHash,
        /// Also runs the check that only a new best gets: reads of uninitialized memory.
        thorough: bool,
        /// Checks that are not asked for: those that looked at this program already, and those that were given up in this
        /// run because they were too slow for a program.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        without: Vec<SanitizerTool>,
        /// For a program that uses shared memory, about how long a call takes at the default shape, in nanoseconds: races
        /// are not looked for where that would take too long.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        shared_memory_call_ns: Option<f64>,
        /// Refuse to run without a file and network sandbox: the author is a live model.
        sandbox_required: bool,
    },
    /// See [`StepKind::Tune`].
    Tune {
        /// The task.
        task: ArtifactHash,
        /// The candidate as it was written.
        source: ArtifactHash,
        /// The baseline.
        reference_library: ArtifactHash,
        /// The truth.
        truth_library: ArtifactHash,
        /// What the search may use up.
        budget: TuneBudget,
        /// Refuse to run without a file and network sandbox: the author is a live model.
        sandbox_required: bool,
    },
    /// See [`StepKind::Measure`].
    Measure {
        /// The task.
        task: ArtifactHash,
        /// The candidate.
        library: ArtifactHash,
        /// The baseline.
        reference_library: ArtifactHash,
        /// Whether it confirms a new best.
        confirms: bool,
        /// Refuse to run without a file and network sandbox: the author is a live model.
        sandbox_required: bool,
    },
    /// See [`StepKind::Profile`].
    Profile {
        /// The task.
        task: ArtifactHash,
        /// The candidate's build.
        build: Box<BuildReport>,
        /// Its measurement.
        measurement: Box<Measurement>,
        /// The candidate, for profilers that run it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        library: Option<ArtifactHash>,
        /// Its source, for profilers that point into it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source: Option<ArtifactHash>,
        /// Refuse to run without a file and network sandbox: the author is a live model.
        #[serde(default)]
        sandbox_required: bool,
    },
    /// See [`StepKind::Diagnose`].
    Diagnose {
        /// The task.
        task: ArtifactHash,
        /// The prepared reference.
        prepared: Box<PreparedTask>,
        /// The plan in force.
        plan: Box<PlanVersion>,
        /// The attempt.
        attempt: Box<Attempt>,
        /// Earlier attempts in one line each, oldest first, bounded.
        history: Vec<String>,
        /// What they have shown, bounded.
        #[serde(default, skip_serializing_if = "AttemptMemory::is_empty")]
        memory: AttemptMemory,
        /// What people advised, newest first, bounded.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        hints: Vec<String>,
    },
    /// See [`StepKind::Judge`].
    Judge {
        /// The task.
        task: ArtifactHash,
        /// The plan in force.
        plan: Box<PlanVersion>,
        /// The attempt.
        attempt: Box<Attempt>,
        /// The source of its parent.
        parent_source: Option<ArtifactHash>,
        /// What its author was asked for, when it was written from a diagnosis.
        modification: Option<String>,
        /// The speedup of its parent, when that was timed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent_speedup: Option<Interval>,
        /// What limited the program before, when that was diagnosed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent_bound: Option<Bound>,
    },
}

impl StepInput {
    /// The kind of step that takes this input.
    #[must_use]
    pub fn kind(&self) -> StepKind {
        match self {
            Self::PrepareTask { .. } => StepKind::PrepareTask,
            Self::Plan { .. } => StepKind::Plan,
            Self::Replan { .. } => StepKind::Replan,
            Self::WriteCode { .. } => StepKind::WriteCode,
            Self::Build { .. } => StepKind::Build,
            Self::Check { .. } => StepKind::Check,
            Self::Sanitize { .. } => StepKind::Sanitize,
            Self::Tune { .. } => StepKind::Tune,
            Self::Measure { .. } => StepKind::Measure,
            Self::Profile { .. } => StepKind::Profile,
            Self::Diagnose { .. } => StepKind::Diagnose,
            Self::Judge { .. } => StepKind::Judge,
        }
    }
}

/// What a step gives back. That a candidate is wrong is a result; a failure is something else ([`StepFailure`]).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum StepOutput {
    /// The task can be used.
    TaskPrepared {
        /// The prepared reference.
        prepared: Box<PreparedTask>,
    },
    /// The task cannot be used.
    TaskRejected {
        /// Stable code, for example `task.reference_does_not_compile`.
        code: String,
        /// What is wrong and what to do.
        message: String,
        /// The compiler's or the program's output.
        log: Option<ArtifactHash>,
    },
    /// A plan, first or anew.
    Planned {
        /// The plan.
        plan: Plan,
        /// The calls.
        calls: Vec<ModelCallSummary>,
    },
    /// A program.
    CodeWritten {
        /// The source.
        source: ArtifactHash,
        /// Findings of the screening.
        findings: Vec<Finding>,
        /// The constants that it declares as tunable.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tunables: Vec<Tunable>,
        /// The calls.
        calls: Vec<ModelCallSummary>,
    },
    /// The reply held no usable program, also after a repair turn.
    NoCode {
        /// Stable code: `reply.no_code`, `reply.several_blocks`, `reply.too_large`, `reply.bad_tunables`, `reply.refused`; of a
        /// fix turn also `model.script_ended`.
        code: String,
        /// What was wrong.
        message: String,
        /// The calls.
        calls: Vec<ModelCallSummary>,
    },
    /// A turn of an agent session.
    TurnTaken {
        /// What the Coder asks for.
        turn: Box<TurnReply>,
        /// The calls.
        calls: Vec<ModelCallSummary>,
    },
    /// It was compiled, or not.
    Built {
        /// The report.
        report: Box<BuildReport>,
    },
    /// It was checked.
    Checked {
        /// The report.
        report: Box<CheckReport>,
    },
    /// It was examined for errors of memory and for races.
    Sanitized {
        /// The report.
        report: Box<SanitizeReport>,
    },
    /// Its variants were built, compared and timed.
    Tuned {
        /// What was tried and what came of it.
        report: Box<TuneReport>,
        /// The program with the values that won; none when it stays as it was written.
        program: Option<Box<TunedProgram>>,
    },
    /// It was timed.
    Measured {
        /// The measurement.
        measurement: Box<Measurement>,
        /// Observations about compliance, for example outputs of timed calls that were wrong.
        findings: Vec<Finding>,
    },
    /// It did not survive the timing.
    MeasureFailed {
        /// How its process ended.
        end: ProcessEnd,
        /// Observations about compliance.
        findings: Vec<Finding>,
        /// The last lines that the program printed.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        printed: String,
    },
    /// It was profiled.
    Profiled {
        /// The profile.
        profile: Box<Profile>,
    },
    /// A diagnosis of a correct attempt, or advice on a failed one; neither when the Verifier's reply could not be used
    /// (rules decide then).
    Diagnosed {
        /// The diagnosis.
        diagnosis: Option<Diagnosis>,
        /// The advice on a failure.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        correction: Option<Correction>,
        /// Why there is none.
        unavailable: Option<String>,
        /// The calls.
        calls: Vec<ModelCallSummary>,
    },
    /// Rubric and reward.
    Judged {
        /// The rubric.
        rubric: Rubric,
        /// The reward.
        reward: RewardBreakdown,
        /// The calls.
        calls: Vec<ModelCallSummary>,
    },
}

impl StepOutput {
    /// The model calls that were made for it.
    #[must_use]
    pub fn calls(&self) -> &[ModelCallSummary] {
        match self {
            Self::Planned { calls, .. }
            | Self::CodeWritten { calls, .. }
            | Self::NoCode { calls, .. }
            | Self::TurnTaken { calls, .. }
            | Self::Diagnosed { calls, .. }
            | Self::Judged { calls, .. } => calls,
            Self::TaskPrepared { .. }
            | Self::TaskRejected { .. }
            | Self::Built { .. }
            | Self::Checked { .. }
            | Self::Sanitized { .. }
            | Self::Tuned { .. }
            | Self::Measured { .. }
            | Self::MeasureFailed { .. }
            | Self::Profiled { .. } => &[],
        }
    }
}
