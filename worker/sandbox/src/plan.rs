//! What the worker asks of a sandboxed process, and what the process reports.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use nightshift_protocol::machine::{SandboxMeans, SandboxReport};
use serde::{Deserialize, Serialize};

use crate::device::DeviceAccess;
use crate::end::RawEnd;
use crate::limits::Limits;
use crate::user::ProgramUser;

/// First argument of a child that becomes a command.
pub const JAIL_ARGUMENT: &str = "__jail";

/// First argument of a child that becomes a hosted process.
pub const RUNNER_ARGUMENT: &str = "__runner";

/// Which means of isolation are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxChoice {
    /// Everything that the machine allows.
    #[default]
    Best,
    /// Landlock and seccomp without namespaces, as in most containers.
    Landlock,
    /// Namespaces and seccomp without Landlock, as on older kernels.
    Namespaces,
    /// Limits only.
    None,
}

/// The first and only message of the worker on the control socket, except that closing it means: kill everything.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Launch<Plan = JailPlan> {
    /// What to run, and under which restrictions.
    pub(crate) plan: Plan,
    /// The user that the program runs as.
    pub(crate) user: ProgramUser,
    /// The cgroup of the program.
    pub(crate) cgroup: Option<PathBuf>,
    /// What the worker knows about the limits of that cgroup.
    pub(crate) cgroup_means: SandboxMeans,
}

/// What a jail runs, and under which restrictions.
#[derive(Debug, Serialize, Deserialize)]
pub struct JailPlan {
    /// What the program is.
    pub work: Work,
    /// Working folder, and the only writable one. Without it no folder is writable.
    pub scratch: Option<PathBuf>,
    /// Readable paths in addition to those of the system.
    pub read_only: Vec<PathBuf>,
    /// Limits.
    pub limits: Limits,
    /// Which means of isolation are tried.
    pub means: SandboxChoice,
    /// The GPU that the program may use.
    pub device: Option<DeviceAccess>,
    /// Whether a program without a GPU gets `/proc`, `/sys` and a loopback network, as one on a GPU does. Profilers and
    /// Python need them.
    pub as_tool: bool,
}

impl JailPlan {
    /// Returns whether the jail contains `/proc` and `/sys`.
    #[must_use]
    pub fn shows_kernel_files(&self) -> bool {
        self.device.is_some() || self.as_tool
    }

    /// Returns whether the program is a profiler or a similar tool, which writes to fixed places such as `/tmp`.
    pub(crate) fn is_for_tool(&self) -> bool {
        self.shows_kernel_files() && !matches!(self.work, Work::Hosted(_))
    }
}

/// What a sandboxed process becomes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// A program that is executed.
    Command {
        /// Absolute path.
        program: PathBuf,
        /// Arguments.
        args: Vec<OsString>,
        /// The complete environment.
        env: Vec<(String, String)>,
    },
    /// An entry point of this binary. Its descriptors come with the message.
    Hosted(HostedProcess),
    /// The probe of the sandbox, which tries to break out.
    Probe(ProbePlan),
}

/// What hosts candidate code in a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostedKind {
    /// This binary, which loads a library.
    Native,
    /// A Python interpreter, which this binary executes.
    Python,
}

/// A process that runs an entry point of this binary after it is restricted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostedProcess {
    /// What hosts the code.
    pub kind: HostedKind,
    /// Processor core to stay on.
    pub core: Option<usize>,
    /// Shared memory that the process maps in addition to its memory limit, in bytes.
    pub shared_bytes: u64,
    /// Argument of the entry point.
    pub payload: String,
}

/// Entry points of hosted processes.
#[derive(Debug, Clone, Copy)]
pub struct HostedMain {
    /// Serves in this process, with the payload and the descriptors. Returns the exit status.
    pub native: fn(&str, Vec<OwnedFd>) -> i32,
    /// Executes a Python interpreter in place of this process. Returns only on failure, with the reason.
    pub python: fn(&str, &[OwnedFd]) -> String,
}

/// What the probe of the sandbox tries.
#[derive(Debug, Serialize, Deserialize)]
pub struct ProbePlan {
    /// File outside of the jail that it tries to create.
    pub outside: PathBuf,
    /// File outside of the jail that it tries to read.
    pub secret: PathBuf,
    /// Port of this host that it tries to connect to.
    pub port: u16,
    /// Process id of the worker, which it tries to see and to signal.
    pub worker: i32,
    /// File in its scratch folder that it creates. The owner of the file is the user outside of the jail.
    pub own_file: PathBuf,
    /// Its limit on processes and threads, which it tries to exceed.
    pub processes: u64,
}

/// Messages of the supervisor, of init and of the program before it starts. All three are trusted at that time.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ControlMessage {
    /// Init has started.
    Started {
        /// Process id of init, which is also its process group.
        init: i32,
    },
    /// The restrictions are in force; the sender is about to become the program.
    Ready {
        /// Which restrictions.
        report: SandboxReport,
        /// Whether the program is in its cgroup.
        in_cgroup: bool,
    },
    /// The jail could not be set up, or the program could not be executed.
    SetupFailed {
        /// Why.
        message: String,
    },
    /// The program has ended.
    Ended(RawEnd),
}

impl Work {
    /// Returns the first argument of the child, which process lists show.
    pub(crate) fn child_argument(&self) -> &'static str {
        match self {
            Self::Command { .. } | Self::Probe(_) => JAIL_ARGUMENT,
            Self::Hosted(_) => RUNNER_ARGUMENT,
        }
    }
}
