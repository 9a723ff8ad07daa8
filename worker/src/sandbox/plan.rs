//! What a jailed child is told, and what it tells.

use std::ffi::OsString;
use std::path::PathBuf;

use nightshift_protocol::machine::SandboxReport;
use serde::{Deserialize, Serialize};

use super::device::DeviceAccess;
use crate::process::{JAIL_ARGUMENT, Limits, RUNNER_ARGUMENT, RawEnd, SandboxChoice};
use crate::runner::RunnerPlan;

/// The first and only message from the parent on the control socket. Afterwards, the end of that socket means: kill
/// everything.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct JailPlan {
    /// What to become.
    pub(crate) work: Work,
    /// Working folder, the only writable one; none leaves no writable folder at all.
    pub(crate) scratch: Option<PathBuf>,
    /// Readable paths beside the system's.
    pub(crate) read_only: Vec<PathBuf>,
    /// Limits.
    pub(crate) limits: Limits,
    /// Which means of isolation are tried.
    pub(crate) means: SandboxChoice,
    /// The GPU that it may use.
    pub(crate) device: Option<DeviceAccess>,
    /// Whether it gets the surroundings of a command on a GPU without one: a tool that looks into programs looks itself up
    /// among the processes, reads what the kernel tells of the machine, and speaks to its parts.
    pub(crate) as_tool: bool,
}

impl JailPlan {
    /// Whether the jail shows its own processes and the kernel's description of the machine.
    pub(crate) fn shows_machine(&self) -> bool {
        self.device.is_some() || self.as_tool
    }

    /// Whether it is for a tool that looks into programs: such tools write to places of the system by their names.
    pub(super) fn is_for_tool(&self) -> bool {
        self.shows_machine() && matches!(self.work, Work::Command { .. })
    }
}

/// What a jailed child becomes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Work {
    /// A program.
    Command {
        /// Absolute path.
        program: PathBuf,
        /// Arguments.
        args: Vec<OsString>,
        /// The whole environment.
        env: Vec<(String, String)>,
    },
    /// A runner. The message carries the arena and the runner's socket.
    Runner(Box<RunnerPlan>),
    /// Tries to break out, and prints what it could do.
    Probe(ProbePlan),
}

/// What a probe tries.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ProbePlan {
    /// File outside that it tries to create.
    pub(crate) outside: PathBuf,
    /// File outside that it tries to read.
    pub(crate) secret: PathBuf,
    /// Port of this host that it tries to connect to.
    pub(crate) port: u16,
}

/// What a probe could do; each `true` is a hole.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct ProbeOutcome {
    /// It created the file outside.
    pub(crate) wrote_outside: bool,
    /// It read the secret.
    pub(crate) read_secret: bool,
    /// It reached the listener.
    pub(crate) connected: bool,
}

/// Messages of the child's side on the control socket. Sent by trusted code before anything foreign runs, and by
/// processes that foreign code cannot reach.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ControlMessage {
    /// The process group that everything runs in.
    Started {
        /// Its leader.
        group: i32,
    },
    /// The restrictions are in force; the sender is about to become the program.
    Ready {
        /// Which restrictions.
        report: SandboxReport,
    },
    /// The jail could not be set up, or the program could not be executed.
    SetupFailed {
        /// Why.
        message: String,
    },
    /// The program ended.
    Ended(RawEnd),
}

impl Work {
    /// First argument of the child, which lists of processes show.
    pub(crate) fn child_name(&self) -> &'static str {
        match self {
            Self::Command { .. } | Self::Probe(_) => JAIL_ARGUMENT,
            Self::Runner(_) => RUNNER_ARGUMENT,
        }
    }
}
