//! Runs one command in a jail to its end.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use nightshift_protocol::machine::SandboxReport;
use nightshift_protocol::verdict::ProcessEnd;

use super::{CancelFlag, Jail, JailHost, ProcessError, WATCH_INTERVAL};
use crate::device::DeviceAccess;
use crate::end::{EndLimits, classify};
use crate::limits::Limits;
use crate::plan::{JailPlan, SandboxChoice, Work};

/// Folders in which a jailed command looks for programs.
pub const SEARCH_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A command to run in a jail.
#[derive(Debug, Clone)]
pub struct JailedCommand {
    /// Absolute path of the program.
    pub program: PathBuf,
    /// Its arguments, without the program's name.
    pub args: Vec<OsString>,
    /// Readable paths in addition to those of the system.
    pub read_only: Vec<PathBuf>,
    /// Working folder, and the only writable one. It has to exist.
    pub scratch: PathBuf,
    /// Environment variables in addition to `PATH`, `LANG` and `TMPDIR`. No others are inherited.
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
    /// Wall time in milliseconds, including the preparation of the jail, without pauses in which another program was timed.
    pub wall_ms: u64,
    /// Largest memory in bytes: of all processes together in a cgroup, else the resident size of the largest one.
    pub peak_bytes: u64,
    /// Isolation that was in force.
    pub sandbox: SandboxReport,
}

/// Runs a command in a jail and waits for its end. All processes that it started end with it, and with this process.
///
/// Blocks: call it from a dedicated thread of the operating system.
pub fn run_jailed(
    host: &JailHost,
    command: &JailedCommand,
    cancel: &CancelFlag,
) -> Result<ProcessResult, ProcessError> {
    run(host, &plan(command, host.means, None), cancel)
}

/// Runs a tool that inspects programs in the surroundings of [`run_jailed_on_device`], without a GPU. Profilers need
/// `/proc` even to report their version.
pub fn run_jailed_as_tool(
    host: &JailHost,
    command: &JailedCommand,
    cancel: &CancelFlag,
) -> Result<ProcessResult, ProcessError> {
    run(host, &JailPlan { as_tool: true, ..plan(command, host.means, None) }, cancel)
}

/// Runs a command in a jail with a GPU, `/proc`, `/sys` and, where it has its own network, sockets: profilers talk to the
/// programs that they inspect.
pub fn run_jailed_on_device(
    host: &JailHost,
    command: &JailedCommand,
    device: &DeviceAccess,
    cancel: &CancelFlag,
) -> Result<ProcessResult, ProcessError> {
    run(host, &plan(command, host.means, Some(device)), cancel)
}

fn run(host: &JailHost, plan: &JailPlan, cancel: &CancelFlag) -> Result<ProcessResult, ProcessError> {
    let limits = &plan.limits;
    let mut jail = Jail::start(host, plan, &[], cancel)?;
    let killed = loop {
        if jail.has_ended() {
            break None;
        }
        if cancel.is_cancelled() {
            return Err(ProcessError::Cancelled);
        }
        if jail.output_exceeded() {
            let limit_bytes = u64::try_from(limits.output_bytes).unwrap_or(u64::MAX);
            break Some(ProcessEnd::OutputExceeded { limit_bytes });
        }
        let Some(left) = Duration::from_millis(limits.wall_ms).checked_sub(jail.ran_for()) else {
            break Some(ProcessEnd::TimedOut { limit_ms: limits.wall_ms });
        };
        jail.pump(left.min(WATCH_INTERVAL), None)?;
    };
    let counted_bytes = jail.cgroup_peak_bytes();
    let ran_for = jail.ran_for();
    jail.kill();
    if let Some(message) = jail.setup_error.take() {
        return Err(ProcessError::Setup(message));
    }
    let Some(sandbox) = jail.report.take() else {
        return Err(ProcessError::Setup("the child ended before it was ready".to_owned()));
    };
    let largest_bytes = jail.ended.map_or(0, |raw| raw.peak_bytes);
    let limits = EndLimits { memory_bytes: limits.memory_bytes, cpu_ms: limits.cpu_s.saturating_mul(1000) };
    let end = match (killed, jail.ended) {
        (Some(end), _) => end,
        // The peak of a cgroup contains cached files, which the kernel drops before it refuses memory.
        (None, Some(raw)) => {
            let end = classify(raw, largest_bytes, limits, jail.stderr.kept());
            if raw.is_fault_of_machine(&end) {
                return Err(ProcessError::MachineFull);
            }
            end
        }
        (None, None) => return Err(ProcessError::Setup("the supervisor of the jail was killed".to_owned())),
    };
    let wall_ms = u64::try_from(ran_for.as_millis()).unwrap_or(u64::MAX);
    let peak_bytes = counted_bytes.unwrap_or(largest_bytes);
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
