//! One call of a program, repeated in a process of its own without a parent, so that a tool can be put in front of it:
//! `EXECUTABLE __replay PLAN WARMUPS CALLS [CUPTI TRACE]`. With the last two it watches itself: it loads the library of CUPTI
//! once it is warm, and writes what that told to the file. A file of Python is repeated by a Python that takes the place of
//! this process.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use nightshift_protocol::task::ConcreteShapes;
use serde::{Deserialize, Serialize};

use super::arena::{fill_file, map_private};
use super::cupti::Tracer;
use super::message::{Reply, Request};
use super::plan::{Doubled, RunnerPlan, TorchPlan};
use super::python::python_replay;
use super::serve::Runner;
use super::session::DeviceUse;
use crate::inputs::TensorData;

/// What outputs and scratch memory are filled with before the call: no number in any format.
const POISON: u32 = 0x7FFC_A5A5;

const USAGE: &str = "expected: PLAN WARMUPS CALLS, and CUPTI TRACE or nothing";

/// What is repeated.
#[derive(Debug, Serialize, Deserialize)]
struct ReplayPlan {
    runner: RunnerPlan,
    /// The file with the inputs and the weights, where the plan says.
    tensors: PathBuf,
}

/// Writes the plan of a call of a library, and the tensors beside it, into a folder. Gives the path of the plan.
pub fn write_replay(
    folder: &Path,
    library: &Path,
    device: &DeviceUse,
    shapes: &ConcreteShapes,
    params: &[TensorData],
    inputs: &[TensorData],
) -> std::io::Result<PathBuf> {
    write_any_replay(folder, library, None, device, shapes, (params, inputs))
}

/// The plan's name in its folder.
pub(crate) const REPLAY_FILE: &str = "replay.json";

/// The same for a library, or for a file of Python with the plan for it.
pub(crate) fn write_any_replay(
    folder: &Path,
    library: &Path,
    torch: Option<TorchPlan>,
    device: &DeviceUse,
    shapes: &ConcreteShapes,
    (params, inputs): (&[TensorData], &[TensorData]),
) -> std::io::Result<PathBuf> {
    let mut runner = RunnerPlan::new(library.to_path_buf(), std::slice::from_ref(shapes), Doubled::Nothing, None);
    runner.on_device = true;
    runner.torch = torch;
    runner.libraries.clone_from(&device.libraries);
    let tensors = folder.join("tensors.bin");
    let layout = &runner.layouts[0];
    let placed = layout.params.iter().zip(params).chain(layout.inputs.iter().zip(inputs));
    let placed: Vec<_> = placed.map(|(placed, data)| (placed.region, data)).collect();
    fill_file(&File::create_new(&tensors)?, runner.total_bytes, &placed)?;
    let path = folder.join(REPLAY_FILE);
    let plan = ReplayPlan { runner, tensors };
    std::fs::write(&path, serde_json::to_vec(&plan).map_err(std::io::Error::other)?)?;
    Ok(path)
}

/// The life of a replay, from its arguments to its exit status.
pub(crate) fn replay(args: &[OsString]) -> i32 {
    let Err(message) = try_to_replay(args) else { return 0 };
    let _ = writeln!(std::io::stderr(), "replay: {message}");
    1
}

fn try_to_replay(args: &[OsString]) -> Result<(), String> {
    let [_, _, path, warmups, calls, watched @ ..] = args else { return Err(USAGE.to_owned()) };
    let watched = match watched {
        [] => None,
        [library, trace] => Some((Path::new(library), Path::new(trace))),
        _ => return Err(USAGE.to_owned()),
    };
    let number = |text: &OsString| {
        text.to_str()
            .and_then(|text| text.parse::<u32>().ok())
            .ok_or_else(|| format!("{} is no number", text.display()))
    };
    let (warmups, calls) = (number(warmups)?, number(calls)?);
    let unreadable = |error: &dyn std::fmt::Display| format!("the plan cannot be read: {error}");
    let text = std::fs::read(path).map_err(|error| unreadable(&error))?;
    let plan: ReplayPlan = serde_json::from_slice(&text).map_err(|error| unreadable(&error))?;
    let file = File::open(&plan.tensors).map_err(|error| unreadable(&error))?;
    if plan.runner.torch.is_some() {
        let library = watched.map(|_| "CUPTI watches libraries, and this is a file of Python".to_owned());
        return Err(library.unwrap_or_else(|| python_replay(&plan.runner, &file, (warmups, calls))));
    }
    let mut arena = map_private(&file, plan.runner.total_bytes).map_err(|error| unreadable(&error))?;
    let mut runner = Runner::new(plan.runner, arena.as_mut_ptr(), false);
    for request in [Request::Open { nonce: 0 }, Request::Load { nonce: 0 }] {
        done(runner.answer(request))?;
    }
    done(runner.answer(Request::Init { nonce: 0 }))?;
    for _ in 0..=warmups {
        done(runner.answer(Request::Run { nonce: 0, poison: POISON, weights: false, outputs_only: true }))?;
    }
    let tracer = watched.map(|(library, _)| Tracer::start(library)).transpose()?;
    for _ in 0..calls {
        done(runner.call_marked())?;
    }
    if let Some((tracer, (_, path))) = tracer.zip(watched) {
        let text = serde_json::to_vec(&tracer.finish()?).map_err(|error| error.to_string())?;
        std::fs::write(path, text).map_err(|error| format!("the trace cannot be written: {error}"))?;
    }
    Ok(())
}

fn done(reply: Option<Reply>) -> Result<(), String> {
    let reply = reply.ok_or("the runner could not follow its plan")?;
    if let Some(message) = reply.load_error {
        return Err(format!("the library cannot be loaded: {message}"));
    }
    if let Some(fault) = reply.fault {
        return Err(format!("the GPU reported {} ({})", fault.error, fault.during));
    }
    if reply.status == 0 { Ok(()) } else { Err(format!("the program returned the error status {}", reply.status)) }
}
