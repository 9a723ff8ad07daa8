//! Verifier: what limits a correct attempt, and where to go.

use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::{Attempt, Diagnosis};
use nightshift_protocol::attempt_memory::AttemptMemory;
use nightshift_protocol::campaign::ModelChoice;
use nightshift_protocol::models::AgentRole;
use nightshift_protocol::plan::PlanVersion;
use nightshift_protocol::step::{PreparedTask, StepFailure, StepOutput};
use serde::Serialize;

use super::conversation::{Conversation, Unusable};
use super::evidence::Evidence;
use super::knowledge::retrieve;
use super::target::{AttemptsOfRun, RunTarget};
use super::{AgentPorts, AgentStep, Agents, load_task, load_text, schema, subtask};
use crate::change_text::same_modification;
use crate::knowledge::{Question, Retrieved};
use crate::prompt::{AttemptView, MachineView, MemoryView, PlanView, Prompt, SubtaskView, TaskView};
use crate::reply::extract_json;

/// Longest text of a diagnosis, in bytes.
const MAX_TEXT_BYTES: usize = 4_000;

/// Most metrics of a diagnosis.
const MAX_METRICS: usize = 32;

/// Largest gain that is believed to be meant.
const MAX_GAIN: f64 = 10_000.0;

pub(super) struct Diagnose<'a> {
    pub(super) task: &'a ArtifactHash,
    pub(super) prepared: &'a PreparedTask,
    pub(super) plan: &'a PlanVersion,
    pub(super) attempt: &'a Attempt,
    pub(super) history: &'a [String],
    pub(super) memory: &'a AttemptMemory,
    pub(super) hints: &'a [String],
}

#[derive(Serialize)]
struct Values<'a> {
    target: &'static str,
    task: TaskView,
    machine: MachineView,
    plan: PlanView,
    current_subtask: u32,
    subtask: SubtaskView,
    attempt: AttemptView,
    /// Every metric that a diagnosis may rest on.
    evidence: Vec<String>,
    history: &'a [String],
    memory: MemoryView,
    hints: &'a [String],
    /// The speedup at which the run is done.
    target_of_run: Option<RunTarget>,
    /// The number of attempts that are left after this one.
    attempts: Option<AttemptsOfRun>,
    knowledge: Retrieved,
}

pub(super) async fn diagnose(
    agents: &Agents,
    ports: &dyn AgentPorts,
    step: AgentStep<'_>,
    given: Diagnose<'_>,
) -> Result<StepOutput, StepFailure> {
    let bundle = load_task(ports, given.task).await?;
    let source = match &given.attempt.source {
        Some(source) => Some(load_text(ports, source).await?),
        None => None,
    };
    let evidence = Evidence::of(given.attempt);
    let scope = subtask(given.plan, given.attempt.subtask)?;
    let seen = given.attempt.profile.as_ref().and_then(|profile| profile.bound.as_ref());
    let about = Question {
        spec: &bundle.spec,
        prepared: given.prepared,
        subtask: Some(scope),
        bound: seen.and_then(|by| by.bound),
        said: seen.and_then(|by| by.evidence.first()).map_or("", String::as_str),
    };
    let knowledge = retrieve(ports, &step, about).await?;
    let values = Values {
        target: bundle.spec.target.as_str(),
        task: TaskView::new(&bundle).map_err(|error| StepFailure::fatal("task.bad_shape", error.to_string()))?,
        machine: MachineView::new(given.prepared, bundle.spec.target),
        plan: PlanView::new(given.plan),
        current_subtask: given.attempt.subtask,
        subtask: SubtaskView::new(scope),
        attempt: AttemptView::new(given.attempt, source),
        evidence: evidence.lines(),
        history: given.history,
        memory: MemoryView::new(given.memory),
        hints: given.hints,
        target_of_run: RunTarget::of(&step.run_input.goal, given.prepared),
        attempts: AttemptsOfRun::of(&step.run_input.goal, Some(given.attempt.number)),
        knowledge,
    };
    let mut conversation = Conversation::new(agents, ports, step, Prompt::Diagnose).with_schema(schema::diagnosis());
    // A script was written for other numbers, and cannot answer a repair turn.
    let models = step.run_input.models.chain(AgentRole::Verifier, &step.run_input.model);
    let is_script = models.iter().all(ModelChoice::is_scripted);
    let parse = |reply: &str| {
        let mut diagnosis = parse(reply)?;
        if is_script {
            set_aside(&mut diagnosis, &evidence);
        } else {
            support(&mut diagnosis, &evidence)?;
            not_again(&diagnosis, given.memory)?;
        }
        Ok(diagnosis)
    };
    let (diagnosis, unavailable) = match conversation.ask(&values, parse).await {
        Ok(diagnosis) => (Some(diagnosis), None),
        Err(no_reply) => match no_reply.unavailable() {
            Ok(reason) => (None, Some(reason)),
            Err(failure) => return Err(conversation.failed(failure)),
        },
    };
    Ok(StepOutput::Diagnosed { diagnosis, correction: None, unavailable, calls: conversation.into_calls() })
}

fn unusable(message: String) -> Unusable {
    Unusable { code: "reply.no_diagnosis", message }
}

/// Every metric has to be one of the evidence, and is kept with the value that it has there.
fn support(diagnosis: &mut Diagnosis, evidence: &Evidence) -> Result<(), Unusable> {
    if diagnosis.metrics.is_empty() && !evidence.lines().is_empty() {
        return Err(unusable(
            "`metrics` is empty: name at least one of the listed metrics that shows the issue".to_owned(),
        ));
    }
    for metric in &mut diagnosis.metrics {
        *metric = evidence.resolve(metric).map_err(unusable)?;
    }
    Ok(())
}

/// The metrics of a script that the evidence does not hold are kept apart from those that it holds.
fn set_aside(diagnosis: &mut Diagnosis, evidence: &Evidence) {
    for claim in std::mem::take(&mut diagnosis.metrics) {
        match evidence.resolve(&claim) {
            Ok(metric) => diagnosis.metrics.push(metric),
            Err(_) => diagnosis.unsupported.push(claim),
        }
    }
}

/// What failed before may be advised again only with a reason.
fn not_again(diagnosis: &Diagnosis, memory: &AttemptMemory) -> Result<(), Unusable> {
    let is_explained = diagnosis.repeat_reason.as_ref().is_some_and(|reason| !reason.trim().is_empty());
    let mut failed = memory.tried.iter().filter(|earlier| earlier.failed);
    match failed.rfind(|earlier| same_modification(&earlier.text, &diagnosis.modification)) {
        Some(earlier) if !is_explained => Err(unusable(format!(
            "`modification` was tried in attempt {} and did not help: advise another one, or say in `repeat_reason` why \
             it is worth another try",
            earlier.attempt
        ))),
        _ => Ok(()),
    }
}

fn parse(reply: &str) -> Result<Diagnosis, Unusable> {
    let mut diagnosis: Diagnosis = extract_json(reply).map_err(|problem| unusable(problem.to_string()))?;
    for (field, text) in [("critical_issue", &diagnosis.critical_issue), ("modification", &diagnosis.modification)] {
        if text.trim().is_empty() {
            return Err(unusable(format!("`{field}` is empty")));
        }
        if text.len() > MAX_TEXT_BYTES {
            return Err(unusable(format!("`{field}` is longer than {MAX_TEXT_BYTES} bytes")));
        }
    }
    if diagnosis.metrics.len() > MAX_METRICS || diagnosis.metrics.iter().any(|metric| metric.len() > MAX_TEXT_BYTES) {
        return Err(unusable(format!("`metrics` is too long; at most {MAX_METRICS} short entries are wanted")));
    }
    if diagnosis.expected_gain.is_some_and(|gain| !gain.is_finite() || gain <= 0.0 || gain > MAX_GAIN) {
        return Err(unusable("`expected_gain` has to be a positive factor like 1.2, or null".to_owned()));
    }
    if diagnosis.repeat_reason.as_ref().is_some_and(|reason| reason.len() > MAX_TEXT_BYTES) {
        return Err(unusable(format!("`repeat_reason` is longer than {MAX_TEXT_BYTES} bytes")));
    }
    diagnosis.repeat_reason = diagnosis.repeat_reason.filter(|reason| !reason.trim().is_empty());
    // Computed here, never read from a reply.
    diagnosis.unsupported.clear();
    Ok(diagnosis)
}
