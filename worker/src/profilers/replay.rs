//! One call of a program, made ready to be repeated by a process of its own, so that a tool can be put in front of it.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use nightshift_protocol::artifact::ArtifactHash;

use crate::artifacts::ArtifactError;
use crate::toolchain::Run;

/// First argument of our own binary that makes it a replay.
pub const REPLAY_ARGUMENT: &str = "__replay";

/// One call of a program, and where and how to repeat it.
///
/// The command line is `EXECUTABLE __replay PLAN WARMUPS CALLS`. The replay loads the library, calls `ns_init`, makes the
/// inputs from its plan, calls `ns_run` so many times for warming up, waits for the device, and then repeats so many
/// times: `cuProfilerStart`, `ns_run`, `cuCtxSynchronize`, `cuProfilerStop`. It ends with status 0 when all of that went
/// well. The marks tell the tools which part of the process is a call; nothing else in it calls `cuProfilerStart`.
#[derive(Clone, Copy)]
pub struct Replay<'a> {
    /// Runs a jailed command where the step's device can be used, with `/proc`, `/dev/shm` and the loopback network, which
    /// the tools need to talk to the process that they watch.
    pub run: &'a Run<'a>,
    /// Our own binary.
    pub executable: &'a Path,
    /// The plan of the call.
    pub plan: &'a Path,
    /// What the replay reads beside its system: the folders of the plan, the inputs and the library.
    pub readable: &'a [PathBuf],
    /// Folders for `LD_LIBRARY_PATH`: the driver and the libraries of CUDA, where the system does not know them.
    pub library_path: &'a [PathBuf],
    /// Variables that the replay needs, for example `CUDA_VISIBLE_DEVICES`. Nothing else is passed on: reports store the
    /// whole environment.
    pub env: &'a [(String, String)],
    /// An existing folder in which each tool gets an empty one.
    pub scratch: &'a Path,
    /// Keeps what a tool made.
    pub put: &'a dyn Fn(&[u8]) -> Result<ArtifactHash, ArtifactError>,
}

impl fmt::Debug for Replay<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay").field("plan", &self.plan).field("scratch", &self.scratch).finish_non_exhaustive()
    }
}

impl Replay<'_> {
    /// The command that repeats the call, as the tools take it.
    #[must_use]
    pub fn command(&self, warmups: u32, calls: u32) -> Vec<OsString> {
        vec![
            self.executable.into(),
            REPLAY_ARGUMENT.into(),
            self.plan.into(),
            warmups.to_string().into(),
            calls.to_string().into(),
        ]
    }
}
