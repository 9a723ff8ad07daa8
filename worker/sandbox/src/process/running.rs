//! The jails that run, and how all but the timed ones are stopped while one is timed.
//!
//! A program that is bound by launches takes as long as the processor takes, and the cores of a virtual machine share physical ones
//! without telling. So compilers, and processes that load their libraries, must not compute meanwhile.

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use super::freeze::Freezer;

/// Time between two looks whether another process wants quiet.
const LOOK_INTERVAL: Duration = Duration::from_millis(4);

/// The longest time without a look while no jail runs.
const IDLE_LOOK: Duration = Duration::from_secs(1);

/// How long another process may take to see that this one wants quiet, and to stop its jails.
const OTHERS_LIMIT: Duration = Duration::from_millis(10);

/// The longest time for which this process stops its jails for another one, which may have been stopped itself while it held the lock.
const MOST_ELSEWHERE: Duration = Duration::from_mins(1);

/// A look that found the file locked is repeated after this time: it may have met the look of another process.
const SECOND_LOOK: Duration = Duration::from_millis(1);

/// The jails that run. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct RunningJails(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// A file that each process which wants quiet locks, shared with others that do.
    file: Option<File>,
}

#[derive(Debug, Default)]
struct State {
    /// Threads of this process that want quiet.
    quiet: usize,
    /// Whether another process wants it.
    quiet_elsewhere: bool,
    jails: Vec<Weak<Freezer>>,
}

impl State {
    fn is_quiet(&self) -> bool {
        self.quiet > 0 || self.quiet_elsewhere
    }

    fn has_jails(&self) -> bool {
        self.jails.iter().any(|jail| jail.strong_count() > 0)
    }

    /// Stops the jails that have to be, or lets them go on.
    fn apply(&self) {
        for jail in self.jails.iter().filter_map(Weak::upgrade) {
            if self.is_quiet() {
                jail.pause();
            } else {
                jail.end_pause();
            }
        }
    }
}

/// Stops all jails that are not timed until it is dropped.
#[derive(Debug)]
pub struct Quiet(Arc<Shared>);

impl RunningJails {
    /// Creates a list of jails that shares quiet with other processes: all processes that name the same file stop their jails together.
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
        std::thread::Builder::new().name("quiet of others".to_owned()).spawn(move || watch(&weak, &watched))?;
        Ok(Self(shared))
    }

    /// Stops all jails that are not timed until the result is dropped. Jails that start wait for that.
    #[must_use]
    pub fn quiet(&self) -> Quiet {
        if let Some(file) = &self.0.file {
            let mut state = self.0.state();
            if state.quiet == 0 {
                // Without the lock other processes go on, as without this file.
                let _ = flock(file, FlockOperation::LockShared);
            }
            state.quiet += 1;
            state.apply();
            drop(state);
            std::thread::sleep(OTHERS_LIMIT);
        } else {
            let mut state = self.0.state();
            state.quiet += 1;
            state.apply();
        }
        Quiet(Arc::clone(&self.0))
    }

    /// Waits until jails may start.
    pub(super) fn wait_while_quiet(&self) {
        let state = self.0.state();
        drop(self.0.changed.wait_while(state, |state| state.is_quiet()).unwrap_or_else(PoisonError::into_inner));
    }

    /// Adds a jail that runs from now on.
    pub(super) fn add(&self, jail: &Arc<Freezer>) {
        let mut state = self.0.state();
        state.jails.retain(|known| known.strong_count() > 0);
        state.jails.push(Arc::downgrade(jail));
        if state.is_quiet() {
            jail.pause();
        }
        self.0.changed.notify_all();
    }

    /// Says whether a jail is timed.
    pub(super) fn set_timed(&self, jail: &Freezer, is_timed: bool) {
        let state = self.0.state();
        jail.set_timed(is_timed);
        if is_timed {
            jail.end_pause();
        } else if state.is_quiet() {
            jail.pause();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.quiet = state.quiet.saturating_sub(1);
        if state.quiet == 0 {
            if let Some(file) = &self.0.file {
                let _ = flock(file, FlockOperation::Unlock);
            }
            state.apply();
            self.0.changed.notify_all();
        }
    }
}

/// Looks whether another process wants quiet as long as jails may run.
fn watch(shared: &Weak<Shared>, file: &File) {
    let mut since: Option<Instant> = None;
    while let Some(shared) = shared.upgrade() {
        let mut state = shared.state();
        if !state.quiet_elsewhere && !state.has_jails() {
            // Nothing has to be stopped. The time limit lets the thread end after its owner.
            let waited = shared.changed.wait_timeout(state, IDLE_LOOK);
            drop(waited);
            continue;
        }
        // The lock of this process would look like that of another one.
        if state.quiet == 0 {
            let is_elsewhere = is_locked(file) && {
                drop(state);
                std::thread::sleep(SECOND_LOOK);
                state = shared.state();
                state.quiet == 0 && is_locked(file)
            };
            since = is_elsewhere.then(|| since.unwrap_or_else(Instant::now));
            let is_elsewhere = since.is_some_and(|since| since.elapsed() < MOST_ELSEWHERE);
            if is_elsewhere != state.quiet_elsewhere && state.quiet == 0 {
                state.quiet_elsewhere = is_elsewhere;
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
