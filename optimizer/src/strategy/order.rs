//! The step that a run waits for, with everything it is given.

use nightshift_engine::retry::RetryPolicy;
use nightshift_engine::workflow::{StepOrder, WorkflowError};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::{Attempt, Stage};
use nightshift_protocol::machine::Executor;
use nightshift_protocol::step::{CodeRequest, StepInput, StepKind};

use super::history;
use super::state::{AttemptStep, Phase, RunState, broken};

/// Two builds of the reference, its checks and its baseline.
const PREPARE_TASK_TIMEOUT_MS: u64 = 15 * 60_000;
/// A long answer of a slow model, with a repair turn.
const WRITING_TIMEOUT_MS: u64 = 30 * 60_000;
/// A short answer of a slow model, with a repair turn.
const JUDGING_TIMEOUT_MS: u64 = 15 * 60_000;
/// Above the longest compilation that a task may allow.
const BUILD_TIMEOUT_MS: u64 = 10 * 60_000;
/// Every shape and every drawing of inputs, for candidate, reference and truth.
const CHECK_TIMEOUT_MS: u64 = 15 * 60_000;
/// Interleaved samples until the interval is narrow enough.
const MEASURE_TIMEOUT_MS: u64 = 15 * 60_000;
/// Peaks of the machine and what the profilers add.
const PROFILE_TIMEOUT_MS: u64 = 10 * 60_000;

/// A provider may be away for an hour in the night; nothing is lost by waiting.
const AGENT_RETRY: RetryPolicy = RetryPolicy { max_tries: 40, first_delay_ms: 1_000, max_delay_ms: 120_000 };
/// Losing a machine counts as a try, and a fleet may lose many in a night. A wrong candidate is no failure.
const WORKER_RETRY: RetryPolicy = RetryPolicy { max_tries: 20, first_delay_ms: 250, max_delay_ms: 30_000 };

/// How long one try of a step may take, in milliseconds.
#[must_use]
pub fn timeout_ms(kind: StepKind) -> u64 {
    match kind {
        StepKind::PrepareTask => PREPARE_TASK_TIMEOUT_MS,
        StepKind::Plan | StepKind::Replan | StepKind::WriteCode => WRITING_TIMEOUT_MS,
        StepKind::Diagnose | StepKind::Judge => JUDGING_TIMEOUT_MS,
        StepKind::Build => BUILD_TIMEOUT_MS,
        StepKind::Check => CHECK_TIMEOUT_MS,
        StepKind::Measure => MEASURE_TIMEOUT_MS,
        StepKind::Profile => PROFILE_TIMEOUT_MS,
    }
}

/// How failures of a step are treated.
#[must_use]
pub fn retry_policy(kind: StepKind) -> RetryPolicy {
    match kind.executor() {
        Executor::Agent => AGENT_RETRY,
        Executor::Worker => WORKER_RETRY,
    }
}

/// The step that the run waits for; none when it ended.
pub(super) fn open_step(run: &RunState) -> Result<Option<StepOrder>, WorkflowError> {
    let Some(key) = run.open_key() else { return Ok(None) };
    let task = run.input.task.clone();
    let input = match &run.phase {
        Phase::Preparing => StepInput::PrepareTask { task },
        Phase::Planning => StepInput::Plan { task, prepared: Box::new(run.prepared()?.clone()) },
        Phase::Replanning { reason } => StepInput::Replan {
            task,
            prepared: Box::new(run.prepared()?.clone()),
            previous: Box::new(run.plan()?.clone()),
            reason: reason.clone(),
            history: history::lines(&run.attempts),
        },
        Phase::Attempting { step } => attempt_input(run, *step)?,
        Phase::Ended { .. } => return Ok(None),
    };
    let kind = input.kind();
    Ok(Some(StepOrder {
        key,
        kind: kind.as_str().to_owned(),
        needs: kind.needs(run.input.target),
        input: serde_json::to_value(&input)
            .map_err(|error| WorkflowError::Unreadable { what: "step input", message: error.to_string() })?,
        timeout_ms: timeout_ms(kind),
        retry: retry_policy(kind),
    }))
}

fn attempt_input(run: &RunState, step: AttemptStep) -> Result<StepInput, WorkflowError> {
    let task = run.input.task.clone();
    let sandbox_required = run.input.sandbox_required;
    let attempt = run.last_attempt()?;
    let parent = attempt.parent.and_then(|number| run.attempt(number));
    Ok(match step {
        AttemptStep::WriteCode => StepInput::WriteCode {
            task,
            prepared: Box::new(run.prepared()?.clone()),
            request: Box::new(CodeRequest {
                stage: attempt.stage,
                plan: run.plan()?.clone(),
                subtask: attempt.subtask,
                parent: parent.map(|parent| Box::new(parent.clone())),
                history: history::lines(earlier_than(run, attempt)),
            }),
        },
        AttemptStep::Build => StepInput::Build {
            task,
            source: attempt.source.clone().ok_or_else(|| broken("the attempt to be built has no source"))?,
            sandbox_required,
        },
        AttemptStep::Check => StepInput::Check {
            task,
            library: library(attempt)?,
            reference_library: run.prepared()?.reference_library.clone(),
            truth_library: run.prepared()?.truth_library.clone(),
            sandbox_required,
        },
        AttemptStep::Measure | AttemptStep::Confirm => StepInput::Measure {
            task,
            library: library(attempt)?,
            reference_library: run.prepared()?.reference_library.clone(),
            confirms: step == AttemptStep::Confirm,
            sandbox_required,
        },
        AttemptStep::Profile => StepInput::Profile {
            task,
            build: Box::new(attempt.build.clone().ok_or_else(|| broken("the attempt to be profiled is not built"))?),
            measurement: Box::new(
                attempt.published().cloned().ok_or_else(|| broken("the attempt to be profiled is not measured"))?,
            ),
        },
        AttemptStep::Diagnose => StepInput::Diagnose {
            task,
            prepared: Box::new(run.prepared()?.clone()),
            plan: Box::new(run.plan()?.clone()),
            attempt: Box::new(attempt.clone()),
            history: history::lines(earlier_than(run, attempt)),
        },
        AttemptStep::Judge => StepInput::Judge {
            task,
            plan: Box::new(run.plan()?.clone()),
            attempt: Box::new(attempt.clone()),
            parent_source: parent.and_then(|parent| parent.source.clone()),
            modification: asked_modification(attempt, parent),
            parent_speedup: parent.and_then(Attempt::speedup),
        },
    })
}

fn earlier_than<'a>(run: &'a RunState, attempt: &Attempt) -> &'a [Attempt] {
    let count = usize::try_from(attempt.number.saturating_sub(1)).unwrap_or(usize::MAX);
    run.attempts.get(..count).unwrap_or(&[])
}

fn library(attempt: &Attempt) -> Result<ArtifactHash, WorkflowError> {
    attempt
        .build
        .as_ref()
        .and_then(|build| build.library.clone())
        .ok_or_else(|| broken("the attempt to be run has no library"))
}

/// What the author was asked for: the parent's diagnosis, unless the attempt opened another subtask or plan, whose
/// request is the plan itself.
fn asked_modification(attempt: &Attempt, parent: Option<&Attempt>) -> Option<String> {
    let parent = parent?;
    let same_request = (attempt.plan_version, attempt.subtask) == (parent.plan_version, parent.subtask);
    let diagnosis = parent.diagnosis.as_ref()?;
    (attempt.stage == Stage::Optimize && same_request).then(|| diagnosis.modification.clone())
}
