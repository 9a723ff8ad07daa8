//! `list_tasks`.

use nightshift_protocol::task::TaskBundle;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::in_background;
use crate::error::ToolError;
use crate::limits::{MAX_ROWS, ROWS};
use crate::text::name;
use crate::tool::{Access, Call, Effect, Tool};

pub(crate) struct ListTasks;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    /// Only tasks whose name or title contains this text.
    query: Option<String>,
    /// Also list the task folders (with a `task.toml`) directly in this folder. Only if the MCP server runs on this
    /// machine (stdio).
    folder: Option<String>,
    /// Number of tasks to skip: `next_offset` of the previous page.
    offset: Option<u32>,
    /// Tasks per page, at most 15.
    limit: Option<u32>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Answer {
    /// The tasks.
    tasks: Vec<Row>,
    /// Offset of the next page; none at the end.
    next_offset: Option<u32>,
    /// Number of matching tasks.
    total: u32,
}

#[derive(Serialize, JsonSchema)]
struct Row {
    /// The `task` argument of describe_task and verify_program.
    task: String,
    /// What it computes, in one line.
    title: String,
    /// `cpu` or `cuda`.
    target: &'static str,
    /// Language of the programs.
    language: &'static str,
    /// Required precision of programs.
    precision: &'static str,
    /// Names of the shapes.
    shapes: String,
}

impl Tool for ListTasks {
    const NAME: &'static str = "list_tasks";
    const TITLE: &'static str = "List tasks";
    const DESCRIPTION: &'static str = "Lists tasks that programs can be verified for: the bundled examples and, on this machine, task folders. \
        A task is a reference program with its contract, tolerance and shapes. Begin here when the user names no task; a folder with a \
        task.toml or a file of PyTorch with `Model`, `get_inputs` and `get_init_inputs` can be given to describe_task and verify_program directly.";
    const ACCESS: Access = Access::Open;
    const EFFECT: Effect = Effect::Reads;
    type Arguments = Arguments;
    type Answer = Answer;

    async fn call(call: &Call<'_>, arguments: Arguments) -> Result<Answer, ToolError> {
        let tasks = call.shared.tasks.clone();
        let folder = arguments.folder;
        let listed = in_background(move || tasks.list(folder.as_deref())).await?;
        let query = arguments.query.unwrap_or_default().to_lowercase();
        let fitting: Vec<_> = listed
            .into_iter()
            .filter(|listed| {
                let has = |text: &str| text.to_lowercase().contains(&query);
                has(&listed.task) || has(&listed.bundle.spec.title)
            })
            .collect();
        let total = u32::try_from(fitting.len()).unwrap_or(u32::MAX);
        let offset = arguments.offset.unwrap_or(0);
        let limit = arguments.limit.unwrap_or(ROWS).clamp(1, MAX_ROWS);
        let page = fitting.into_iter().skip(offset as usize).take(limit as usize);
        let rows: Vec<Row> = page
            .map(|listed| Row {
                task: name(&listed.task),
                title: name(&listed.bundle.spec.title),
                target: listed.bundle.spec.target.as_str(),
                language: language(&listed.bundle),
                precision: listed.bundle.spec.precision.as_str(),
                shapes: name(&listed.bundle.spec.shape_names().collect::<Vec<_>>().join(", ")),
            })
            .collect();
        let next = offset.saturating_add(limit);
        Ok(Answer { tasks: rows, next_offset: (next < total).then_some(next), total })
    }
}

/// Returns the language of a task's programs.
pub(super) fn language(bundle: &TaskBundle) -> &'static str {
    use nightshift_protocol::task::Target;
    match (&bundle.spec.torch, bundle.spec.target) {
        (Some(_), _) => "python (ModelNew) or native",
        (None, Target::Cpu) => "c++",
        (None, Target::Cuda) => "cuda c++",
    }
}
