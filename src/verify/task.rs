//! The task of `verify`: a folder, a bundled example, or a file of `PyTorch`.

use std::path::Path;

use nightshift_optimizer::task_file::TASK_FILE;
use nightshift_protocol::task::{Target, TaskBundle, TaskSpec};
use nightshift_sandbox::process::CancelFlag;
use nightshift_worker::lease::WorkerConfig;

use crate::args::Verify;
use crate::examples;
use crate::failure::{Failure, Result};
use crate::kernelbench::one_file::{self, is_python};
use crate::output::Output;

/// A task as it is judged.
pub(crate) struct LoadedTask {
    /// The task, at the shape and under the policy that were asked for.
    pub(crate) bundle: TaskBundle,
    /// What a judgement leaves out of what the task asks for, each in one sentence.
    pub(crate) unexamined: Vec<String>,
}

/// Loads the task, at the shape that was asked for.
pub(crate) fn load(args: &Verify, config: &WorkerConfig, cancel: &CancelFlag, output: Output) -> Result<LoadedTask> {
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
    let unexamined = unexamined(args, &bundle.spec);
    let bundle = match args.policy {
        Some(policy) => TaskBundle { spec: bundle.spec.under(policy), ..bundle },
        None => bundle,
    };
    let Some(shape) = &args.shape else { return Ok(LoadedTask { bundle, unexamined }) };
    let spec = bundle.spec.at_shape(shape).ok_or_else(|| {
        let names: Vec<&str> = bundle.spec.shape_names().collect();
        Failure::new(
            "request.no_such_shape",
            format!("`{}` has no shape `{shape}`, but {}", bundle.spec.name, names.join(", ")),
        )
    })?;
    Ok(LoadedTask { bundle: TaskBundle { spec, ..bundle }, unexamined })
}

/// Returns what a judgement with these arguments leaves out of what the task asks for.
fn unexamined(args: &Verify, task: &TaskSpec) -> Vec<String> {
    let shape = args.shape.as_ref().filter(|_| !task.variants.is_empty());
    let policy = args.policy.filter(|policy| *policy != task.precision);
    let shape = shape.map(|shape| format!("only the shape `{shape}` was checked, of {}", task.shape_names().count()));
    let policy = policy.map(|policy| {
        format!(
            "it was judged under the precision policy {} instead of the task's {}",
            policy.as_str(),
            task.precision.as_str()
        )
    });
    let sanitizer = (task.target == Target::Cuda).then(|| "no sanitizer looked at it".to_owned());
    [shape, policy, sanitizer].into_iter().flatten().collect()
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
