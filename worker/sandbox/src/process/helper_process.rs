//! Runs this binary once more, outside of any jail, for trusted work that may hang: the driver of a broken GPU may never
//! return.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::watched::{capture, reap, watch};
use super::{CancelFlag, ProcessError, os};

/// How long a killed helper may take to end before it counts as one that survived.
const KILL_LIMIT: Duration = Duration::from_secs(5);

/// Captured output in bytes.
const OUTPUT_BYTES: usize = 64 * 1024;

/// How a helper process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HelperEnd {
    /// Standard output, up to a limit.
    pub stdout: Vec<u8>,
    /// Exit status; none when a signal ended it or it still runs.
    pub status: Option<i32>,
    /// Whether it was killed because it took too long.
    pub timed_out: bool,
    /// Whether it still runs although it was killed.
    pub survived_kill: bool,
}

/// Runs `executable argument` with these environment variables and no others, for a limited time.
///
/// Blocks: call it from a thread that lives until it returns.
pub fn run_helper_process(
    executable: &Path,
    argument: &str,
    env: &[(String, String)],
    limit: Duration,
) -> Result<HelperEnd, ProcessError> {
    let deadline = Instant::now() + limit;
    #[expect(clippy::disallowed_methods, reason = "this crate starts the worker's processes")]
    let mut command = std::process::Command::new(executable);
    let mut child = command
        .arg(argument)
        .env_clear()
        .envs(env.iter().map(|(name, value)| (name, value)))
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|source| os(&format!("starting {}", executable.display()), source))?;
    let unreadable = |source| os("reading the output of a helper process", source);
    let mut outputs = match capture(child.stdout.take(), OUTPUT_BYTES) {
        Ok(stdout) => [stdout],
        Err(error) => {
            kill(&mut child);
            reap(child);
            return Err(unreadable(error));
        }
    };
    let never = CancelFlag::default();
    let mut ended = watch(&mut child, &mut outputs, deadline, &never);
    let timed_out = matches!(ended, Ok(None));
    if timed_out {
        kill(&mut child);
        ended = watch(&mut child, &mut outputs, Instant::now() + KILL_LIMIT, &never);
    }
    let survived_kill = matches!(ended, Ok(None));
    if survived_kill {
        reap(child);
    }
    let [mut stdout] = outputs;
    let status = ended.map_err(|source| os("waiting for a helper process", source))?;
    Ok(HelperEnd { stdout: stdout.take(), status: status.and_then(|status| status.code()), timed_out, survived_kill })
}

pub(super) fn kill(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.kill();
}
