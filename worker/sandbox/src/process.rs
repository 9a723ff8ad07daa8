//! The only place that starts processes. Every child is this same binary, executed again as `__jail` or `__runner`; it
//! restricts itself and then becomes the compiler or the runner.

mod capture;
mod ending;
mod freeze;
mod helper_process;
mod jail;
mod survivors;
mod trusted;
mod wire;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nightshift_protocol::machine::SandboxReport;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::verdict::ProcessEnd;
use serde::{Deserialize, Serialize};

pub use ending::{EndLimits, RawEnd, classify};
pub use helper_process::{HelperEnd, run_helper_process};
pub use jail::Jail;
pub use survivors::{Survivor, adopt, side_by_side, take_survivors};
pub use trusted::run_trusted;
pub use wire::{WireError, pair, receive, receive_from_parent, send};

use crate::isolation::{DeviceAccess, HostedMain, JailPlan, Work};

/// First argument of a child that becomes a command.
pub const JAIL_ARGUMENT: &str = "__jail";

/// First argument of a child that becomes a runner.
pub const RUNNER_ARGUMENT: &str = "__runner";

/// How often a watched child is looked at when nothing happens.
pub const WATCH_INTERVAL: Duration = Duration::from_millis(10);

/// Folders in which a jailed command looks for programs.
pub const SEARCH_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Limits of one jailed command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Wall time in milliseconds; then everything is killed.
    pub wall_ms: u64,
    /// Processor time of each process in seconds.
    pub cpu_s: u64,
    /// Address space of each process in bytes.
    pub memory_bytes: u64,
    /// Size of each file that is written, in bytes.
    pub file_bytes: u64,
    /// Number of processes (in force where a user namespace is).
    pub processes: u64,
    /// Captured output, standard output and error each, in bytes; more kills the command.
    pub output_bytes: usize,
}

/// A command to be run in a jail.
#[derive(Debug, Clone)]
pub struct JailedCommand {
    /// Absolute path of the program.
    pub program: PathBuf,
    /// Its arguments, without the program's name.
    pub args: Vec<OsString>,
    /// Readable paths beside the system's.
    pub read_only: Vec<PathBuf>,
    /// Working folder, the only writable one. It has to exist.
    pub scratch: PathBuf,
    /// Variables beside `PATH`, `LANG` and `TMPDIR`. Nothing is inherited.
    pub env: Vec<(String, String)>,
    /// Limits.
    pub limits: Limits,
}

/// How a jailed command ended, and what it printed.
#[derive(Debug, Clone)]
pub struct ProcessResult {
    /// `Finished` is exit status 0.
    pub end: ProcessEnd,
    /// Standard output, up to the limit.
    pub stdout: Vec<u8>,
    /// Standard error, up to the limit.
    pub stderr: Vec<u8>,
    /// Wall time in milliseconds, with the preparation of the jail.
    pub wall_ms: u64,
    /// Largest resident size of one process, in bytes.
    pub peak_bytes: u64,
    /// Isolation that was in force.
    pub sandbox: SandboxReport,
}

/// Which means of isolation are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxChoice {
    /// Everything that the machine allows.
    #[default]
    Best,
    /// Landlock and seccomp, without namespaces: what many containers allow.
    Landlock,
    /// Namespaces and seccomp, without Landlock: what older kernels allow.
    Namespaces,
    /// Limits only.
    None,
}

/// The binary that children are made of, and how they are isolated.
#[derive(Debug, Clone)]
pub struct JailHost {
    /// Our own binary: its `main` calls [`child_main`] first.
    pub executable: PathBuf,
    /// Which means are tried.
    pub means: SandboxChoice,
}

/// Set from any thread to stop the work of another.
#[derive(Debug, Clone, Default)]
pub struct CancelFlag(Arc<AtomicBool>);

impl CancelFlag {
    /// Asks for the end. It is reached within a few hundredths of a second.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Whether the end was asked for.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// Why a process could not be started or watched. That it fails is a [`ProcessResult`].
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// The operating system refused something.
    #[error("{what}: {source}")]
    Os {
        /// What was tried.
        what: String,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
    /// The jail could not be set up, or the program could not be executed in it.
    #[error("the jail could not start the program: {0}")]
    Setup(String),
    /// The work was cancelled.
    #[error("the work was cancelled")]
    Cancelled,
}

impl From<ProcessError> for StepFailure {
    fn from(error: ProcessError) -> Self {
        let code = match &error {
            ProcessError::Os { .. } => "process.os",
            ProcessError::Setup(_) => "process.setup",
            ProcessError::Cancelled => "step.cancelled",
        };
        Self::retriable(code, error.to_string())
    }
}

/// Runs a command in a jail and waits for its end. Blocks: call it from a dedicated thread of the operating system. When
/// this process dies, whatever it started dies with it.
pub fn run_jailed(
    host: &JailHost,
    command: &JailedCommand,
    cancel: &CancelFlag,
) -> Result<ProcessResult, ProcessError> {
    run(host, &plan(command, host.means, None), cancel)
}

/// [`run_jailed`] for a tool that looks into programs, without a GPU: everything else is as in [`run_jailed_on_device`].
/// Such a tool finds its own parts by the view of its processes, and does not even tell its version without one.
pub fn run_jailed_as_tool(
    host: &JailHost,
    command: &JailedCommand,
    cancel: &CancelFlag,
) -> Result<ProcessResult, ProcessError> {
    run(host, &JailPlan { as_tool: true, ..plan(command, host.means, None) }, cancel)
}

/// [`run_jailed`] with a GPU in reach. Such a command may also open sockets within its own network, where it has one:
/// the tools that look into programs talk to them in this way.
pub fn run_jailed_on_device(
    host: &JailHost,
    command: &JailedCommand,
    device: &DeviceAccess,
    cancel: &CancelFlag,
) -> Result<ProcessResult, ProcessError> {
    run(host, &plan(command, host.means, Some(device)), cancel)
}

fn run(host: &JailHost, plan: &JailPlan, cancel: &CancelFlag) -> Result<ProcessResult, ProcessError> {
    let started = Instant::now();
    let limits = &plan.limits;
    let deadline = started + Duration::from_millis(limits.wall_ms);
    let mut jail = Jail::start(host, plan, &[])?;
    let killed = loop {
        if jail.is_over() {
            break None;
        }
        if cancel.is_cancelled() {
            return Err(ProcessError::Cancelled);
        }
        if jail.output_exceeded() {
            let limit_bytes = u64::try_from(limits.output_bytes).unwrap_or(u64::MAX);
            break Some(ProcessEnd::OutputExceeded { limit_bytes });
        }
        let Some(left) = deadline.checked_duration_since(Instant::now()) else {
            break Some(ProcessEnd::TimedOut { limit_ms: limits.wall_ms });
        };
        jail.pump(left.min(WATCH_INTERVAL), None)?;
    };
    jail.finish();
    if let Some(message) = jail.setup_error.take() {
        return Err(ProcessError::Setup(message));
    }
    let Some(sandbox) = jail.report.take() else {
        return Err(ProcessError::Setup("the child ended before it was ready".to_owned()));
    };
    let peak_bytes = jail.ended.map_or(0, |raw| raw.peak_bytes);
    let limits = EndLimits { memory_bytes: limits.memory_bytes, cpu_ms: limits.cpu_s.saturating_mul(1000) };
    let end = match (killed, jail.ended) {
        (Some(end), _) => end,
        (None, Some(raw)) => classify(raw, peak_bytes, limits, jail.stderr.kept()),
        (None, None) => return Err(ProcessError::Setup("the supervisor of the jail was killed".to_owned())),
    };
    let wall_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(ProcessResult { end, stdout: jail.stdout.take(), stderr: jail.stderr.take(), wall_ms, peak_bytes, sandbox })
}

fn plan(command: &JailedCommand, means: SandboxChoice, device: Option<&DeviceAccess>) -> JailPlan {
    let scratch = command.scratch.to_string_lossy().into_owned();
    let mut env = vec![
        ("PATH".to_owned(), SEARCH_PATH.to_owned()),
        ("LANG".to_owned(), "C".to_owned()),
        ("TMPDIR".to_owned(), scratch),
    ];
    env.extend(device.into_iter().flat_map(DeviceAccess::environment));
    env.extend(command.env.iter().cloned());
    JailPlan {
        work: Work::Command { program: command.program.clone(), args: command.args.clone(), env },
        scratch: Some(command.scratch.clone()),
        read_only: command.read_only.clone(),
        limits: command.limits.clone(),
        means,
        device: device.cloned(),
        as_tool: false,
    }
}

/// Carries out `__jail` and `__runner`, and returns the exit status; returns nothing for any other argument. Has to be called
/// first in `main`, before any thread starts.
#[must_use]
pub fn child_main(args: &[OsString], hosted: &HostedMain) -> Option<i32> {
    let name = args.get(1)?;
    (name == JAIL_ARGUMENT || name == RUNNER_ARGUMENT).then(|| crate::isolation::supervise(hosted))
}
