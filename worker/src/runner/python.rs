//! The runner of models of `PyTorch`: this process becomes a Python with our evaluator, which answers the same messages on
//! the same descriptors.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};
use serde_json::{Value, json};

use super::plan::RunnerPlan;
use nightshift_sandbox::python_filter;
use nightshift_toolchain::python::environment;
use nightshift_toolchain::python::flags;

/// Answers the parent's messages, in Python.
const EVALUATOR: &str = include_str!("../torch/evaluator.py");

const NO_MODEL: &str = "the plan has no model of PyTorch";

/// What is executed.
struct PythonCall {
    /// The Python.
    program: PathBuf,
    /// Its arguments.
    args: Vec<OsString>,
    /// Its environment, beside what this process has.
    env: Vec<(String, String)>,
    /// The plan, in a file without a name that stays open.
    _plan: File,
}

/// Executes a Python in the place of this process. Returns only when that fails, with the reason.
pub(crate) fn become_python(plan: &str, descriptors: &[OwnedFd]) -> String {
    let plan = serde_json::from_str::<RunnerPlan>(plan).map_err(|error| format!("the plan cannot be read: {error}"));
    match plan.and_then(|mut plan| python_call(&mut plan, descriptors)) {
        Err(message) => message,
        Ok(PythonCall { program, args, env, _plan }) => {
            #[expect(clippy::disallowed_methods, reason = "replaces this process and starts no other")]
            let error = std::process::Command::new(&program).args(args).envs(env).exec();
            format!("executing {}: {error}", program.display())
        }
    }
}

/// Gets everything ready for Python: the plan in a file, and the descriptors such that they stay open.
fn python_call(plan: &mut RunnerPlan, descriptors: &[OwnedFd]) -> Result<PythonCall, String> {
    let [memory, channel] = descriptors else { return Err("the runner was given no descriptors".to_owned()) };
    let (filtered, on_device) = (plan.filtered, plan.on_device);
    let torch = plan.torch.as_mut().ok_or(NO_MODEL)?;
    if filtered {
        torch.filter = Some(python_filter(on_device)?);
    }
    let scratch = torch.scratch.as_ref().map_or_else(|| "/".to_owned(), |folder| folder.to_string_lossy().into_owned());
    stay_open(channel)?;
    let env = environment(Path::new(&scratch), torch.models.as_deref())
        .into_iter()
        .chain([("TMPDIR".to_owned(), scratch.clone())])
        .collect();
    call(plan, memory, &json!({"channel": channel.as_raw_fd()}), env)
}

/// Becomes a Python that repeats a call of a program, within the marks that profilers look for; says why it could not. The
/// environment is the one that the tool in front of it was given.
pub(super) fn python_replay(plan: &RunnerPlan, tensors: &File, (warmups, calls): (u32, u32)) -> String {
    let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("/"), PathBuf::from);
    let replay = json!({"warmups": warmups, "calls": calls});
    let models = plan.torch.as_ref().and_then(|torch| torch.models.as_deref());
    let PythonCall { program, args, env, _plan } =
        match call(plan, tensors, &json!({"replay": replay}), environment(&home, models)) {
            Ok(call) => call,
            Err(message) => return message,
        };
    #[expect(clippy::disallowed_methods, reason = "replaces this process and starts no other")]
    let error = std::process::Command::new(&program).args(args).envs(env).exec();
    format!("executing {}: {error}", program.display())
}

fn call(
    plan: &RunnerPlan,
    memory: &(impl AsFd + AsRawFd),
    further: &Value,
    env: Vec<(String, String)>,
) -> Result<PythonCall, String> {
    let torch = plan.torch.as_ref().ok_or(NO_MODEL)?;
    let program = torch.python.clone();
    let file = written(plan).map_err(|error| format!("handing over the plan: {error}"))?;
    stay_open(memory)?;
    stay_open(&file)?;
    let mut given = json!({"plan": file.as_raw_fd(), "arena": memory.as_raw_fd()});
    if let (Value::Object(given), Value::Object(further)) = (&mut given, further) {
        given.extend(further.clone());
    }
    let given = given.to_string();
    let mut args = flags(torch.bytecode.as_deref());
    args.extend(["-c".into(), EVALUATOR.into(), given.into()]);
    Ok(PythonCall { program, args, env, _plan: file })
}

fn stay_open(descriptor: &impl AsFd) -> Result<(), String> {
    fcntl_setfd(descriptor.as_fd(), FdFlags::empty()).map_err(|error| format!("keeping a descriptor open: {error}"))
}

fn written(plan: &RunnerPlan) -> std::io::Result<File> {
    let mut file = File::from(memfd_create("nightshift-plan", MemfdFlags::CLOEXEC)?);
    file.write_all(&serde_json::to_vec(plan)?)?;
    file.rewind()?;
    Ok(file)
}
