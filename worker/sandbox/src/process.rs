//! The worker's side of its processes. This crate is the only place that starts processes.
//!
//! A sandboxed process is this binary, executed again with `__jail` or `__runner` as its first argument. It restricts itself
//! and then becomes the program.

mod capture;
mod command;
mod freeze;
mod helper_process;
mod jail;
mod running;
mod survivors;
mod trusted;
mod watched;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use nightshift_protocol::step::StepFailure;

pub use self::command::{
    JailedCommand, ProcessResult, SEARCH_PATH, run_jailed, run_jailed_as_tool, run_jailed_on_device,
};
pub use self::helper_process::{HelperEnd, run_helper_process};
pub use self::jail::{Jail, Resident};
pub use self::running::{JailPause, RunningJails};
pub use self::survivors::{Survivor, adopt_survivors, run_in_parallel, take_survivors};
pub use self::trusted::run_trusted;
pub use crate::end::{EndLimits, RawEnd, classify};
pub use crate::limits::Limits;
pub use crate::plan::{JAIL_ARGUMENT, RUNNER_ARGUMENT, SandboxChoice};
pub use crate::user::UnprivilegedUser;
pub use crate::wire::{WireError, pair, receive, receive_from_parent, send};

use crate::plan::HostedMain;
use crate::supervisor::supervise;

/// Time between two looks at a watched child when nothing happens.
pub const WATCH_INTERVAL: Duration = Duration::from_millis(10);

/// Code of an error of [`ProcessError::NotFrozen`].
const NOT_FROZEN: &str = "sandbox.not_frozen";

/// The binary that children are made of, and how they are isolated.
#[derive(Debug, Clone)]
pub struct JailHost {
    /// Our own binary. Its `main` calls [`child_main`] first.
    pub executable: PathBuf,
    /// Which means of isolation are tried.
    pub means: SandboxChoice,
    /// The user that programs run as when the worker runs as root.
    pub user: UnprivilegedUser,
    /// The jails that run, to stop them while one of them is timed.
    pub running: RunningJails,
}

impl JailHost {
    /// Creates a host that maps programs of a worker of root to the default user.
    #[must_use]
    pub fn new(executable: PathBuf, means: SandboxChoice) -> Self {
        Self { executable, means, user: UnprivilegedUser::default(), running: RunningJails::default() }
    }
}

/// Interval at which a waiting thread looks whether its work was cancelled.
const CANCEL_INTERVAL: Duration = Duration::from_millis(50);

/// A flag that one thread sets to stop the work of others.
#[derive(Debug, Clone, Default)]
pub struct CancelFlag(Arc<AtomicBool>);

impl CancelFlag {
    /// Cancels the work. It ends within a few hundredths of a second.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Returns whether the work is cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Waits while the condition holds and the work is not cancelled.
    pub fn wait_while<'s, T>(
        &self,
        changed: &Condvar,
        mut state: MutexGuard<'s, T>,
        condition: impl Fn(&T) -> bool,
    ) -> MutexGuard<'s, T> {
        while condition(&state) && !self.is_cancelled() {
            state = changed.wait_timeout(state, CANCEL_INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
        }
        state
    }

    /// Locks a mutex that another thread may hold for long. Returns nothing when the work is cancelled before that.
    pub fn lock<'m, T>(&self, mutex: &'m Mutex<T>) -> Option<MutexGuard<'m, T>> {
        loop {
            match mutex.try_lock() {
                Ok(guard) => return Some(guard),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) if self.is_cancelled() => return None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(WATCH_INTERVAL),
            }
        }
    }
}

/// Why a process could not be started, watched or frozen. A program that fails is a [`ProcessResult`] instead.
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
    /// Some process of the jail could not be shown to be stopped.
    #[error("the jail could not be frozen: {0}")]
    NotFrozen(String),
    /// The kernel killed a process of the jail to free memory of the machine.
    #[error("the kernel killed a process to free memory of this machine: the process had not reached its own limit")]
    MachineFull,
    /// The work was cancelled.
    #[error("the work was cancelled")]
    Cancelled,
}

impl From<ProcessError> for StepFailure {
    fn from(error: ProcessError) -> Self {
        let code = match &error {
            ProcessError::Os { .. } => "process.os",
            ProcessError::Setup(_) => "process.setup",
            ProcessError::NotFrozen(_) => NOT_FROZEN,
            ProcessError::MachineFull => "process.machine_full",
            ProcessError::Cancelled => "step.cancelled",
        };
        Self::retriable(code, error.to_string())
    }
}

/// Carries out `__jail` and `__runner` and returns the exit status; none for any other argument. Call it first in `main`,
/// before any thread starts.
#[must_use]
pub fn child_main(args: &[OsString], hosted: &HostedMain) -> Option<i32> {
    let name = args.get(1)?;
    (name == JAIL_ARGUMENT || name == RUNNER_ARGUMENT).then(|| supervise(hosted))
}

fn os(what: &str, source: std::io::Error) -> ProcessError {
    ProcessError::Os { what: what.to_owned(), source }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn cancelled_work_waits_for_no_mutex() {
        let (mutex, cancel) = (Mutex::new(()), CancelFlag::default());
        let held = cancel.lock(&mutex).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let answer = std::thread::scope(|scope| {
            scope.spawn(|| tell.send(cancel.lock(&mutex).is_some()));
            cancel.cancel();
            let answer = told.recv_timeout(std::time::Duration::from_mins(10));
            drop(held);
            answer
        });
        assert_eq!(answer, Ok(false));
        assert!(cancel.lock(&mutex).is_some(), "a free one is locked at once");
    }
}
