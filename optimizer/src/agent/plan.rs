//! Planner: the first plan, and a new one.

use std::collections::BTreeSet;

use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::attempt_memory::AttemptMemory;
use nightshift_protocol::campaign::ModelChoice;
use nightshift_protocol::gpu_text::significant;
use nightshift_protocol::models::AgentRole;
use nightshift_protocol::plan::{Plan, PlanVersion};
use nightshift_protocol::step::{PreparedTask, StepFailure, StepOutput};
use nightshift_protocol::task::{OperatorSpec, TaskBundle, TaskGoal, TaskSpec};
use serde::Serialize;

use self::limits::Grounds;
pub use self::problem::PlanProblem;
pub(super) use self::reference::ReferenceView;
use super::conversation::{Conversation, NoReply, Unusable};
use super::knowledge::retrieve;
use super::target::{AttemptsOfRun, RunTarget};
use super::{AgentPorts, AgentStep, Agents, load_task, load_text, schema};
use crate::knowledge::{Question, Retrieved};
use crate::prompt::{AttemptView, MachineView, MemoryView, PlanView, Prompt, TaskView, contract};
use crate::reply::extract_json;
use crate::roofline::Floor;

mod estimates;
mod limits;
mod problem;
mod reference;
mod shares;

/// Most subtasks of a plan.
pub const MAX_SUBTASKS: usize = 8;

/// Most entries of a list in a plan. A scope may name every operator of the task.
const MAX_LIST: usize = 64;

/// Longest text in a plan, in bytes.
const MAX_TEXT_BYTES: usize = 8_000;

/// Tries of the step, each with its repair turn, before a run is given up for want of a plan.
const MAX_TRIES: u32 = 2;

/// Whether a plan can be carried out. Operators are looked up only when the task lists them.
pub fn validate_plan(plan: &Plan, operators: &[OperatorSpec]) -> Result<(), PlanProblem> {
    let known: BTreeSet<&str> = operators.iter().map(|operator| operator.name.as_str()).collect();
    if !(1..=MAX_SUBTASKS).contains(&plan.subtasks.len()) {
        return Err(PlanProblem::Subtasks(plan.subtasks.len()));
    }
    filled("summary", &plan.summary)?;
    list("correctness_risks", &plan.correctness_risks, MAX_LIST)?;
    for (index, subtask) in plan.subtasks.iter().enumerate() {
        let field = |name: &str| format!("subtasks[{index}].{name}");
        filled(&field("title"), &subtask.title)?;
        filled(&field("fusion_boundary"), &subtask.fusion_boundary)?;
        list(&field("methods"), &subtask.methods, MAX_LIST)?;
        list(&field("scope"), &subtask.scope, MAX_LIST.max(known.len()))?;
        bounded(&field("risk"), &subtask.risk)?;
        if subtask.scope.is_empty() {
            return Err(PlanProblem::Empty(field("scope")));
        }
        if let Some(name) = subtask.scope.iter().find(|name| !known.is_empty() && !known.contains(name.as_str())) {
            return Err(PlanProblem::UnknownOperator {
                subtask: index + 1,
                name: name.clone(),
                known: known.iter().copied().collect::<Vec<_>>().join(", "),
            });
        }
        let bottleneck = subtask.expected_bottleneck.as_str();
        if !matches!(bottleneck, "" | "memory" | "compute" | "latency" | "launch" | "host") {
            let value = bottleneck.chars().take(40).collect();
            return Err(PlanProblem::Bottleneck { field: field("expected_bottleneck"), value });
        }
        if subtask.target_speedup.is_some_and(|target| !target.is_finite() || target <= 0.0) {
            return Err(PlanProblem::Speedup(field("target_speedup")));
        }
        limits::check_numbers(index, subtask)?;
        for tensors in [&subtask.contract.inputs, &subtask.contract.outputs] {
            if tensors.len() > MAX_LIST {
                return Err(PlanProblem::TooLong(field("contract")));
            }
            for tensor in tensors {
                filled(&field("contract.name"), &tensor.name)?;
                list(&field("contract.shape"), &tensor.shape, MAX_LIST)?;
            }
        }
    }
    limits::check_order(plan)?;
    limits::check_targets(plan)
}

/// Whether tensors at borders that bear the name of one of the task's are what the task says.
fn check_borders(plan: &Plan, spec: &TaskSpec) -> Result<(), PlanProblem> {
    let known: Vec<_> = spec.inputs.iter().chain(&spec.params).chain(&spec.outputs).collect();
    for (number, subtask) in (1..).zip(&plan.subtasks) {
        for tensor in subtask.contract.inputs.iter().chain(&subtask.contract.outputs) {
            let Some(known) = known.iter().find(|known| known.name == tensor.name) else { continue };
            let dtype = spec.program_dtype(known);
            // Plans of earlier releases name the type that the task folder has.
            let is_type = [dtype, known.dtype.as_str()].iter().any(|name| tensor.dtype.eq_ignore_ascii_case(name));
            if !is_type || tensor.shape.len() != known.shape.len() {
                return Err(PlanProblem::Border {
                    subtask: number,
                    name: tensor.name.clone(),
                    given: format!("{} with {} extents", tensor.dtype, tensor.shape.len()),
                    known: format!("{dtype} with {} extents", known.shape.len()),
                });
            }
        }
    }
    Ok(())
}

fn filled(field: &str, text: &str) -> Result<(), PlanProblem> {
    if text.trim().is_empty() { Err(PlanProblem::Empty(field.to_owned())) } else { bounded(field, text) }
}

fn bounded(field: &str, text: &str) -> Result<(), PlanProblem> {
    if text.len() > MAX_TEXT_BYTES { Err(PlanProblem::TooLong(field.to_owned())) } else { Ok(()) }
}

fn list(field: &str, texts: &[String], most: usize) -> Result<(), PlanProblem> {
    if texts.len() > most {
        return Err(PlanProblem::TooLong(field.to_owned()));
    }
    texts.iter().try_for_each(|text| filled(field, text))
}

#[derive(Serialize)]
struct PlanValues<'a> {
    target: &'static str,
    task: TaskView,
    machine: MachineView,
    contract: String,
    hints: &'a [String],
    /// The speedup at which the run is done.
    target_of_run: Option<RunTarget>,
    /// The number of attempts that the run may make.
    attempts: Option<AttemptsOfRun>,
    /// The highest speedup over the reference that the roofline allows, where the target of the run lies above it.
    most_speedup: Option<String>,
    #[serde(flatten)]
    reference: ReferenceView,
    /// Notes and lessons.
    knowledge: Retrieved,
}

#[derive(Serialize)]
struct ReplanValues<'a> {
    #[serde(flatten)]
    common: PlanValues<'a>,
    plan: PlanView,
    reason: &'a str,
    /// The best attempt, under the name by which the templates of measurements know an attempt.
    attempt: Option<AttemptView>,
    history: &'a [String],
    memory: MemoryView,
}

pub(super) async fn plan(
    agents: &Agents,
    ports: &dyn AgentPorts,
    step: AgentStep<'_>,
    task: &ArtifactHash,
    prepared: &PreparedTask,
    hints: &[String],
) -> Result<StepOutput, StepFailure> {
    let bundle = load_task(ports, task).await?;
    let grounds = Grounds::of(&bundle.spec, prepared, None);
    let knowledge = retrieve(ports, &step, about(&bundle, prepared, "")).await?;
    let values = common(&bundle, prepared, (hints, &step.run_input.goal), &grounds, knowledge)?;
    finish(agents, ports, step, Prompt::Plan, (&bundle, &grounds), &values).await
}

pub(super) struct Replan<'a> {
    pub(super) task: &'a ArtifactHash,
    pub(super) prepared: &'a PreparedTask,
    pub(super) previous: &'a PlanVersion,
    pub(super) reason: &'a str,
    pub(super) best: Option<&'a Attempt>,
    pub(super) history: &'a [String],
    pub(super) memory: &'a AttemptMemory,
    pub(super) hints: &'a [String],
}

pub(super) async fn replan(
    agents: &Agents,
    ports: &dyn AgentPorts,
    step: AgentStep<'_>,
    given: Replan<'_>,
) -> Result<StepOutput, StepFailure> {
    let bundle = load_task(ports, given.task).await?;
    let grounds = Grounds::of(&bundle.spec, given.prepared, given.best.and_then(|best| best.profile.as_ref()));
    let knowledge = retrieve(ports, &step, about(&bundle, given.prepared, given.reason)).await?;
    let source = match given.best.and_then(|best| best.source.as_ref()) {
        Some(source) => Some(load_text(ports, source).await?),
        None => None,
    };
    let values = ReplanValues {
        common: common(&bundle, given.prepared, (given.hints, &step.run_input.goal), &grounds, knowledge)?,
        plan: PlanView::new(given.previous),
        reason: given.reason,
        attempt: given.best.map(|best| AttemptView::new(best, source)),
        history: given.history,
        memory: MemoryView::new(given.memory),
    };
    finish(agents, ports, step, Prompt::Replan, (&bundle, &grounds), &values).await
}

fn common<'a>(
    bundle: &TaskBundle,
    prepared: &PreparedTask,
    (hints, goal): (&'a [String], &TaskGoal),
    grounds: &Grounds,
    knowledge: Retrieved,
) -> Result<PlanValues<'a>, StepFailure> {
    let limit = grounds.roofline.limit();
    let target_of_run = RunTarget::of(goal, prepared);
    let is_beyond =
        |floor: &&Floor| target_of_run.as_ref().is_some_and(|of| floor.is_passed_by(of.value_over_reference));
    let most_speedup = limit.filter(is_beyond).map(|floor| significant(floor.speedup));
    Ok(PlanValues {
        target: bundle.spec.target.as_str(),
        task: TaskView::new(bundle).map_err(|error| StepFailure::fatal("task.bad_shape", error.to_string()))?,
        machine: MachineView::new(prepared, bundle.spec.target),
        contract: contract(&bundle.spec),
        hints,
        target_of_run,
        attempts: AttemptsOfRun::of(goal, None),
        most_speedup,
        reference: ReferenceView::of(&bundle.spec, prepared, grounds),
        knowledge,
    })
}

/// What notes and lessons are looked up for: the whole program, by what bounds the reference.
fn about<'a>(bundle: &'a TaskBundle, prepared: &'a PreparedTask, said: &'a str) -> Question<'a> {
    let bound = prepared.profile.as_ref().and_then(|profile| profile.bound.as_ref()).and_then(|by| by.bound);
    Question { spec: &bundle.spec, prepared, subtask: None, bound, said }
}

/// Without a plan there is nothing to do, so the Planner is asked anew where the others have a result without one.
async fn finish(
    agents: &Agents,
    ports: &dyn AgentPorts,
    step: AgentStep<'_>,
    prompt: Prompt,
    (bundle, grounds): (&TaskBundle, &Grounds),
    values: &impl Serialize,
) -> Result<StepOutput, StepFailure> {
    let mut conversation =
        Conversation::new(agents, ports, step, prompt).with_schema(schema::plan()).with_max_tries(MAX_TRIES);
    let models = step.run_input.models.chain(AgentRole::Planner, &step.run_input.model);
    let is_script = models.iter().all(ModelChoice::is_scripted);
    let parse = |reply: &str| -> Result<Plan, Unusable> {
        let unusable = |message: String| Unusable { code: "model.no_plan", message };
        let mut plan: Plan = extract_json(reply).map_err(|problem| unusable(problem.to_string()))?;
        // Computed below, never read from a reply.
        plan.subtasks.iter_mut().for_each(|subtask| subtask.limits = None);
        let checked = validate_plan(&plan, &bundle.spec.operators)
            .and_then(|()| check_borders(&plan, &bundle.spec))
            // A script was written for the shares and peaks of another machine.
            .and_then(|()| if is_script { Ok(()) } else { limits::check_machine(&plan, grounds) });
        checked.map_err(|problem| unusable(problem.to_string()))?;
        limits::write_down(&mut plan, grounds);
        Ok(plan)
    };
    match conversation.ask(values, parse).await {
        Ok(plan) => Ok(StepOutput::Planned { plan, calls: conversation.into_calls() }),
        Err(NoReply::Unusable { what, may_ask_again }) => {
            let message = format!("the Planner gave no usable plan: {}", what.message);
            let code = if what.code == "reply.refused" { "model.refused" } else { "model.no_plan" };
            let class = if may_ask_again { StepFailure::retriable } else { StepFailure::fatal };
            Err(conversation.failed(class(code, message)))
        }
        Err(NoReply::Model(error)) => Err(conversation.failed(error)),
        Err(NoReply::Step(failure)) => Err(conversation.failed(failure)),
    }
}

#[cfg(test)]
mod tests {
    use nightshift_protocol::plan::{Contract, Subtask};

    use super::*;

    fn operators() -> Vec<OperatorSpec> {
        vec![OperatorSpec { name: "softmax".to_owned(), class: "softmax".to_owned(), ..OperatorSpec::default() }]
    }

    fn good() -> Plan {
        Plan {
            summary: "One pass.".to_owned(),
            subtasks: vec![Subtask {
                title: "Fuse".to_owned(),
                scope: vec!["softmax".to_owned()],
                fusion_boundary: "all".to_owned(),
                contract: Contract::default(),
                methods: vec![],
                expected_bottleneck: "memory".to_owned(),
                ..Subtask::default()
            }],
            correctness_risks: vec![],
        }
    }

    fn with(change: impl FnOnce(&mut Plan)) -> Result<(), PlanProblem> {
        let mut plan = good();
        change(&mut plan);
        validate_plan(&plan, &operators())
    }

    #[test]
    fn a_good_plan_is_accepted() {
        assert_eq!(with(|_| {}), Ok(()));
    }

    #[test]
    fn each_fault_of_a_plan_is_named() {
        assert_eq!(with(|plan| plan.subtasks.clear()), Err(PlanProblem::Subtasks(0)));
        let nine = vec![good().subtasks.remove(0); 9];
        assert_eq!(with(|plan| plan.subtasks = nine), Err(PlanProblem::Subtasks(9)));
        assert_eq!(with(|plan| plan.summary.clear()), Err(PlanProblem::Empty("summary".to_owned())));
        let empty = |field: &str| Err(PlanProblem::Empty(format!("subtasks[0].{field}")));
        assert_eq!(with(|plan| plan.subtasks[0].title = " ".to_owned()), empty("title"));
        assert_eq!(with(|plan| plan.subtasks[0].scope.clear()), empty("scope"));
        let unknown = with(|plan| plan.subtasks[0].scope.push("gelu".to_owned()));
        assert!(unknown.is_err_and(|problem| problem.to_string().contains("`gelu`; the task has softmax")));
        let vague = with(|plan| plan.subtasks[0].expected_bottleneck = "everything".to_owned());
        assert!(matches!(vague, Err(PlanProblem::Bottleneck { .. })));
        assert!(matches!(with(|plan| plan.subtasks[0].target_speedup = Some(f64::NAN)), Err(PlanProblem::Speedup(_))));
        assert!(matches!(with(|plan| plan.summary = "x".repeat(MAX_TEXT_BYTES + 1)), Err(PlanProblem::TooLong(_))));
    }

    #[test]
    #[expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
    fn a_border_has_the_element_type_of_the_model_or_of_the_task_folder() {
        let tensor = |dtype: &str| {
            serde_json::from_value(
                serde_json::json!({"name": "labels", "dtype": dtype, "shape": ["8"], "layout": "row_major"}),
            )
            .unwrap()
        };
        let spec: TaskSpec = serde_json::from_value(serde_json::json!({
            "schema": 1, "name": "loss", "title": "Loss", "description": "A loss.", "target": "cuda", "form": "torch",
            "reference": "reference.py", "dims": {}, "inputs": [{"name": "labels", "dtype": "i32", "shape": [8]}],
            "outputs": [], "tolerance": {"atol": 1e-4, "rtol": 1e-4}, "torch": {"types": {"labels": "int64"}},
        }))
        .unwrap();
        let checked = |dtype: &str| {
            let mut plan = good();
            plan.subtasks[0].contract.inputs = vec![tensor(dtype)];
            check_borders(&plan, &spec)
        };
        assert_eq!((checked("i64"), checked("i32")), (Ok(()), Ok(())));
        let refused = checked("f32").unwrap_err().to_string();
        assert!(refused.contains("as f32") && refused.contains("as i64"), "{refused}");
    }

    #[test]
    fn a_scope_may_name_every_operator_of_a_large_task() {
        let names: Vec<String> = (0..=MAX_LIST).map(|number| format!("conv{number}")).collect();
        let operators: Vec<OperatorSpec> =
            names.iter().map(|name| OperatorSpec { name: name.clone(), ..OperatorSpec::default() }).collect();
        let mut plan = good();
        plan.subtasks[0].scope.clone_from(&names);
        assert_eq!(validate_plan(&plan, &operators), Ok(()));
        plan.subtasks[0].scope.push(names[0].clone());
        assert_eq!(validate_plan(&plan, &operators), Err(PlanProblem::TooLong("subtasks[0].scope".to_owned())));
    }

    #[test]
    fn a_task_without_operators_takes_any_scope() {
        assert_eq!(validate_plan(&good(), &[]), Ok(()));
    }
}
