//! What a jailed child is told, and what it tells.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use nightshift_protocol::machine::SandboxReport;
use serde::{Deserialize, Serialize};

use super::device::DeviceAccess;
use crate::process::{JAIL_ARGUMENT, Limits, RUNNER_ARGUMENT, RawEnd, SandboxChoice};

/// The first and only message from the parent on the control socket. Afterwards, the end of that socket means: kill
/// everything.
#[derive(Debug, Serialize, Deserialize)]
pub struct JailPlan {
    /// What to become.
    pub work: Work,
    /// Working folder, the only writable one; none leaves no writable folder at all.
    pub scratch: Option<PathBuf>,
    /// Readable paths beside the system's.
    pub read_only: Vec<PathBuf>,
    /// Limits.
    pub limits: Limits,
    /// Which means of isolation are tried.
    pub means: SandboxChoice,
    /// The GPU that it may use.
    pub device: Option<DeviceAccess>,
    /// Whether it gets the surroundings of a command on a GPU without one: a tool that looks into programs looks itself up
    /// among the processes, reads what the kernel tells of the machine, and speaks to its parts.
    pub as_tool: bool,
}

impl JailPlan {
    /// Whether the jail shows its own processes and the kernel's description of the machine.
    #[must_use]
    pub fn shows_machine(&self) -> bool {
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
pub enum Work {
    /// A program.
    Command {
        /// Absolute path.
        program: PathBuf,
        /// Arguments.
        args: Vec<OsString>,
        /// The whole environment.
        env: Vec<(String, String)>,
    },
    /// A process with an entry point of this binary. The message carries its descriptors.
    Hosted(HostedProcess),
    /// Tries to break out, and prints what it could do.
    Probe(ProbePlan),
}

/// What hosts the code of others in a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostedKind {
    /// This binary, which loads a library.
    Native,
    /// A Python, which this binary executes in its place.
    Python,
}

/// A process that runs an entry point of this binary once it is restricted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostedProcess {
    /// What hosts the code.
    pub kind: HostedKind,
    /// Processor core to stay on.
    pub core: Option<usize>,
    /// Memory that it maps in addition to its own limit, in bytes.
    pub shared_bytes: u64,
    /// What the entry point is given.
    pub payload: String,
}

/// Entry points of hosted processes.
#[derive(Debug, Clone, Copy)]
pub struct HostedMain {
    /// Serves in this process, with the payload and the descriptors, and returns the exit status.
    pub native: fn(&str, Vec<OwnedFd>) -> i32,
    /// Executes a Python in the place of this process. Returns only when that fails, with the reason.
    pub python: fn(&str, &[OwnedFd]) -> String,
}

/// What a probe tries.
#[derive(Debug, Serialize, Deserialize)]
pub struct ProbePlan {
    /// File outside that it tries to create.
    pub outside: PathBuf,
    /// File outside that it tries to read.
    pub secret: PathBuf,
    /// Port of this host that it tries to connect to.
    pub port: u16,
}

/// What a probe could do; each `true` is a hole.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct ProbeOutcome {
    /// It created the file outside.
    pub wrote_outside: bool,
    /// It read the secret.
    pub read_secret: bool,
    /// It reached the listener.
    pub connected: bool,
}

/// Messages of the child's side on the control socket. Sent by trusted code before anything foreign runs, and by
/// processes that foreign code cannot reach.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlMessage {
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
    #[must_use]
    pub fn child_name(&self) -> &'static str {
        match self {
            Self::Command { .. } | Self::Probe(_) => JAIL_ARGUMENT,
            Self::Hosted(_) => RUNNER_ARGUMENT,
        }
    }
}
