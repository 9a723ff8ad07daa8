//! Runs this very binary once more, without a jail, for work of ours that may hang: nothing foreign runs in it, but
//! the driver of a broken device may never let go of it.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process_group};

use super::capture::Capture;
use super::jail::{os, timespec};
use super::{ProcessError, WATCH_INTERVAL};

/// How long a killed child may take to be gone, before it counts as one that cannot be killed.
const KILL_LIMIT: Duration = Duration::from_secs(5);
/// Output that is kept.
const OUTPUT_BYTES: usize = 64 * 1024;

/// How such a child ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HelperEnd {
    /// What it printed.
    pub stdout: Vec<u8>,
    /// Its exit status; none when a signal ended it, or nothing did.
    pub status: Option<i32>,
    /// Whether it was killed because it took too long.
    pub timed_out: bool,
    /// Whether it is still there although it was killed.
    pub outlives: bool,
}

/// Runs `executable argument` under these variables and nothing else, for at most so long. Blocks: call it from a
/// thread that lives until it returns.
pub fn run_helper_process(
    executable: &Path,
    argument: &str,
    env: &[(String, String)],
    limit: Duration,
) -> Result<HelperEnd, ProcessError> {
    let deadline = Instant::now() + limit;
    #[expect(clippy::disallowed_methods, reason = "this is one of the places that start processes")]
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
        return Err(os("listening to a child", std::io::Error::other("it has no output")));
    };
    let mut stdout = Capture::new(stdout, OUTPUT_BYTES).map_err(|source| os("listening to a child", source))?;
    let mut ended = child.try_wait();
    while matches!(ended, Ok(None)) && Instant::now() < deadline {
        wait_a_moment(&stdout);
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
    let outlives = matches!(ended, Ok(None));
    if outlives {
        // Whenever it goes, somebody has to take its end.
        let _ = std::thread::Builder::new().name("outlived child".to_owned()).spawn(move || child.wait());
    }
    let status = ended.map_err(|source| os("waiting for a child", source))?;
    Ok(HelperEnd { stdout: stdout.take(), status: status.and_then(|status| status.code()), timed_out, outlives })
}

fn wait_a_moment(stdout: &Capture<std::process::ChildStdout>) {
    match stdout.descriptor() {
        Some(descriptor) => {
            // A signal, or an end: both are seen by the look that follows.
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
