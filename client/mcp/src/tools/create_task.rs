//! `create_task`.

use std::collections::BTreeMap;

use nightshift_protocol::access::Role;
use nightshift_protocol::task::Target;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::in_background;
use super::list_tasks::language;
use crate::error::ToolError;
use crate::limits::MAX_TASK_FILES;
use crate::text::{lines, name};
use crate::tool::{Access, Call, Effect, Tool};

pub(crate) struct CreateTask;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    /// The texts of the task's files by their names. A native task: `task.toml` and the reference that it names. A task of
    /// PyTorch: one file NAME.py that defines `Model` and `get_inputs`.
    files: BTreeMap<String, String>,
    /// The hardware for a file of PyTorch; default: a GPU if this machine has one. task.toml names its own.
    target: Option<TaskTarget>,
}

/// The hardware of a task.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum TaskTarget {
    Cpu,
    Cuda,
}

impl From<TaskTarget> for Target {
    fn from(target: TaskTarget) -> Self {
        match target {
            TaskTarget::Cpu => Self::Cpu,
            TaskTarget::Cuda => Self::Cuda,
        }
    }
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Answer {
    /// Id of the task, for describe_task and create_campaign. The same files have the same id.
    task: String,
    /// Its name.
    name: String,
    /// `cpu` or `cuda`.
    target: &'static str,
    /// Language of the programs.
    language: &'static str,
    /// Names of the checked shapes, the default one first.
    shapes: Vec<String>,
    /// What to do next.
    next: &'static str,
}

impl Tool for CreateTask {
    const NAME: &'static str = "create_task";
    const TITLE: &'static str = "Create a task";
    const DESCRIPTION: &'static str = "Makes a task from the texts of its files and stores it on the server: from task.toml and a native reference, or \
        (with `nightshift mcp` on a machine with PyTorch) from a PyTorch file. Errors name file and line. Give the id to create_campaign.";
    const ACCESS: Access = Access::Needs(Role::Operator);
    const EFFECT: Effect = Effect::Adds;
    type Arguments = Arguments;
    type Answer = Answer;

    async fn call(call: &Call<'_>, arguments: Arguments) -> Result<Answer, ToolError> {
        let files = arguments.files;
        if files.is_empty() || files.len() > MAX_TASK_FILES {
            let message = format!("`files` has between 1 and {MAX_TASK_FILES} files");
            return Err(ToolError::new("request.invalid_arguments", message));
        }
        let tasks = call.shared.tasks.clone();
        let target = arguments.target.map(Target::from);
        let bundle = in_background(move || tasks.create(&files, target)).await?;
        if let Some(target) = target.filter(|target| *target != bundle.spec.target) {
            let (wanted, own) = (target.as_str(), bundle.spec.target.as_str());
            let message = format!("`target` is {wanted}, and the files are a task for {own}");
            return Err(ToolError::new("request.invalid_arguments", message)
                .hint("leave `target` out, or change `target` in task.toml"));
        }
        let text = serde_json::to_vec(&bundle)
            .map_err(|error| ToolError::new("internal.json", format!("the task cannot be written: {error}")))?;
        let connection = call.connect().await?;
        Ok(Answer {
            task: connection.client.put_artifact(&text).await?.to_string(),
            name: name(&bundle.spec.name),
            target: bundle.spec.target.as_str(),
            language: language(&bundle),
            shapes: lines(bundle.spec.shape_names()),
            next: "describe_task shows how it was understood; create_campaign begins a campaign for it",
        })
    }
}
