//! `describe_task`.

use nightshift_protocol::task::{ConcreteTensor, TaskBundle};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::list_tasks::language;
use super::load_task;
use crate::ellipsis::cut;
use crate::error::ToolError;
use crate::program::json;
use crate::text::{Window, line, lines, name};
use crate::tool::{Access, Call, Effect, Tool};

/// Maximum size of a description, in bytes.
const MAX_DESCRIPTION_BYTES: usize = 1_500;

pub(crate) struct DescribeTask;

/// A part of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TaskSection {
    /// The contract of programs: entry points, rules, header.
    Contract,
    /// The source of the reference.
    Reference,
    /// The whole specification, with every shape, tolerance and limit.
    Specification,
}

impl TaskSection {
    /// Every section.
    pub(crate) const ALL: [Self; 3] = [Self::Contract, Self::Reference, Self::Specification];

    /// Returns the name in arguments and addresses.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Contract => "contract",
            Self::Reference => "reference",
            Self::Specification => "specification",
        }
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    /// Name of a task of list_tasks, or an id from create_task; on this machine (stdio) also a folder with a task.toml or
    /// a PyTorch file.
    task: String,
    /// Return this section as text, instead of the summary.
    section: Option<TaskSection>,
    /// Offset of the text in bytes: `next_offset` of the previous part.
    offset: Option<u64>,
    /// Maximum size of the part in bytes; default 6144, at most 24576.
    limit: Option<u32>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Answer {
    /// Name of the task.
    task: String,
    /// The summary; none if a section was requested.
    summary: Option<Summary>,
    /// The part of the section, if requested.
    section: Option<Window>,
    /// Values of `section`.
    sections: Vec<&'static str>,
}

#[derive(Serialize, JsonSchema)]
struct Summary {
    /// What it computes, in one line.
    title: String,
    /// What it computes.
    description: String,
    /// `cpu` or `cuda`.
    target: &'static str,
    /// Language of the programs.
    language: &'static str,
    /// Inputs, weights and outputs at the default shape.
    tensors: Vec<String>,
    /// Names of the checked shapes, the default one first.
    shapes: Vec<String>,
    /// Tolerance of the outputs.
    tolerance: String,
    /// Required precision of programs.
    precision: String,
    /// Operators of the reference, in execution order.
    operators: Vec<String>,
    /// Floating-point operations of one call at the default shape, when known.
    flops: Option<f64>,
    /// Minimum bytes moved by one call at the default shape, when known.
    bytes: Option<f64>,
    /// Libraries that programs may use.
    libraries: Vec<&'static str>,
    /// Memory and time limits of a program.
    limits: String,
}

impl Tool for DescribeTask {
    const NAME: &'static str = "describe_task";
    const TITLE: &'static str = "Describe a task";
    const DESCRIPTION: &'static str = "Describes a task: what it computes, tensors, shapes, tolerance, limits. With `section`: `contract` (what a \
        program has to be like: read it before the first program), `reference` (the source to be replaced), `specification`. \
        Sections come in parts: go on with `offset`.";
    const ACCESS: Access = Access::Open;
    const EFFECT: Effect = Effect::Reads;
    type Arguments = Arguments;
    type Answer = Answer;

    async fn call(call: &Call<'_>, arguments: Arguments) -> Result<Answer, ToolError> {
        let bundle = load_task(call, &arguments.task).await?;
        let part =
            |wanted: TaskSection| Window::of(&section(call, &bundle, wanted)?, arguments.offset, arguments.limit);
        let section = arguments.section.map(part).transpose()?;
        Ok(Answer {
            task: name(&bundle.spec.name),
            summary: section.is_none().then(|| summary(&bundle)),
            section,
            sections: TaskSection::ALL.map(TaskSection::as_str).to_vec(),
        })
    }
}

/// Returns a section as text.
pub(crate) fn section(call: &Call<'_>, bundle: &TaskBundle, wanted: TaskSection) -> Result<String, ToolError> {
    match wanted {
        TaskSection::Contract => call.shared.tasks.contract(bundle),
        TaskSection::Reference => Ok(bundle.reference_source.clone()),
        TaskSection::Specification => Ok(json(&bundle.spec)),
    }
}

fn summary(bundle: &TaskBundle) -> Summary {
    let spec = &bundle.spec;
    let tensor = |role: &str, tensor: &ConcreteTensor| {
        let shape: Vec<String> = tensor.shape.iter().map(ToString::to_string).collect();
        format!("{role} {}: {:?} [{}]", tensor.name, tensor.dtype, shape.join(", ")).to_lowercase()
    };
    let tensors = spec.default_shapes().map(|shapes| {
        let of = |role, all: &[ConcreteTensor]| all.iter().map(|one| tensor(role, one)).collect::<Vec<_>>();
        [of("input", &shapes.inputs), of("weight", &shapes.params), of("output", &shapes.outputs)].concat()
    });
    let tolerance = spec.effective_tolerance();
    let (limits, mib) = (&spec.limits, 1024 * 1024);
    Summary {
        title: name(&spec.title),
        description: cut(spec.description.trim(), MAX_DESCRIPTION_BYTES),
        target: spec.target.as_str(),
        language: language(bundle),
        tensors: lines(tensors.unwrap_or_default()),
        shapes: lines(spec.shape_names()),
        tolerance: format!("|result - truth| <= {:e} + {:e} * |truth|", tolerance.atol, tolerance.rtol),
        precision: line(&format!("{}: {}", spec.precision.as_str(), spec.precision.allows())),
        operators: lines(spec.operators.iter().map(|operator| format!("{} ({})", operator.name, operator.class))),
        flops: spec.flops,
        bytes: spec.bytes,
        libraries: spec.libraries.iter().map(|library| library.as_str()).collect(),
        limits: format!(
            "{} MiB beside the tensors, {} ms per call, {} ms per build",
            limits.memory_bytes / mib,
            limits.call_timeout_ms,
            limits.build_timeout_ms
        ),
    }
}
