//! Verifier: what to mend in an attempt that failed.

use nightshift_protocol::attempt_memory::Correction;
use nightshift_protocol::step::{StepFailure, StepOutput};
use serde::Serialize;

use super::conversation::{Conversation, Unusable};
use super::diagnose::Diagnose;
use super::target::AttemptsOfRun;
use super::{AgentPorts, AgentStep, Agents, load_task, load_text, schema, subtask};
use crate::prompt::{AttemptView, MachineView, MemoryView, Prompt, SubtaskView, TaskView, contract};
use crate::reply::extract_json;

/// Longest text of a correction, in bytes.
const MAX_TEXT_BYTES: usize = 4_000;

#[derive(Serialize)]
struct Values<'a> {
    target: &'static str,
    task: TaskView,
    machine: MachineView,
    contract: String,
    subtask: SubtaskView,
    attempt: AttemptView,
    history: &'a [String],
    memory: MemoryView,
    hints: &'a [String],
    /// The number of attempts that are left after this one.
    attempts: Option<AttemptsOfRun>,
}

pub(super) async fn correct(
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
        machine: MachineView::new(given.prepared, bundle.spec.target),
        contract: contract(&bundle.spec),
        subtask: SubtaskView::new(subtask(given.plan, given.attempt.subtask)?),
        attempt: AttemptView::new(given.attempt, source),
        history: given.history,
        memory: MemoryView::new(given.memory),
        hints: given.hints,
        attempts: AttemptsOfRun::of(&step.run_input.goal, Some(given.attempt.number)),
    };
    let mut conversation = Conversation::new(agents, ports, step, Prompt::Correct).with_schema(schema::correction());
    let (correction, unavailable) = match conversation.ask(&values, parse).await {
        Ok(correction) => (Some(correction), None),
        Err(no_reply) => match no_reply.unavailable() {
            Ok(reason) => (None, Some(reason)),
            Err(failure) => return Err(conversation.failed(failure)),
        },
    };
    Ok(StepOutput::Diagnosed { diagnosis: None, correction, unavailable, calls: conversation.into_calls() })
}

fn parse(reply: &str) -> Result<Correction, Unusable> {
    let unusable = |message: String| Unusable { code: "reply.no_diagnosis", message };
    let correction: Correction = extract_json(reply).map_err(|problem| unusable(problem.to_string()))?;
    for (field, text) in [
        ("critical_issue", &correction.critical_issue),
        ("why_it_matters", &correction.why_it_matters),
        ("minimal_fix", &correction.minimal_fix),
    ] {
        if text.trim().is_empty() {
            return Err(unusable(format!("`{field}` is empty")));
        }
        if text.len() > MAX_TEXT_BYTES {
            return Err(unusable(format!("`{field}` is longer than {MAX_TEXT_BYTES} bytes")));
        }
    }
    Ok(correction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_correction_has_one_cause_and_one_fix_in_words() {
        let good = r#"{"critical_issue": "a", "why_it_matters": "b", "minimal_fix": "c"}"#;
        assert!(parse(good).is_ok_and(|correction| correction.minimal_fix == "c"));
        for wrong in [good.replace("\"a\"", "\" \""), good.replace("\"c\"", "[\"c\", \"d\"]"), "mend it".to_owned()] {
            assert!(parse(&wrong).is_err_and(|problem| problem.code == "reply.no_diagnosis"), "{wrong}");
        }
    }
}
