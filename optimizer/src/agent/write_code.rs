//! Coder: a program.

use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::Stage;
use nightshift_protocol::attempt_memory::{Candidate, Modification, NearAttempt};
use nightshift_protocol::measurement::Interval;
use nightshift_protocol::plan::Subtask;
use nightshift_protocol::step::{CodeRequest, PreparedTask, StepFailure, StepOutput};
use nightshift_protocol::task::CandidateForm;
use nightshift_protocol::tunable::{self, Tunable};
use serde::Serialize;

use super::conversation::{Conversation, NoReply, Unusable};
use super::knowledge::retrieve;
use super::plan::ReferenceView;
use super::target::AttemptsOfRun;
use super::{AgentPorts, AgentStep, Agents, load_task, load_text, subtask};
use crate::knowledge::{Question, Retrieved};
use crate::model::ModelError;
use crate::prompt::{
    AttemptView, MachineView, MemoryView, PlanView, Prompt, SubtaskView, TaskView, contract, difference,
};
use crate::reply::extract_program;
use crate::screen::screen_candidate;

#[derive(Serialize)]
struct Values<'a> {
    target: &'static str,
    task: TaskView,
    machine: MachineView,
    contract: String,
    plan: PlanView,
    current_subtask: u32,
    subtask: SubtaskView,
    attempt: Option<AttemptView>,
    /// The program to start from was written for another subtask or plan: its diagnosis is not what is asked for.
    new_scope: bool,
    /// The one change that is asked for.
    modification: Option<&'a Modification>,
    /// The method of the subtask that is asked for: its number and its text.
    method: Option<Method>,
    /// Another right program that is nearly as fast.
    near: Option<Near>,
    /// Which of the candidates of its round it is.
    candidate: Option<Candidate>,
    history: &'a [String],
    memory: MemoryView,
    hints: &'a [String],
    /// The number of attempts that are left after this one. All members of a group get one prompt.
    attempts: Option<AttemptsOfRun>,
    /// Notes and lessons; only a correct program is worth them.
    knowledge: Retrieved,
    #[serde(flatten)]
    reference: ReferenceView,
}

#[derive(Serialize)]
struct Method {
    number: u32,
    text: String,
}

impl Method {
    fn of(subtask: &Subtask, number: u32) -> Option<Self> {
        let index = usize::try_from(number.checked_sub(1)?).ok()?;
        Some(Self { number, text: subtask.methods.get(index)?.clone() })
    }
}

#[derive(Serialize)]
struct Near {
    attempt: u32,
    speedup: String,
    /// What differs from the program to start from.
    difference: String,
}

impl Near {
    fn of(near: &NearAttempt, before: &str, source: &str) -> Self {
        let Interval { estimate, low, high } = near.speedup;
        Self {
            attempt: near.attempt,
            speedup: format!("{estimate:.3}x [{low:.3}, {high:.3}]"),
            difference: difference(before, source),
        }
    }
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
    let form = bundle.spec.form;
    let parent = request.parent.as_deref();
    let before = match parent.and_then(|parent| parent.source.as_ref()) {
        Some(source) => Some(load_text(ports, source).await?),
        None => None,
    };
    let attempt = parent.map(|parent| AttemptView::new(parent, before.clone()));
    // Without a program to start from there is nothing to mend.
    let stage = if parent.is_some() { request.stage } else { Stage::Draft };
    let scope = subtask(&request.plan, request.subtask)?;
    let group = request.candidate.and_then(|candidate| candidate.group);
    let knowledge = if stage == Stage::Optimize {
        let diagnosis = parent.and_then(|parent| parent.diagnosis.as_ref());
        let about = Question {
            spec: &bundle.spec,
            prepared,
            subtask: Some(scope),
            bound: diagnosis.map(|diagnosis| diagnosis.bound),
            said: request.modification.as_ref().map_or("", |modification| modification.text.as_str()),
        };
        // All members of a group see the same notes and lessons: the first member pins them for the group.
        let shared = group.map(|first| format!("group{first}"));
        let step_key = shared.as_deref().unwrap_or(step.step_key);
        retrieve(ports, &AgentStep { step_key, ..step }, about).await?
    } else {
        Retrieved::default()
    };
    let chooses = stage == Stage::Optimize && request.modification.is_none() && request.method.is_none();
    let memory = MemoryView::new(&request.memory);
    let values = Values {
        target: bundle.spec.target.as_str(),
        task: TaskView::new(&bundle).map_err(|error| StepFailure::fatal("task.bad_shape", error.to_string()))?,
        machine: MachineView::new(prepared, bundle.spec.target),
        contract: contract(&bundle.spec),
        plan: PlanView::new(&request.plan),
        current_subtask: request.subtask,
        subtask: SubtaskView::new(scope),
        attempt,
        new_scope: parent
            .is_some_and(|parent| (parent.plan_version, parent.subtask) != (request.plan.version, request.subtask)),
        modification: request.modification.as_ref(),
        method: request.method.and_then(|number| Method::of(scope, number)),
        near: match (&request.near, before.as_deref()) {
            (Some(near), Some(before)) => Some(Near::of(near, before, &load_text(ports, &near.source).await?)),
            _ => None,
        },
        candidate: request.candidate.filter(|_| group.is_none()),
        history: &request.history,
        memory: if chooses { memory } else { memory.without_untried() },
        hints: &request.hints,
        attempts: match group {
            None => AttemptsOfRun::of_step(&step.run_input.goal, step.step_key),
            Some(_) => AttemptsOfRun::of(&step.run_input.goal, None),
        },
        knowledge,
        reference: ReferenceView::new(&bundle.spec, prepared),
    };
    let mut conversation = Conversation::new(agents, ports, step, Prompt::Code(stage, form));
    if group.is_some() {
        // What is compared with the others is the answer to their prompt, not to one about a first answer.
        conversation = conversation.with_single_turn();
    }
    let parse = |reply: &str| {
        let source = extract_program(reply, before.as_deref(), form)
            .map_err(|problem| Unusable { code: problem.code(), message: problem.to_string() })?;
        with_tunables(source, form)
    };
    match conversation.ask(&values, parse).await {
        Ok((source, tunables)) => {
            let findings = screen_candidate(&source, &bundle.spec);
            match ports.put_artifact(source.into_bytes()).await {
                Ok(source) => {
                    Ok(StepOutput::CodeWritten { source, findings, tunables, calls: conversation.into_calls() })
                }
                Err(failure) => Err(conversation.failed(failure)),
            }
        }
        Err(NoReply::Unusable { what, .. }) => Ok(StepOutput::NoCode {
            code: what.code.to_owned(),
            message: what.message,
            calls: conversation.into_calls(),
        }),
        // A script that holds no reply for a fix turn has none: the version that failed stays.
        Err(NoReply::Model(error @ ModelError::ScriptEnded { .. })) if request.fix_turn > 0 => {
            let (code, message) = (error.code().to_owned(), error.describe());
            Ok(StepOutput::NoCode { code, message, calls: conversation.into_calls() })
        }
        Err(NoReply::Model(error)) => Err(conversation.failed(error)),
        Err(NoReply::Step(failure)) => Err(conversation.failed(failure)),
    }
}

/// The program with the constants that it declares as tunable. Returns an error for declarations that
/// the tuner cannot search, so that the author mends them. Otherwise they would look like constants that were tuned.
pub(super) fn with_tunables(source: String, form: CandidateForm) -> Result<(String, Vec<Tunable>), Unusable> {
    // Only the header of the native contract has the macro that declares them.
    if form != CandidateForm::Native {
        return Ok((source, Vec::new()));
    }
    match tunable::parse(&source) {
        Ok(tunables) => Ok((source, tunables)),
        Err(bad) => Err(Unusable { code: "reply.bad_tunables", message: bad.to_string() }),
    }
}
