//! Verifier: what limits a correct attempt, and where to go.

use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::{Attempt, Diagnosis};
use nightshift_protocol::plan::PlanVersion;
use nightshift_protocol::step::{PreparedTask, StepFailure, StepOutput};
use serde::Serialize;

use super::conversation::{Conversation, Unusable};
use super::{AgentPorts, AgentStep, Agents, load_task, load_text, schema, subtask};
use crate::prompt::{AttemptView, MachineView, PlanView, Prompt, SubtaskView, TaskView};
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
    history: &'a [String],
    hints: &'a [String],
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
    let values = Values {
        target: bundle.spec.target.as_str(),
        task: TaskView::new(&bundle).map_err(|error| StepFailure::fatal("task.bad_shape", error.to_string()))?,
        machine: MachineView::new(given.prepared),
        plan: PlanView::new(given.plan),
        current_subtask: given.attempt.subtask,
        subtask: SubtaskView::new(subtask(given.plan, given.attempt.subtask)?),
        attempt: AttemptView::new(given.attempt, source),
        history: given.history,
        hints: given.hints,
    };
    let mut conversation = Conversation::new(agents, ports, step, Prompt::Diagnose).with_schema(schema::diagnosis());
    let (diagnosis, unavailable) = match conversation.ask(&values, parse).await {
        Ok(diagnosis) => (Some(diagnosis), None),
        Err(no_reply) => match no_reply.unavailable() {
            Ok(reason) => (None, Some(reason)),
            Err(failure) => return Err(conversation.failed(failure)),
        },
    };
    Ok(StepOutput::Diagnosed { diagnosis, unavailable, calls: conversation.into_calls() })
}

fn parse(reply: &str) -> Result<Diagnosis, Unusable> {
    let unusable = |message: String| Unusable { code: "reply.no_diagnosis", message };
    let diagnosis: Diagnosis = extract_json(reply).map_err(|problem| unusable(problem.to_string()))?;
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
    Ok(diagnosis)
}
