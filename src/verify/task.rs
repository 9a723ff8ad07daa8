//! The task of `verify`: a folder, a bundled example, or a file of `PyTorch`.

use std::path::{Path, PathBuf};

use nightshift_optimizer::task_file::TASK_FILE;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::task::{CandidateForm, MAX_TENSOR_BYTES, PYTHON_EXTENSION, Target, TaskBundle, TaskSpec};
use nightshift_sandbox::process::CancelFlag;
use nightshift_toolchain::inspect::{InspectOptions, inspect};
use nightshift_toolchain::python::{self, Python};
use nightshift_worker::execute::jail_host_of;
use nightshift_worker::lease::WorkerConfig;

use crate::args::{Precision, Verify};
use crate::examples;
use crate::failure::{Failure, INTERRUPTED, Result};
use crate::kernelbench::files::{self, ModelFile};
use crate::kernelbench::task::{self, Wish};
use crate::output::Output;

/// Where what was found out about files is kept, below the worker's cache.
const IMPORTED: &str = "imported";

/// How long the inspection of a file may take, in milliseconds.
const INSPECTION_MS: u64 = 120_000;

/// Loads the task, at the shape that was asked for.
pub(crate) fn load(args: &Verify, config: &WorkerConfig, cancel: &CancelFlag, output: Output) -> Result<TaskBundle> {
    let path = Path::new(&args.task);
    let is_python = path.extension().is_some_and(|extension| extension == PYTHON_EXTENSION);
    let bundle = if is_python {
        imported(path, args, config, cancel, output)?
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

/// A task made of a file with `Model`, `get_inputs` and `get_init_inputs`.
fn imported(
    path: &Path,
    args: &Verify,
    config: &WorkerConfig,
    cancel: &CancelFlag,
    output: Output,
) -> Result<TaskBundle> {
    if !path.is_file() {
        return Err(Failure::new("task.not_found", format!("there is no file `{}`", path.display())));
    }
    let source = files::read(path).map_err(|failure| {
        Failure::new(&failure.error.code, format!("{}: {}", path.display(), failure.error.message))
    })?;
    let file = ModelFile::new(path.to_path_buf())
        .ok_or_else(|| Failure::new("task.not_found", format!("`{}` is no file of Python", path.display())))?;
    let target = args.target.unwrap_or(if config.gpus.usable().is_empty() { Target::Cpu } else { Target::Cuda });
    let wish = Wish {
        target,
        form: CandidateForm::Torch,
        half: args.precision != Precision::Fp32,
        training: !args.eval,
        origin: None,
    };
    let python = python::find(config.python.as_deref(), &config.search_path)
        .and_then(|python| config.hf_home.as_deref().into_iter().try_fold(python, Python::with_models))
        .map_err(|error| Failure::new(error.code(), error.to_string()))?;
    let key = format!(
        "{}\n{}\n{target:?} {} {}\n{}\n{source}",
        env!("CARGO_PKG_VERSION"),
        python.toolchain().fingerprint,
        args.precision.as_str(),
        wish.training,
        file.label()
    );
    let kept = config.cache_dir.join(IMPORTED).join(format!("{}.json", ArtifactHash::of(key.as_bytes())));
    if let Some(spec) = std::fs::read(&kept).ok().and_then(|text| serde_json::from_slice::<TaskSpec>(&text).ok()) {
        return Ok(TaskBundle { spec, reference_source: source, library_source: None });
    }
    output.note(&format!("{}: inspecting the model, once for this file", path.display()));
    let host = jail_host_of(&config.executable, &config.cache_dir);
    let failed = |error: std::io::Error| Failure::new("worker.disk", format!("a folder cannot be made: {error}"));
    let scratch = tempfile::tempdir().map_err(failed)?;
    let folder = scratch.path().canonicalize().map_err(failed)?;
    let options = InspectOptions {
        precision: args.precision.as_str().to_owned(),
        training: wish.training,
        max_bytes: MAX_TENSOR_BYTES,
        wall_ms: INSPECTION_MS,
    };
    let inspected = inspect(&host, &python, &source, &options, &folder, cancel);
    if cancel.is_cancelled() {
        return Err(Failure::new(INTERRUPTED, "stopped while the model was inspected"));
    }
    let found = inspected.map_err(|error| Failure::new("internal.import", error.to_string()))?.map_err(|error| {
        let line = error.line.map_or_else(String::new, |line| format!(":{line}"));
        Failure::new(error.code, format!("{}{line}: {}", path.display(), error.message))
    })?;
    let spec = task::spec(&file, &found, &wish);
    // What cannot be kept is found out again.
    if let Err(error) = keep(&kept, &spec) {
        tracing::warn!(error = %error, "what was found out about a model could not be kept");
    }
    Ok(TaskBundle { spec, reference_source: source, library_source: None })
}

fn keep(path: &PathBuf, spec: &TaskSpec) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    serde_json::to_writer(&mut file, spec).map_err(std::io::Error::other)?;
    file.persist(path)?;
    Ok(())
}
