//! The device lock: coordinates concurrent uses of a device.
//!
//! Measurements need the device alone. A confirmation, on which a published number rests, also needs a driver that is idle: while
//! other contexts begin, end or free memory, the driver delays calls. Requests are served in FIFO order.

mod between_processes;

use std::cell::Cell;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use nightshift_sandbox::process::{CancelFlag, ProcessError};

use self::between_processes::{LockFiles, Locked};
pub use self::between_processes::{lock_driver_within, open_lock_file, try_lock_file};

thread_local! {
    /// Guards that this thread holds.
    static HELD: Cell<u32> = const { Cell::new(0) };
}

/// Returns whether this thread holds a guard. Such a thread must not wait for a thread that may need one.
pub(crate) fn holds_guard() -> bool {
    HELD.get() > 0
}

/// The kind of use that a lock is taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceMode {
    /// A call of a program, or kernels of the evaluator, next to others.
    Work,
    /// The run of a tool, which takes seconds, next to others.
    Tool,
    /// The start or the end of a process on the device: the driver is busy, and hardly the device.
    Driver,
    /// No other computation on the device.
    Exclusive,
    /// No other computation on the device, and an idle driver.
    Isolated,
}

impl DeviceMode {
    fn is_alone(self) -> bool {
        matches!(self, Self::Exclusive | Self::Isolated)
    }

    fn conflicts_with(self, other: Self) -> bool {
        match (self, other) {
            (Self::Driver, mode) | (mode, Self::Driver) => mode == Self::Isolated,
            (left, right) => left.is_alone() || right.is_alone(),
        }
    }
}

/// A lock that separates uses of one device that would disturb each other's measurements.
#[derive(Debug, Default)]
pub struct DeviceLock {
    state: Mutex<State>,
    changed: Condvar,
    /// Lock files shared with other processes of this worker.
    files: Option<LockFiles>,
}

#[derive(Debug, Default)]
struct State {
    next_ticket: u64,
    waiting: VecDeque<(u64, DeviceMode)>,
    active: Vec<DeviceMode>,
}

impl State {
    fn may_enter(&self, ticket: u64, mode: DeviceMode) -> bool {
        let is_free = !self.active.iter().any(|active| active.conflicts_with(mode));
        // While a tool runs for seconds, what is over in a moment does not wait behind those that wait for the tool's end.
        let passes = mode == DeviceMode::Work && self.active.contains(&DeviceMode::Tool);
        let earlier = self.waiting.iter().take_while(|(other, _)| *other != ticket);
        is_free && (passes || !earlier.into_iter().any(|(_, other)| other.conflicts_with(mode)))
    }
}

/// A use of the device, until it is dropped.
#[derive(Debug)]
pub struct DeviceGuard<'a> {
    lock: &'a DeviceLock,
    mode: DeviceMode,
    between_processes: Locked,
}

impl DeviceLock {
    /// A lock that all processes share which name the same folder: several commands that judge programs on one device take turns.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn between_processes(folder: &Path) -> std::io::Result<Self> {
        Ok(Self { files: Some(LockFiles::open(folder)?), ..Self::default() })
    }

    /// Waits until the device may be used in this mode. A thread that holds a guard must not ask for another one.
    ///
    /// # Errors
    /// When the work is cancelled before that.
    pub fn lock(&self, mode: DeviceMode, cancel: &CancelFlag) -> Result<DeviceGuard<'_>, ProcessError> {
        let mut state = self.state();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.waiting.push_back((ticket, mode));
        let mut state = cancel.wait_while(&self.changed, state, |state| !state.may_enter(ticket, mode));
        state.waiting.retain(|(other, _)| *other != ticket);
        let is_cancelled = cancel.is_cancelled();
        if !is_cancelled {
            state.active.push(mode);
        }
        drop(state);
        // One that leaves the queue may let others pass.
        self.changed.notify_all();
        if is_cancelled {
            return Err(ProcessError::Cancelled);
        }
        HELD.set(HELD.get() + 1);
        let mut guard = DeviceGuard { lock: self, mode, between_processes: Locked::default() };
        if let Some(files) = &self.files {
            guard.between_processes = files.lock(mode, cancel)?;
        }
        Ok(guard)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for DeviceGuard<'_> {
    fn drop(&mut self) {
        HELD.set(HELD.get().saturating_sub(1));
        // The next thread must find the files free.
        self.between_processes = Locked::default();
        let mut state = self.lock.state();
        if let Some(position) = state.active.iter().position(|active| *active == self.mode) {
            state.active.swap_remove(position);
        }
        drop(state);
        self.lock.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use super::*;

    /// Long enough for a thread that may go on, on any machine.
    const LIMIT: Duration = Duration::from_secs(30);

    /// Starts a thread that locks the device, says so, and keeps it until the sender is dropped. Returns once it waits or has it.
    fn locks<'s, 'e>(
        scope: &'s std::thread::Scope<'s, 'e>,
        lock: &'e DeviceLock,
        mode: DeviceMode,
    ) -> (Receiver<()>, Sender<()>) {
        let (entered, has_entered) = channel();
        let (leave, left) = channel::<()>();
        let before = lock.state().next_ticket;
        scope.spawn(move || {
            let _guard = lock.lock(mode, &CancelFlag::default());
            entered.send(()).ok();
            left.recv().ok();
        });
        while lock.state().next_ticket == before {
            std::thread::yield_now();
        }
        (has_entered, leave)
    }

    fn waiting(lock: &DeviceLock) -> usize {
        lock.state().waiting.len()
    }

    #[test]
    fn modes_conflict_as_they_say() {
        use DeviceMode::{Driver, Exclusive, Isolated, Tool, Work};
        for (left, right, conflict) in [
            (Work, Work, false),
            (Work, Tool, false),
            (Work, Driver, false),
            (Work, Exclusive, true),
            (Tool, Isolated, true),
            (Driver, Exclusive, false),
            (Driver, Isolated, true),
            (Exclusive, Isolated, true),
            (Exclusive, Exclusive, true),
        ] {
            assert_eq!(left.conflicts_with(right), conflict, "{left:?} {right:?}");
            assert_eq!(right.conflicts_with(left), conflict, "{right:?} {left:?}");
        }
    }

    #[test]
    fn one_that_is_alone_waits_for_others_and_later_ones_wait_for_it() {
        let lock = DeviceLock::default();
        std::thread::scope(|scope| {
            let first = lock.lock(DeviceMode::Work, &CancelFlag::default());
            let (alone, leave) = locks(scope, &lock, DeviceMode::Exclusive);
            let (late, late_leaves) = locks(scope, &lock, DeviceMode::Work);
            assert_eq!(waiting(&lock), 2);
            drop(first);
            assert!(alone.recv_timeout(LIMIT).is_ok());
            assert_eq!(waiting(&lock), 1);
            drop(leave);
            assert!(late.recv_timeout(LIMIT).is_ok());
            drop(late_leaves);
        });
    }

    #[test]
    fn processes_start_next_to_a_first_measurement_and_not_next_to_a_confirmation() {
        let lock = DeviceLock::default();
        std::thread::scope(|scope| {
            let exclusive = lock.lock(DeviceMode::Exclusive, &CancelFlag::default());
            let driver = lock.lock(DeviceMode::Driver, &CancelFlag::default());
            drop(exclusive);
            let (quiet, leave) = locks(scope, &lock, DeviceMode::Isolated);
            let (late, late_leaves) = locks(scope, &lock, DeviceMode::Driver);
            assert_eq!(waiting(&lock), 2);
            drop(driver);
            assert!(quiet.recv_timeout(LIMIT).is_ok());
            assert_eq!(waiting(&lock), 1);
            drop(leave);
            assert!(late.recv_timeout(LIMIT).is_ok());
            drop(late_leaves);
        });
    }

    #[test]
    fn short_work_passes_those_that_wait_for_a_tool() {
        let lock = DeviceLock::default();
        std::thread::scope(|scope| {
            let tool = lock.lock(DeviceMode::Tool, &CancelFlag::default());
            let (alone, leave) = locks(scope, &lock, DeviceMode::Exclusive);
            drop(lock.lock(DeviceMode::Work, &CancelFlag::default()));
            let (second_tool, second_leaves) = locks(scope, &lock, DeviceMode::Tool);
            assert_eq!(waiting(&lock), 2);
            drop(tool);
            assert!(alone.recv_timeout(LIMIT).is_ok());
            drop(leave);
            assert!(second_tool.recv_timeout(LIMIT).is_ok());
            drop(second_leaves);
        });
    }

    #[test]
    fn a_cancelled_thread_leaves_the_queue_and_lets_others_pass() {
        let (lock, cancel) = (DeviceLock::default(), CancelFlag::default());
        std::thread::scope(|scope| {
            let held = lock.lock(DeviceMode::Work, &CancelFlag::default());
            let cancelled = scope.spawn(|| lock.lock(DeviceMode::Exclusive, &cancel).map(|_| ()));
            while waiting(&lock) == 0 {
                std::thread::yield_now();
            }
            let (late, late_leaves) = locks(scope, &lock, DeviceMode::Work);
            cancel.cancel();
            let ended = cancelled.join().unwrap_or_else(|_| panic!("the thread panicked"));
            assert!(matches!(ended, Err(ProcessError::Cancelled)), "{ended:?}");
            assert!(late.recv_timeout(LIMIT).is_ok(), "one that waited behind it passes");
            drop((late_leaves, held));
        });
        assert!(!holds_guard() && lock.state().active.is_empty() && waiting(&lock) == 0);
    }
}
