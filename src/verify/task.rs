//! The task of `verify`: a folder, a bundled example, or a file of `PyTorch`.

use std::path::Path;

use nightshift_optimizer::task_file::TASK_FILE;
use nightshift_protocol::task::TaskBundle;
use nightshift_sandbox::process::CancelFlag;
use nightshift_worker::lease::WorkerConfig;

use crate::args::Verify;
use crate::examples;
use crate::failure::{Failure, Result};
use crate::kernelbench::one_file::{self, is_python};
use crate::output::Output;

/// Loads the task, at the shape that was asked for.
pub(crate) fn load(args: &Verify, config: &WorkerConfig, cancel: &CancelFlag, output: Output) -> Result<TaskBundle> {
    let path = Path::new(&args.task);
    let bundle = if is_python(path) {
        one_file::load(path, args.model_use, config, cancel, output)?
    } else if path.is_dir() {
        examples::from_folder(path)?.bundle
    } else if path.is_file() {
        in_folder_of(path)?
    } else {
        examples::one(&args.task)?.bundle
    };
    one_file::check_use(args.model_use, &bundle.spec)?;
    let bundle = match args.policy {
        Some(policy) => TaskBundle { spec: bundle.spec.under(policy), ..bundle },
        None => bundle,
    };
    let Some(shape) = &args.shape else { return Ok(bundle) };
    let spec = bundle.spec.at_shape(shape).ok_or_else(|| {
        let names: Vec<&str> = bundle.spec.shape_names().collect();
        Failure::new(
            "request.no_such_shape",
            format!("`{}` has no shape `{shape}`, but {}", bundle.spec.name, names.join(", ")),
        )
    })?;
    Ok(TaskBundle { spec, ..bundle })
}

/// A task that is named by its file.
fn in_folder_of(path: &Path) -> Result<TaskBundle> {
    let folder = path.parent().filter(|_| path.file_name().is_some_and(|name| name == TASK_FILE));
    let Some(folder) = folder else {
        return Err(Failure::new(
            "task.not_found",
            format!(
                "`{}` is no task: a task is a folder with a {TASK_FILE}, an example, or a file of PyTorch",
                path.display()
            ),
        ));
    };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    Ok(examples::from_folder(folder)?.bundle)
}
