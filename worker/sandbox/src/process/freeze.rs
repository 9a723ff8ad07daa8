//! Freezing a jail: no process of it runs until it is thawed.
//!
//! A cgroup freezes all processes at once. Without one, each process gets SIGSTOP, and the process table shows when every
//! thread is stopped.
//!
//! A jail has two reasons to be frozen: its owner wants it, or something else on this machine is timed. It goes on when neither holds.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::cgroup::JailCgroup;
use crate::procfs::{self, PROC};

/// How long the processes of a jail may take to stop. A thread stops when it leaves the kernel, usually within microseconds.
const FREEZE_LIMIT: Duration = Duration::from_millis(200);

/// Time between two looks at stopping threads.
const LOOK_INTERVAL: Duration = Duration::from_micros(20);

/// Freezes the processes of one jail.
#[derive(Debug)]
pub(super) struct Freezer {
    cgroup: Option<Arc<JailCgroup>>,
    /// Process ids of the supervisor and of init, which only wait, and go on.
    own: (i32, Option<i32>),
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// How the processes are frozen; none while they run.
    frozen: Option<Frozen>,
    /// Whether the owner of the jail wants it.
    by_owner: bool,
    /// Since when they are frozen because something else is timed.
    paused_since: Option<Instant>,
    /// How long such pauses took that are over.
    paused: Duration,
    /// Whether the jail runs on while something else is timed.
    is_timed: bool,
    /// Whether the jail is being ended: its process ids may soon be others'.
    is_closed: bool,
}

impl Freezer {
    pub(super) fn new(cgroup: Option<Arc<JailCgroup>>, own: (i32, Option<i32>), is_timed: bool) -> Self {
        Self { cgroup, own, state: Mutex::new(State { is_timed, ..State::default() }) }
    }

    /// Freezes the jail for its owner, and returns when its processes are shown to be stopped.
    pub(super) fn freeze(&self) -> Result<(), String> {
        let mut state = self.state();
        if !state.by_owner {
            self.stop(&mut state)?;
            state.by_owner = true;
        }
        Ok(())
    }

    /// Lets the jail go on as far as its owner is concerned.
    pub(super) fn thaw(&self) -> Result<(), String> {
        let mut state = self.state();
        state.by_owner = false;
        self.resume(&mut state)
    }

    /// Returns whether the owner has frozen the jail.
    pub(super) fn is_frozen(&self) -> bool {
        self.state().by_owner
    }

    /// Freezes the jail while something else is timed. What cannot be stopped goes on.
    pub(super) fn pause(&self) {
        let mut state = self.state();
        if state.is_timed || state.is_closed || state.paused_since.is_some() {
            return;
        }
        if self.stop(&mut state).is_ok() {
            state.paused_since = Some(Instant::now());
        }
    }

    /// Lets the jail go on after a pause, unless its owner has frozen it.
    pub(super) fn end_pause(&self) {
        let mut state = self.state();
        let Some(since) = state.paused_since.take() else { return };
        state.paused += since.elapsed();
        // A cgroup that cannot be thawed lets its program run out of time.
        let _ = self.resume(&mut state);
    }

    /// Says whether the jail runs on while something else is timed.
    pub(super) fn set_timed(&self, is_timed: bool) {
        self.state().is_timed = is_timed;
    }

    /// Returns how long the jail was frozen because something else was timed.
    pub(super) fn paused(&self) -> Duration {
        let state = self.state();
        state.paused + state.paused_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Has no process stopped from now on. Call it before process ids of the jail are given back.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
    }

    fn stop(&self, state: &mut State) -> Result<(), String> {
        if state.frozen.is_none() {
            state.frozen = Some(match &self.cgroup {
                Some(cgroup) => cgroup.freeze(FREEZE_LIMIT).map(|()| Frozen::Cgroup)?,
                None => Frozen::Stopped(stop_all(self.own, FREEZE_LIMIT)?),
            });
        }
        Ok(())
    }

    fn resume(&self, state: &mut State) -> Result<(), String> {
        if state.by_owner || state.paused_since.is_some() {
            return Ok(());
        }
        match (state.frozen.take(), &self.cgroup) {
            (Some(Frozen::Cgroup), Some(cgroup)) => cgroup.thaw(),
            (Some(Frozen::Stopped(stopped)), _) => {
                resume(&stopped);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How processes are frozen.
#[derive(Debug)]
enum Frozen {
    /// The cgroup is frozen.
    Cgroup,
    /// These processes were stopped.
    Stopped(Vec<StoppedProcess>),
}

/// A process that got SIGSTOP.
#[derive(Debug)]
struct StoppedProcess {
    pid: i32,
    start_ticks: u64,
    pidfd: OwnedFd,
}

/// Sends SIGSTOP to all processes until all threads are stopped and no process is new.
fn stop_all((supervisor, init): (i32, Option<i32>), limit: Duration) -> Result<Vec<StoppedProcess>, String> {
    let deadline = Instant::now() + limit;
    let mut stopped: Vec<StoppedProcess> = Vec::new();
    let mut were_stopped = false;
    loop {
        let began = Instant::now();
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
        // A stall of this thread says nothing about theirs: only a look after the deadline does.
        if !were_stopped && began > deadline {
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
