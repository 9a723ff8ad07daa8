//! The runner of models of `PyTorch`: this process becomes a Python with our evaluator, which answers the same messages on
//! the same descriptors.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};
use serde_json::json;

use super::plan::RunnerPlan;
use crate::sandbox::filter_for_python;
use crate::torch::inspect::environment;

/// Answers the parent's messages, in Python.
const EVALUATOR: &str = include_str!("../torch/evaluator.py");

/// What is executed.
pub(crate) struct PythonCall {
    /// The Python.
    pub(crate) program: PathBuf,
    /// Its arguments.
    pub(crate) args: Vec<OsString>,
    /// Its environment, beside what this process has.
    pub(crate) env: Vec<(String, String)>,
    /// The plan, in a file without a name that stays open.
    _plan: File,
}

/// Gets everything ready for Python: the plan in a file, and the descriptors such that they stay open.
pub(crate) fn python_call(plan: &mut RunnerPlan, descriptors: &[OwnedFd]) -> Result<PythonCall, String> {
    let [memory, channel] = descriptors else { return Err("the runner was given no descriptors".to_owned()) };
    let (filtered, on_device) = (plan.filtered, plan.on_device);
    let Some(torch) = &mut plan.torch else { return Err("the plan has no model of PyTorch".to_owned()) };
    if filtered {
        torch.filter = Some(filter_for_python(on_device)?);
    }
    let program = torch.python.clone();
    let torch_scratch = torch.scratch.as_ref().map(|folder| folder.to_string_lossy().into_owned());
    let file = written(plan).map_err(|error| format!("handing over the plan: {error}"))?;
    for descriptor in [memory.as_fd(), channel.as_fd(), file.as_fd()] {
        fcntl_setfd(descriptor, FdFlags::empty()).map_err(|error| format!("keeping a descriptor open: {error}"))?;
    }
    let given =
        json!({"plan": file.as_raw_fd(), "arena": memory.as_raw_fd(), "channel": channel.as_raw_fd()}).to_string();
    let args =
        ["-I", "-B", "-W", "ignore", "-c", EVALUATOR].into_iter().map(Into::into).chain([given.into()]).collect();
    let scratch = torch_scratch.unwrap_or_else(|| "/".to_owned());
    let env = environment(Path::new(&scratch)).into_iter().chain([("TMPDIR".to_owned(), scratch.clone())]).collect();
    Ok(PythonCall { program, args, env, _plan: file })
}

fn written(plan: &RunnerPlan) -> std::io::Result<File> {
    let mut file = File::from(memfd_create("nightshift-plan", MemfdFlags::CLOEXEC)?);
    file.write_all(&serde_json::to_vec(plan)?)?;
    file.rewind()?;
    Ok(file)
}
