//! Tasks that a server offers to coding agents: the bundled examples.

use std::collections::BTreeMap;
use std::path::Path;

use nightshift_mcp::ToolError;
use nightshift_mcp::ports::{ListedTask, Tasks};
use nightshift_optimizer::prompt::{PromptError, Prompts};
use nightshift_optimizer::task_file::{self, TASK_FILE};
use nightshift_protocol::task::{CandidateForm, Target, TaskBundle};

use crate::examples;
use crate::failure::Failure;

/// The bundled examples.
pub(crate) struct BundledTasks;

impl Tasks for BundledTasks {
    fn list(&self, folder: Option<&str>) -> Result<Vec<ListedTask>, ToolError> {
        if folder.is_some() {
            return Err(ToolError::new("request.invalid_arguments", "a server reads no folders: leave `folder` out")
                .hint("`nightshift mcp` on your machine reads yours"));
        }
        bundled()
    }

    fn load(&self, task: &str) -> Result<TaskBundle, ToolError> {
        Ok(examples::one(task).map_err(tool_error)?.bundle)
    }

    fn create(&self, files: &BTreeMap<String, String>, _target: Option<Target>) -> Result<TaskBundle, ToolError> {
        if python_file(files).is_some() {
            return Err(ToolError::new("task.no_python", "a server imports no files of PyTorch: it runs no Python").hint(
                "ask the user for `nightshift mcp --server ADDRESS` on a machine with PyTorch, and call create_task there",
            ));
        }
        from_texts(files)
    }

    fn contract(&self, bundle: &TaskBundle) -> Result<String, ToolError> {
        contract(bundle)
    }
}

/// The name of the file of PyTorch that the task is to be made from; none for a native task.
pub(crate) fn python_file(files: &BTreeMap<String, String>) -> Option<(&str, &str)> {
    let is_native = files.contains_key(TASK_FILE);
    let is_python = |name: &str| Path::new(name).extension().is_some_and(|extension| extension == "py");
    let (name, text) = files.iter().find(|(name, _)| is_python(name)).filter(|_| !is_native)?;
    Some((name, text))
}

/// Makes a native task.
pub(crate) fn from_texts(files: &BTreeMap<String, String>) -> Result<TaskBundle, ToolError> {
    task_file::from_texts(files).map_err(|error| ToolError::new(error.code(), error.to_string()))
}

/// The bundled examples.
pub(crate) fn bundled() -> Result<Vec<ListedTask>, ToolError> {
    let load = |name: String| {
        let loaded = examples::one(&name).map_err(tool_error)?;
        Ok(ListedTask { task: name, bundle: loaded.bundle })
    };
    examples::names().into_iter().map(load).collect()
}

/// Returns the contract of the task's programs, for each form that it allows.
pub(crate) fn contract(bundle: &TaskBundle) -> Result<String, ToolError> {
    let failed = |error: PromptError| ToolError::new(error.code(), error.to_string());
    let prompts = Prompts::embedded().map_err(failed)?;
    let native_only = bundle.spec.torch.is_none();
    let forms: &[CandidateForm] =
        if native_only { &[CandidateForm::Native] } else { &[CandidateForm::Torch, CandidateForm::Native] };
    let text = |form: &CandidateForm| {
        let text = prompts.contract(bundle, *form).map_err(|failure| ToolError::new(&failure.code, failure.message))?;
        Ok(format!("# Programs in the form `{}`\n\n{text}", form.as_str()))
    };
    Ok(forms.iter().map(text).collect::<Result<Vec<_>, ToolError>>()?.join("\n\n"))
}

/// Converts the error of a command to one of a tool.
pub(crate) fn tool_error(failure: Failure) -> ToolError {
    let error = ToolError::new(&failure.error.code, failure.error.message);
    match failure.hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}
