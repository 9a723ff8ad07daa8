//! Runs this binary once more, outside of any jail, for trusted work that may hang: the driver of a broken GPU may never
//! return.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process_group};

use super::capture::Capture;
use super::jail::timespec;
use super::{ProcessError, WATCH_INTERVAL, os};

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
    let Some(stdout) = child.stdout.take() else {
        kill(&mut child);
        return Err(os("reading the output of a helper process", std::io::Error::other("it has no output stream")));
    };
    let mut stdout =
        Capture::new(stdout, OUTPUT_BYTES).map_err(|source| os("reading the output of a helper process", source))?;
    let mut ended = child.try_wait();
    while matches!(ended, Ok(None)) && Instant::now() < deadline {
        wait_for_output(&stdout);
        stdout.pump();
        ended = child.try_wait();
    }
    let timed_out = matches!(ended, Ok(None));
    if timed_out {
        kill(&mut child);
        let deadline = Instant::now() + KILL_LIMIT;
        while matches!(ended, Ok(None)) && Instant::now() < deadline {
            std::thread::park_timeout(WATCH_INTERVAL);
            ended = child.try_wait();
        }
    }
    stdout.pump();
    let survived_kill = matches!(ended, Ok(None));
    if survived_kill {
        // It becomes a zombie when it ends, which has to be reaped.
        let _ = std::thread::Builder::new().name("reap helper".to_owned()).spawn(move || child.wait());
    }
    let status = ended.map_err(|source| os("waiting for a helper process", source))?;
    Ok(HelperEnd { stdout: stdout.take(), status: status.and_then(|status| status.code()), timed_out, survived_kill })
}

fn wait_for_output(stdout: &Capture<std::process::ChildStdout>) {
    match stdout.descriptor() {
        Some(descriptor) => {
            // Errors and the end of the process are seen by the caller's next look.
            let _ = poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&timespec(WATCH_INTERVAL)));
        }
        None => std::thread::park_timeout(WATCH_INTERVAL),
    }
}

fn kill(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.kill();
}
