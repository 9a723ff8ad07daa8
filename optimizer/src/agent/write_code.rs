//! Coder: a program.

use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::Stage;
use nightshift_protocol::step::{CodeRequest, PreparedTask, StepFailure, StepOutput};
use serde::Serialize;

use super::conversation::{Conversation, NoReply, Unusable};
use super::{AgentPorts, AgentStep, Agents, load_task, load_text, subtask};
use crate::prompt::{AttemptView, CONTRACT, MachineView, PlanView, Prompt, SubtaskView, TaskView};
use crate::reply::extract_code;
use crate::screen::screen;

#[derive(Serialize)]
struct Values<'a> {
    target: &'static str,
    task: TaskView,
    machine: MachineView,
    contract: &'static str,
    plan: PlanView,
    current_subtask: u32,
    subtask: SubtaskView,
    attempt: Option<AttemptView>,
    /// The program to start from was written for another subtask or plan: its diagnosis is not what is asked for.
    new_scope: bool,
    history: &'a [String],
    hints: &'a [String],
}

pub(super) async fn write_code(
    agents: &Agents,
    ports: &dyn AgentPorts,
    step: AgentStep<'_>,
    task: &ArtifactHash,
    prepared: &PreparedTask,
    request: &CodeRequest,
) -> Result<StepOutput, StepFailure> {
    let bundle = load_task(ports, task).await?;
    let parent = request.parent.as_deref();
    let attempt = match parent {
        None => None,
        Some(parent) => {
            let source = match &parent.source {
                Some(source) => Some(load_text(ports, source).await?),
                None => None,
            };
            Some(AttemptView::new(parent, source))
        }
    };
    // Without a program to start from there is nothing to mend.
    let stage = if parent.is_some() { request.stage } else { Stage::Draft };
    let values = Values {
        target: bundle.spec.target.as_str(),
        task: TaskView::new(&bundle).map_err(|error| StepFailure::fatal("task.bad_shape", error.to_string()))?,
        machine: MachineView::new(prepared),
        contract: CONTRACT,
        plan: PlanView::new(&request.plan),
        current_subtask: request.subtask,
        subtask: SubtaskView::new(subtask(&request.plan, request.subtask)?),
        attempt,
        new_scope: parent
            .is_some_and(|parent| (parent.plan_version, parent.subtask) != (request.plan.version, request.subtask)),
        history: &request.history,
        hints: &request.hints,
    };
    let mut conversation = Conversation::new(agents, ports, step, Prompt::Code(stage));
    let parse = |reply: &str| {
        extract_code(reply).map_err(|problem| Unusable { code: problem.code(), message: problem.to_string() })
    };
    match conversation.ask(&values, parse).await {
        Ok(source) => {
            let findings = screen(&source, bundle.spec.target, &bundle.spec.libraries);
            match ports.put_artifact(source.into_bytes()).await {
                Ok(source) => Ok(StepOutput::CodeWritten { source, findings, calls: conversation.into_calls() }),
                Err(failure) => Err(conversation.failed(failure)),
            }
        }
        Err(NoReply::Unusable { what, .. }) => Ok(StepOutput::NoCode {
            code: what.code.to_owned(),
            message: what.message,
            calls: conversation.into_calls(),
        }),
        Err(NoReply::Model(error)) => Err(conversation.failed(error)),
        Err(NoReply::Step(failure)) => Err(conversation.failed(failure)),
    }
}
