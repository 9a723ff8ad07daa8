//! The list of running jails, which pauses all other jails while one is timed.
//!
//! The time of a launch-bound program depends on the processor, and cores of a virtual machine may share physical cores.
//! So compilers, and processes that load libraries, must not compute during a timed call.

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use super::freeze::Freezer;
use super::{CancelFlag, ProcessError};

/// Interval of checks whether another process requests a pause.
const LOOK_INTERVAL: Duration = Duration::from_millis(4);

/// Interval of these checks while no jail runs.
const IDLE_LOOK: Duration = Duration::from_secs(1);

/// How long another process may take to notice a requested pause and to pause its jails.
const OTHERS_LIMIT: Duration = Duration::from_millis(10);

/// Maximum pause on behalf of another process, which may itself be stopped while it holds the lock.
const MOST_ELSEWHERE: Duration = Duration::from_mins(1);

/// Delay before a locked file is checked again: the first check may have met the check of another process.
const SECOND_LOOK: Duration = Duration::from_millis(1);

/// The running jails. Clones share the list.
#[derive(Debug, Clone, Default)]
pub struct RunningJails(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// File on which each process that requests a pause holds a shared lock.
    file: Option<File>,
}

#[derive(Debug, Default)]
struct State {
    /// Number of threads of this process that request a pause.
    pauses: usize,
    /// Whether another process requests a pause.
    paused_elsewhere: bool,
    jails: Vec<Weak<Freezer>>,
}

impl State {
    fn is_paused(&self) -> bool {
        self.pauses > 0 || self.paused_elsewhere
    }

    fn has_jails(&self) -> bool {
        self.jails.iter().any(|jail| jail.strong_count() > 0)
    }

    /// Pauses or resumes the jails according to the state.
    fn apply(&self) {
        for jail in self.jails.iter().filter_map(Weak::upgrade) {
            if self.is_paused() {
                jail.pause();
            } else {
                jail.end_pause();
            }
        }
    }
}

/// Guard that pauses all jails that are not timed until it is dropped.
#[derive(Debug)]
pub struct JailPause(Arc<Shared>);

impl RunningJails {
    /// Creates a list of jails that shares pauses with other processes: processes that name the same file pause together.
    ///
    /// # Errors
    /// When the file or the thread that watches it cannot be made.
    pub fn between_processes(file: &Path) -> std::io::Result<Self> {
        let open = || {
            use std::os::unix::fs::OpenOptionsExt as _;
            // Other users cannot hold the lock.
            File::options().create(true).truncate(false).read(true).write(true).mode(0o600).open(file)
        };
        let (watched, file) = (open()?, open()?);
        let shared = Arc::new(Shared { file: Some(file), ..Shared::default() });
        let weak = Arc::downgrade(&shared);
        std::thread::Builder::new().name("jail pauses".to_owned()).spawn(move || watch(&weak, &watched))?;
        Ok(Self(shared))
    }

    /// Pauses all jails that are not timed until the guard is dropped. New jails wait for that.
    #[must_use]
    pub fn pause_others(&self) -> JailPause {
        if let Some(file) = &self.0.file {
            let mut state = self.0.state();
            if state.pauses == 0 {
                // Without the lock, other processes are not paused, as without the file.
                let _ = flock(file, FlockOperation::LockShared);
            }
            state.pauses += 1;
            state.apply();
            drop(state);
            std::thread::sleep(OTHERS_LIMIT);
        } else {
            let mut state = self.0.state();
            state.pauses += 1;
            state.apply();
        }
        JailPause(Arc::clone(&self.0))
    }

    /// Waits until jails may start. Fails when the work is cancelled before that.
    pub(super) fn wait_while_paused(&self, cancel: &CancelFlag) -> Result<(), ProcessError> {
        let state = cancel.wait_while(&self.0.changed, self.0.state(), State::is_paused);
        if state.is_paused() { Err(ProcessError::Cancelled) } else { Ok(()) }
    }

    /// Adds a jail that starts running.
    pub(super) fn add(&self, jail: &Arc<Freezer>) {
        let mut state = self.0.state();
        state.jails.retain(|known| known.strong_count() > 0);
        state.jails.push(Arc::downgrade(jail));
        if state.is_paused() {
            jail.pause();
        }
        self.0.changed.notify_all();
    }

    /// Sets whether a jail is timed.
    pub(super) fn set_timed(&self, jail: &Freezer, is_timed: bool) {
        let state = self.0.state();
        jail.set_timed(is_timed);
        if is_timed {
            jail.end_pause();
        } else if state.is_paused() {
            jail.pause();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for JailPause {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.pauses = state.pauses.saturating_sub(1);
        if state.pauses == 0 {
            if let Some(file) = &self.0.file {
                let _ = flock(file, FlockOperation::Unlock);
            }
            state.apply();
            self.0.changed.notify_all();
        }
    }
}

/// Checks whether another process requests a pause, as long as jails may run.
fn watch(shared: &Weak<Shared>, file: &File) {
    let mut since: Option<Instant> = None;
    while let Some(shared) = shared.upgrade() {
        let mut state = shared.state();
        if !state.paused_elsewhere && !state.has_jails() {
            // Nothing has to be stopped. The time limit lets the thread end after its owner.
            let waited = shared.changed.wait_timeout(state, IDLE_LOOK);
            drop(waited);
            continue;
        }
        // The lock of this process would look like that of another one.
        if state.pauses == 0 {
            let is_elsewhere = is_locked(file) && {
                drop(state);
                std::thread::sleep(SECOND_LOOK);
                state = shared.state();
                state.pauses == 0 && is_locked(file)
            };
            since = is_elsewhere.then(|| since.unwrap_or_else(Instant::now));
            let is_elsewhere = since.is_some_and(|since| since.elapsed() < MOST_ELSEWHERE);
            if is_elsewhere != state.paused_elsewhere && state.pauses == 0 {
                state.paused_elsewhere = is_elsewhere;
                state.apply();
                shared.changed.notify_all();
            }
        }
        drop(state);
        drop(shared);
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// Returns whether another process holds the lock of the file.
fn is_locked(file: &File) -> bool {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {
            let _ = flock(file, FlockOperation::Unlock);
            false
        }
        Err(error) => error == rustix::io::Errno::WOULDBLOCK,
    }
}
