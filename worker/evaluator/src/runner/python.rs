//! The runner of models of `PyTorch`: this process becomes a Python process that answers the same messages on the same descriptors.

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;

use nightshift_sandbox::python_filter;
use nightshift_toolchain::python::{ARGUMENTS, environment, flags};
use rustix::io::{FdFlags, fcntl_setfd};
use serde_json::{Value, json};

use super::message::{PythonPlan, StartPlan};

/// Answers the evaluator's messages, in Python.
const EVALUATOR: &str =
    concat!(include_str!("python/program.py"), include_str!("python/memory.py"), include_str!("python/serve.py"));

/// Executes a Python process in the place of this process. Returns only when that fails, with the reason. Of the descriptors the first
/// is the channel, the second the control page.
#[must_use]
pub fn become_python(plan: &str, descriptors: &[OwnedFd]) -> String {
    try_to_become_python(plan, descriptors).unwrap_or_else(|message| message)
}

fn try_to_become_python(plan: &str, descriptors: &[OwnedFd]) -> Result<String, String> {
    let plan: StartPlan = serde_json::from_str(plan).map_err(|error| format!("the plan cannot be read: {error}"))?;
    let python = plan.python.as_ref().ok_or("the plan names no Python")?;
    let [channel, page] = descriptors else { return Err("the runner was given no descriptors".to_owned()) };
    let filter = if plan.filtered { Some(python_filter(plan.on_device)?) } else { None };
    stay_open(channel)?;
    stay_open(page)?;
    let scratch = python.scratch.clone().unwrap_or_else(|| "/".into());
    let start = json!({
        "plan": {"on_device": plan.on_device},
        "channel": channel.as_raw_fd(),
        "page": page.as_raw_fd(),
        "filter": filter,
    });
    let mut env = environment(&scratch, python.models.as_deref());
    env.push(("TMPDIR".to_owned(), scratch.to_string_lossy().into_owned()));
    Ok(execute(python, &start, env))
}

/// Executes a Python process that repeats a call of a program between the marks of profilers. Returns only when that fails, with the
/// reason. The environment is that of the tool in front of it.
pub(crate) fn become_replay(python: &PythonPlan, plan: &Value, replay: &Value) -> String {
    let home = std::env::var_os("HOME").unwrap_or_else(|| "/".into());
    let env = environment(Path::new(&home), python.models.as_deref());
    execute(python, &json!({"plan": plan, "replay": replay}), env)
}

fn execute(python: &PythonPlan, start: &Value, env: Vec<(String, String)>) -> String {
    let mut args: Vec<OsString> = flags(python.bytecode.as_deref());
    args.extend(["-c".into(), format!("{ARGUMENTS}{EVALUATOR}").into(), start.to_string().into()]);
    #[expect(clippy::disallowed_methods, reason = "replaces this process and starts no other")]
    let error = std::process::Command::new(&python.program).args(args).envs(env).exec();
    format!("executing {}: {error}", python.program.display())
}

fn stay_open(descriptor: &impl AsFd) -> Result<(), String> {
    fcntl_setfd(descriptor.as_fd(), FdFlags::empty()).map_err(|error| format!("keeping a descriptor open: {error}"))
}
