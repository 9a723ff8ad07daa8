//! The task of `verify`: a folder, a bundled example, or a file of `PyTorch`.

use std::path::Path;

use nightshift_optimizer::task_file::TASK_FILE;
use nightshift_protocol::task::{Target, TaskBundle, TaskSpec};
use nightshift_sandbox::process::CancelFlag;
use nightshift_worker::lease::WorkerConfig;

use crate::args::{Precision, Verify};
use crate::examples;
use crate::failure::{Failure, Result};
use crate::kernelbench::one_file::{self, ModelUse, is_python};
use crate::output::Output;

/// Loads the task, at the shape that was asked for.
pub(crate) fn load(args: &Verify, config: &WorkerConfig, cancel: &CancelFlag, output: Output) -> Result<TaskBundle> {
    let path = Path::new(&args.task);
    let bundle = if is_python(path) {
        let model_use = ModelUse { target: args.target, precision: args.precision, eval: args.eval };
        one_file::load(path, model_use, config, cancel, output)?
    } else if path.is_dir() {
        examples::from_folder(path)?.bundle
    } else if path.is_file() {
        in_folder_of(path)?
    } else {
        examples::one(&args.task)?.bundle
    };
    fit(args, &bundle.spec)?;
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

/// Refuses options that the task cannot follow.
fn fit(args: &Verify, spec: &TaskSpec) -> Result<()> {
    let refused = |message: String| Err(Failure::new("request.not_for_this_task", message));
    match args.target {
        Some(target) if target != spec.target => refused(format!(
            "`{}` is a task for the `{}` target, and not for `{}`: only files of PyTorch can be judged on either",
            spec.name,
            spec.target.as_str(),
            target.as_str()
        )),
        _ if args.precision != Precision::Fp32 && spec.target == Target::Cpu => refused(format!(
            "`{}` is judged on the `cpu` target, where models are called with 32-bit floats alone",
            spec.name
        )),
        _ => Ok(()),
    }
}
