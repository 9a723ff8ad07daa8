//! The step that a run waits for, with everything it is given.

use nightshift_engine::retry::RetryPolicy;
use nightshift_engine::workflow::{StepOrder, WorkflowError};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::{Attempt, Bound, Stage};
use nightshift_protocol::attempt_memory::{AttemptMemory, NearAttempt};
use nightshift_protocol::budget::{Amount, Resource};
use nightshift_protocol::campaign::RunInput;
use nightshift_protocol::machine::{DeviceUse, Executor, Needs};
use nightshift_protocol::measurement::Interval;
use nightshift_protocol::needs::Tool;
use nightshift_protocol::step::{CodeRequest, StepInput, StepKind};

use super::attempt_step::AttemptStep;
use super::state::{Open, Phase, RunState, broken};
use super::{fix, history, memory, method, sanitize, session, tune};

/// A program is nearly as fast as another from this share of its speedup on.
const NEAR_SHARE: f64 = 0.9;

/// Two builds of the reference, its checks and its baseline.
const PREPARE_TASK_TIMEOUT_MS: u64 = 15 * 60_000;
/// A call that takes as long as an endpoint allows by default, and a shorter repair turn.
const WRITING_TIMEOUT_MS: u64 = 45 * 60_000;
/// A call that takes as long as an endpoint allows by default, and a short repair turn.
const JUDGING_TIMEOUT_MS: u64 = 35 * 60_000;
/// Above the longest compilation that a task may allow.
const BUILD_TIMEOUT_MS: u64 = 10 * 60_000;
/// Every shape and every drawing of inputs, for candidate, reference and truth.
const CHECK_TIMEOUT_MS: u64 = 15 * 60_000;
/// Every tool of the sanitizer over reduced shapes: it slows a program down a hundredfold.
const SANITIZE_TIMEOUT_MS: u64 = 10 * 60_000;
/// The search's own budget, and what it began before that was used up: a build, a measurement, a check.
const TUNE_TIMEOUT_MS: u64 = 10 * 60_000;
/// Interleaved samples until the interval is narrow enough.
const MEASURE_TIMEOUT_MS: u64 = 15 * 60_000;
/// Peaks of the machine and what the profilers add.
const PROFILE_TIMEOUT_MS: u64 = 10 * 60_000;

/// What a try is expected to take, in milliseconds: the price of the step in its campaign's share of machines and agents.
/// Only the proportions between kinds matter.
const PREPARE_TASK_COST_MS: u64 = 60_000;
const WRITING_COST_MS: u64 = 90_000;
const JUDGING_COST_MS: u64 = 30_000;
const BUILD_COST_MS: u64 = 5_000;
const CHECK_COST_MS: u64 = 20_000;
const SANITIZE_COST_MS: u64 = 10_000;
const TUNE_COST_MS: u64 = 60_000;
const MEASURE_COST_MS: u64 = 30_000;
const PROFILE_COST_MS: u64 = 30_000;

/// A provider may be away for an hour in the night; nothing is lost by waiting. Tries that may be charged for end earlier.
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
        StepKind::Sanitize => SANITIZE_TIMEOUT_MS,
        StepKind::Tune => TUNE_TIMEOUT_MS,
        StepKind::Measure => MEASURE_TIMEOUT_MS,
        StepKind::Profile => PROFILE_TIMEOUT_MS,
    }
}

/// How long one try of a step is expected to take, in milliseconds.
#[must_use]
pub fn cost_ms(kind: StepKind) -> u64 {
    match kind {
        StepKind::PrepareTask => PREPARE_TASK_COST_MS,
        StepKind::Plan | StepKind::Replan | StepKind::WriteCode => WRITING_COST_MS,
        StepKind::Diagnose | StepKind::Judge => JUDGING_COST_MS,
        StepKind::Build => BUILD_COST_MS,
        StepKind::Check => CHECK_COST_MS,
        StepKind::Sanitize => SANITIZE_COST_MS,
        StepKind::Tune => TUNE_COST_MS,
        StepKind::Measure => MEASURE_COST_MS,
        StepKind::Profile => PROFILE_COST_MS,
    }
}

/// What is set aside for a try of a step: the longest time that it may hold a device, and the attempt that it opens. A fix
/// turn opens none.
fn reserve(input: &StepInput, needs: &Needs) -> Vec<Amount> {
    let kind = input.kind();
    let mut amounts = Vec::new();
    if needs.device != DeviceUse::None {
        amounts.push(Amount { resource: Resource::DeviceMs, amount: timeout_ms(kind) });
    }
    if matches!(input, StepInput::WriteCode { request, .. } if opens_an_attempt(request)) {
        amounts.push(Amount { resource: Resource::Attempts, amount: 1 });
    }
    amounts
}

/// Whether it is the first call of an attempt.
fn opens_an_attempt(request: &CodeRequest) -> bool {
    request.fix_turn == 0 && request.session.as_ref().is_none_or(|session| session.opens_attempt)
}

/// What a step needs: a worker's step also a machine with the labels that the campaign asks for.
fn needs(kind: StepKind, input: &RunInput) -> Needs {
    let mut needs = kind.needs(input.target);
    if needs.executor == Executor::Worker {
        needs.labels.clone_from(&input.labels);
        if needs.device != DeviceUse::None {
            needs.compute_capability = input.compute_capability;
            needs.device_memory_bytes = input.device_memory_bytes;
        }
        // What is timed and examined by itself needs neither the reference nor its Python.
        if input.torch && !matches!(kind, StepKind::Sanitize | StepKind::Profile) {
            needs.tools.insert(Tool::Torch);
        }
    }
    needs
}

/// How failures of a step are treated.
#[must_use]
pub fn retry_policy(kind: StepKind) -> RetryPolicy {
    match kind.executor() {
        Executor::Agent => AGENT_RETRY,
        Executor::Worker => WORKER_RETRY,
    }
}

/// The steps that the run waits for; none when it ended or waits for a person.
pub(super) fn open_steps(run: &RunState) -> Result<Vec<StepOrder>, WorkflowError> {
    run.open_steps().into_iter().map(|(key, open)| order(run, key, open)).collect()
}

fn order(run: &RunState, key: String, open: Open) -> Result<StepOrder, WorkflowError> {
    let task = run.input.task.clone();
    let input = match (open, &run.phase) {
        (Open::Attempt { number, step }, _) => attempt_input(run, number, step)?,
        (Open::Run, Phase::Planning) => {
            StepInput::Plan { task, prepared: Box::new(run.prepared()?.clone()), hints: run.advice() }
        }
        (Open::Run, Phase::Replanning { reason }) => StepInput::Replan {
            task,
            prepared: Box::new(run.prepared()?.clone()),
            previous: Box::new(run.plan()?.clone()),
            reason: reason.clone(),
            best: run.best().map(|best| Box::new(without_versions(best))),
            history: history::lines(run, &run.attempts),
            memory: memory::of(run, &run.attempts),
            hints: run.advice(),
        },
        (Open::Run, _) => StepInput::PrepareTask { task },
    };
    let kind = input.kind();
    let needs = needs(kind, &run.input);
    Ok(StepOrder {
        key,
        kind: kind.as_str().to_owned(),
        reserve: reserve(&input, &needs),
        needs,
        input: serde_json::to_value(&input)
            .map_err(|error| WorkflowError::Unreadable { what: "step input", message: error.to_string() })?,
        timeout_ms: timeout_ms(kind),
        retry: retry_policy(kind),
        cost_ms: cost_ms(kind),
    })
}

/// Returns the history and the memory of the attempts before this one, for prompts.
fn earlier(run: &RunState, number: u32) -> Result<(Vec<String>, AttemptMemory), WorkflowError> {
    if !run.strategy()?.remembers() {
        return Ok((Vec::new(), AttemptMemory::default()));
    }
    let earlier = run.earlier_than(number);
    Ok((history::lines(run, earlier), memory::of(run, earlier)))
}

fn attempt_input(run: &RunState, number: u32, step: AttemptStep) -> Result<StepInput, WorkflowError> {
    let task = run.input.task.clone();
    let sandbox_required = run.input.sandbox_required;
    let attempt = run.wanted_attempt(number)?;
    let parent = attempt.parent.and_then(|number| run.attempt(number));
    Ok(match step {
        AttemptStep::WriteCode => {
            let request = Box::new(code_request(run, attempt, parent)?);
            StepInput::WriteCode { task, prepared: Box::new(run.prepared()?.clone()), request }
        }
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
        AttemptStep::Sanitize | AttemptStep::SanitizeBest => StepInput::Sanitize {
            task,
            library: library(attempt)?,
            source: attempt.source.clone().ok_or_else(|| broken("the attempt to be sanitized has no source"))?,
            // While there is no best, the attempt will be it if it survives: one examination does for both.
            thorough: step == AttemptStep::SanitizeBest || run.best_attempt.is_none(),
            without: sanitize::not_asked(run, attempt),
            shared_memory_call_ns: sanitize::shared_memory_call_ns(run, attempt),
            sandbox_required,
        },
        AttemptStep::Tune => StepInput::Tune {
            task,
            source: attempt.source.clone().ok_or_else(|| broken("the attempt to be tuned has no source"))?,
            reference_library: run.prepared()?.reference_library.clone(),
            truth_library: run.prepared()?.truth_library.clone(),
            budget: tune::budget(run),
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
            library: Some(library(attempt)?),
            source: attempt.source.clone(),
            sandbox_required,
        },
        AttemptStep::Diagnose => {
            let (history, memory) = earlier(run, number)?;
            let attempt = session::diagnosed(attempt).and_then(|about| run.attempt(about)).unwrap_or(attempt);
            let memory = memory::for_diagnosis(run, memory, attempt);
            StepInput::Diagnose {
                task,
                prepared: Box::new(run.prepared()?.clone()),
                plan: Box::new(run.plan()?.clone()),
                attempt: Box::new(without_versions(attempt)),
                history,
                memory,
                hints: run.advice(),
            }
        }
        AttemptStep::Judge => StepInput::Judge {
            task,
            plan: Box::new(run.plan()?.clone()),
            attempt: Box::new(without_versions(attempt)),
            parent_source: parent.and_then(|parent| parent.source.clone()),
            modification: asked_modification(attempt),
            parent_speedup: parent.and_then(Attempt::speedup),
            parent_bound: bound_before(run, attempt),
        },
    })
}

/// The attempt as its last version: no prompt shows the earlier ones.
fn without_versions(attempt: &Attempt) -> Attempt {
    session::bare(attempt)
}

/// Returns what the Coder is asked for. A fix turn asks for what a repair of the attempt would be asked for.
fn code_request(run: &RunState, attempt: &Attempt, parent: Option<&Attempt>) -> Result<CodeRequest, WorkflowError> {
    if let Some(session) = session::request(run, attempt) {
        return Ok(CodeRequest {
            stage: attempt.stage,
            plan: run.plan()?.clone(),
            subtask: attempt.subtask,
            parent: None,
            modification: None,
            method: None,
            near: None,
            candidate: None,
            fix_turn: 0,
            session: Some(Box::new(session)),
            history: Vec::new(),
            memory: AttemptMemory::default(),
            hints: run.advice(),
        });
    }
    let (history, memory) = earlier(run, attempt.number)?;
    let first = CodeRequest {
        stage: attempt.stage,
        plan: run.plan()?.clone(),
        subtask: attempt.subtask,
        parent: parent.map(|parent| Box::new(without_versions(parent))),
        modification: attempt.modification.clone(),
        method: method::of(run, attempt)
            .filter(|_| attempt.candidate.is_none_or(|candidate| candidate.group.is_some())),
        near: near(run, attempt)?,
        candidate: attempt.candidate,
        fix_turn: 0,
        session: None,
        history,
        memory,
        hints: run.advice(),
    };
    let Some(stage) = fix::stage(attempt) else { return Ok(first) };
    Ok(CodeRequest {
        stage,
        parent: Some(Box::new(without_versions(attempt))),
        method: None,
        near: None,
        candidate: None,
        fix_turn: fix::turn(attempt, AttemptStep::WriteCode),
        ..first
    })
}

/// Returns the newest program before an attempt, where it is right, nearly as fast as the one that the attempt starts from, and
/// another: what helped in it may be taken over.
fn near(run: &RunState, attempt: &Attempt) -> Result<Option<NearAttempt>, WorkflowError> {
    if !run.strategy()?.remembers() || attempt.stage != Stage::Optimize {
        return Ok(None);
    }
    let parent = attempt.parent.and_then(|number| run.attempt(number));
    let newest = run.earlier_than(attempt.number).iter().rev().find(|earlier| earlier.source.is_some());
    let Some((parent, newest)) = parent.zip(newest) else { return Ok(None) };
    if newest.number == parent.number || newest.source == parent.source || !newest.outcome.is_correct() {
        return Ok(None);
    }
    let is_near = |speedup: Interval, of: Interval| speedup.estimate >= of.estimate * NEAR_SHARE;
    let near = newest.speedup().zip(parent.speedup()).filter(|(speedup, of)| is_near(*speedup, *of));
    Ok(newest.source.clone().zip(near).map(|(source, (speedup, _))| NearAttempt {
        attempt: newest.number,
        source,
        speedup,
    }))
}

fn library(attempt: &Attempt) -> Result<ArtifactHash, WorkflowError> {
    attempt
        .build
        .as_ref()
        .and_then(|build| build.library.clone())
        .ok_or_else(|| broken("the attempt to be run has no library"))
}

/// What limited the program on which the attempt's change was made. A repair carries on the change of the attempt before
/// it, which was too broken to be diagnosed.
fn bound_before(run: &RunState, attempt: &Attempt) -> Option<Bound> {
    let before = attempt.modification.as_ref().map(|modification| modification.from).or(attempt.parent);
    before.and_then(|number| run.attempt(number)?.diagnosis.as_ref()).map(|diagnosis| diagnosis.bound)
}

/// What the author was asked for; a repair is asked for something else.
fn asked_modification(attempt: &Attempt) -> Option<String> {
    let modification = attempt.modification.as_ref().filter(|_| attempt.stage == Stage::Optimize)?;
    Some(modification.text.clone())
}
