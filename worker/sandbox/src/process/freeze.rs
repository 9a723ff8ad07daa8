//! Freezing a jail: no process of it runs until it is thawed.
//!
//! A cgroup freezes all processes at once. Without one, each process gets SIGSTOP, and the process table shows when every
//! thread is stopped.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::cgroup::JailCgroup;
use crate::procfs::{self, PROC};

/// How long the processes of a jail may take to stop. A thread stops when it leaves the kernel, usually within microseconds.
const FREEZE_LIMIT: Duration = Duration::from_millis(200);

/// Time between two looks at stopping threads.
const LOOK_INTERVAL: Duration = Duration::from_micros(20);

/// What [`Frozen::thaw`] has to undo.
#[derive(Debug)]
pub(super) enum Frozen {
    /// The cgroup is frozen.
    Cgroup,
    /// These processes were stopped.
    Stopped(Vec<StoppedProcess>),
}

/// A process that got SIGSTOP.
#[derive(Debug)]
pub(super) struct StoppedProcess {
    pid: i32,
    start_ticks: u64,
    pidfd: OwnedFd,
}

impl Frozen {
    /// Stops every process below a supervisor but init, and returns when all of them are shown to be stopped. After the time
    /// limit they go on, and the result is an error.
    pub(super) fn new(cgroup: Option<&JailCgroup>, own: (i32, Option<i32>)) -> Result<Self, String> {
        match cgroup {
            Some(cgroup) => cgroup.freeze(FREEZE_LIMIT).map(|()| Self::Cgroup),
            None => stop_all(own, FREEZE_LIMIT).map(Self::Stopped),
        }
    }

    /// Lets them go on.
    pub(super) fn thaw(self, cgroup: Option<&JailCgroup>) -> Result<(), String> {
        match self {
            Self::Stopped(stopped) => {
                resume(&stopped);
                Ok(())
            }
            Self::Cgroup => cgroup.map_or(Ok(()), JailCgroup::thaw),
        }
    }
}

/// Sends SIGSTOP to all processes until all threads are stopped and no process is new.
fn stop_all((supervisor, init): (i32, Option<i32>), limit: Duration) -> Result<Vec<StoppedProcess>, String> {
    let deadline = Instant::now() + limit;
    let mut stopped: Vec<StoppedProcess> = Vec::new();
    let mut were_stopped = false;
    loop {
        let is_new = match stop_new_processes((supervisor, init), &mut stopped) {
            Ok(is_new) => is_new,
            Err(reason) => {
                resume(&stopped);
                return Err(reason);
            }
        };
        // A process may have started another one before it stopped. So a look at all of them comes last.
        if were_stopped && !is_new {
            return Ok(stopped);
        }
        were_stopped = !is_new && stopped.iter().all(StoppedProcess::is_stopped);
        if Instant::now() > deadline {
            resume(&stopped);
            return Err(format!("some thread was not stopped after {} ms", limit.as_millis()));
        }
        if !were_stopped {
            std::thread::park_timeout(LOOK_INTERVAL);
        }
    }
}

/// Stops the processes that are not in the list yet and adds them. Returns whether there were any.
fn stop_new_processes(
    (supervisor, init): (i32, Option<i32>),
    stopped: &mut Vec<StoppedProcess>,
) -> Result<bool, String> {
    let mut is_new = false;
    for pid in procfs::descendants(supervisor) {
        if Some(pid) == init || stopped.iter().any(|known| known.pid == pid) {
            continue;
        }
        if let Some(process) = StoppedProcess::stop(pid)? {
            stopped.push(process);
            is_new = true;
        }
    }
    Ok(is_new)
}

impl StoppedProcess {
    /// Sends SIGSTOP to a process; none when it has ended.
    fn stop(pid: i32) -> Result<Option<Self>, String> {
        let Some(start_ticks) = running_since(pid) else { return Ok(None) };
        let Some(Ok(pidfd)) = Pid::from_raw(pid).map(|pid| pidfd_open(pid, PidfdFlags::empty())) else {
            return Ok(None);
        };
        // Otherwise the process has ended, and the descriptor is that of a later one with its id.
        if running_since(pid) != Some(start_ticks) {
            return Ok(None);
        }
        match pidfd_send_signal(&pidfd, Signal::STOP) {
            Ok(()) => Ok(Some(Self { pid, start_ticks, pidfd })),
            Err(rustix::io::Errno::SRCH) => Ok(None),
            Err(error) => Err(format!("SIGSTOP to the process {pid}: {error}")),
        }
    }

    /// Returns whether every thread has stopped or ended.
    fn is_stopped(&self) -> bool {
        running_since(self.pid) != Some(self.start_ticks)
            || thread_stats(self.pid).all(|stat| stat.is_stopped() || stat.has_ended())
    }
}

/// Returns the start time of a process that has threads which have not ended; its first thread may have.
fn running_since(pid: i32) -> Option<u64> {
    thread_stats(pid).any(|stat| !stat.has_ended()).then_some(())?;
    procfs::stat(Path::new(PROC), pid).map(|stat| stat.start_ticks)
}

/// Reads the entries of a process's threads. Those that ended meanwhile are left out.
fn thread_stats(pid: i32) -> impl Iterator<Item = procfs::Stat> {
    let folder = Path::new(PROC).join(pid.to_string()).join("task");
    procfs::threads(pid).into_iter().filter_map(move |thread| procfs::stat(&folder, thread))
}

fn resume(stopped: &[StoppedProcess]) {
    for process in stopped {
        let _ = pidfd_send_signal(&process.pidfd, Signal::CONT);
    }
}
