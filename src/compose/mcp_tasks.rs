//! Tasks that a server offers to coding agents: the bundled examples.

use nightshift_mcp::ToolError;
use nightshift_mcp::ports::{ListedTask, Tasks};
use nightshift_optimizer::prompt::{PromptError, Prompts};
use nightshift_protocol::task::{CandidateForm, TaskBundle};

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

    fn contract(&self, bundle: &TaskBundle) -> Result<String, ToolError> {
        contract(bundle)
    }
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
