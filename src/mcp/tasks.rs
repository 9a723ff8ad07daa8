//! Tasks of this machine.

use std::collections::BTreeMap;
use std::path::Path;

use nightshift_mcp::ToolError;
use nightshift_mcp::ports::{ListedTask, Tasks};
use nightshift_optimizer::task_file::TASK_FILE;
use nightshift_protocol::task::{Target, TaskBundle};
use nightshift_sandbox::process::CancelFlag;
use nightshift_worker::lease::WorkerConfig;

use super::judge::verify_args;
use crate::compose::mcp_tasks::{bundled, contract, from_texts, python_file, tool_error};
use crate::examples;
use crate::output::Output;
use crate::verify::load_task;

/// Most task folders of a folder that are read.
const MAX_FOLDERS: usize = 200;

/// Bundled examples, folders and files of this machine.
pub(crate) struct LocalTasks {
    config: WorkerConfig,
    output: Output,
}

impl LocalTasks {
    pub(crate) fn new(config: WorkerConfig, output: Output) -> Self {
        Self { config, output }
    }
}

impl LocalTasks {
    fn load_for(&self, task: &str, target: Option<Target>) -> Result<TaskBundle, ToolError> {
        let mut args = verify_args(task);
        args.model_use.target = target;
        let loaded = load_task(&args, &self.config, &CancelFlag::default(), self.output).map_err(tool_error)?;
        Ok(loaded.bundle)
    }
}

impl Tasks for LocalTasks {
    fn list(&self, folder: Option<&str>) -> Result<Vec<ListedTask>, ToolError> {
        let mut listed = bundled()?;
        if let Some(folder) = folder {
            listed.extend(in_folder(Path::new(folder))?);
        }
        Ok(listed)
    }

    fn load(&self, task: &str) -> Result<TaskBundle, ToolError> {
        self.load_for(task, None)
    }

    fn create(&self, files: &BTreeMap<String, String>, target: Option<Target>) -> Result<TaskBundle, ToolError> {
        let Some((name, text)) = python_file(files) else { return from_texts(files) };
        let is_plain = Path::new(name).file_name().is_some_and(|plain| plain == name);
        if !is_plain || files.len() > 1 {
            let message = "a task of PyTorch is one file with a plain name";
            return Err(ToolError::new("request.invalid_arguments", message));
        }
        let failed =
            |error: std::io::Error| ToolError::new("worker.disk", format!("the file cannot be written: {error}"));
        let folder = tempfile::tempdir().map_err(failed)?;
        let path = folder.path().join(name);
        std::fs::write(&path, text).map_err(failed)?;
        self.load_for(&path.to_string_lossy(), target)
    }

    fn contract(&self, bundle: &TaskBundle) -> Result<String, ToolError> {
        contract(bundle)
    }
}

/// The task folders directly in this folder. Folders with a task that is not valid are left out: `describe_task` says why.
fn in_folder(folder: &Path) -> Result<Vec<ListedTask>, ToolError> {
    let entries = std::fs::read_dir(folder).map_err(|error| {
        ToolError::new("task.not_found", format!("the folder `{}` cannot be read: {error}", folder.display()))
    })?;
    let mut folders: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    folders.retain(|path| path.join(TASK_FILE).is_file());
    folders.sort();
    let load = |path: &std::path::PathBuf| {
        let loaded = examples::from_folder(path).ok()?;
        Some(ListedTask { task: path.display().to_string(), bundle: loaded.bundle })
    };
    Ok(folders.iter().take(MAX_FOLDERS).filter_map(load).collect())
}
