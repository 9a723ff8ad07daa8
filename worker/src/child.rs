//! The entry point of this binary as a child process of a worker.

use std::ffi::OsString;
use std::os::fd::OwnedFd;

use nightshift_evaluator::runner;
use nightshift_profilers::{REPLAY_ARGUMENT, replay_main};
use nightshift_sandbox::HostedMain;

use crate::gpu;

/// Entry points of hosted processes.
const HOSTED: HostedMain = HostedMain { native, python };

/// Runs a child process and returns its exit status. Returns `None` when the arguments name no child. Must be called first
/// in `main`, before any thread starts.
#[must_use]
pub fn child_main(args: &[OsString]) -> Option<i32> {
    let name = args.get(1)?;
    if name == gpu::PROBE_ARGUMENT {
        return Some(gpu::probe_main());
    }
    if name == REPLAY_ARGUMENT {
        return Some(replay_main(args));
    }
    nightshift_sandbox::process::child_main(args, &HOSTED)
}

fn native(payload: &str, descriptors: Vec<OwnedFd>) -> i32 {
    runner::serve(payload, descriptors)
}

fn python(payload: &str, descriptors: &[OwnedFd]) -> String {
    runner::become_python(payload, descriptors)
}
