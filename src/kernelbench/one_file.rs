//! A task made of one file with a model of `PyTorch`, without a folder: what `verify` and `optimize` take.

use std::path::Path;

use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::task::{CandidateForm, MAX_TENSOR_BYTES, PYTHON_EXTENSION, Target, TaskBundle, TaskSpec};
use nightshift_sandbox::process::CancelFlag;
use nightshift_toolchain::inspect::{InspectOptions, inspect};
use nightshift_toolchain::python::{self, Python};
use nightshift_worker::execute::jail_host_of;
use nightshift_worker::lease::WorkerConfig;

use super::files::{self, ModelFile};
use super::task::{self, ImportOptions};
use crate::args::{ModelUse, Precision};
use crate::failure::{Failure, INTERRUPTED, Result};
use crate::output::Output;

/// Folder of the results of inspections, below the worker's cache.
const IMPORTED: &str = "imported";
/// Form of what an inspection counts. Raised when the same file is counted differently; earlier results are not used then.
const INSPECTION: u32 = 2;

/// How long the inspection of a file may take, in milliseconds.
const INSPECTION_MS: u64 = 120_000;

/// Returns whether a path has the ending of a file of Python.
pub(crate) fn is_python(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == PYTHON_EXTENSION)
}

/// Refuses options that a task cannot follow, because it says itself how it is judged.
pub(crate) fn check_use(model_use: ModelUse, spec: &TaskSpec) -> Result<()> {
    let refused = |message: String| Err(Failure::new("request.not_for_this_task", message));
    match model_use.target {
        Some(target) if target != spec.target => refused(format!(
            "`{}` is a task for the `{}` target, and not for `{}`: only files of PyTorch can be judged on either",
            spec.name,
            spec.target.as_str(),
            target.as_str()
        )),
        _ if model_use.precision != Precision::Fp32 && spec.target == Target::Cpu => refused(format!(
            "`{}` is judged on the `cpu` target, where models are called with 32-bit floats alone",
            spec.name
        )),
        _ => Ok(()),
    }
}

/// Makes a task of a file with `Model`, `get_inputs` and `get_init_inputs`. Programs are files of Python. Blocks.
pub(crate) fn load(
    path: &Path,
    model_use: ModelUse,
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
    let target = model_use.target.unwrap_or(if config.gpus.usable().is_empty() { Target::Cpu } else { Target::Cuda });
    let wish = ImportOptions {
        target,
        form: CandidateForm::Torch,
        half: model_use.precision != Precision::Fp32,
        training: !model_use.eval,
        origin: None,
    };
    let python = python::find(config.python.as_deref(), &config.search_path, cancel)
        .and_then(|python| config.hf_home.as_deref().into_iter().try_fold(python, Python::with_models))
        .map_err(|error| Failure::new(error.code(), error.to_string()))?;
    let key = format!(
        "{} {INSPECTION}\n{}\n{target:?} {} {}\n{}\n{source}",
        env!("CARGO_PKG_VERSION"),
        python.toolchain().fingerprint,
        model_use.precision.as_str(),
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
        precision: model_use.precision.as_str().to_owned(),
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

fn keep(path: &Path, spec: &TaskSpec) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    serde_json::to_writer(&mut file, spec).map_err(std::io::Error::other)?;
    file.persist(path)?;
    Ok(())
}
