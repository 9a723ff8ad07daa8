//! Divides the memory of the machine or of a GPU among concurrent steps. The demand of a step follows from its task's
//! tensors ([`MemoryDemand`](nightshift_protocol::task::MemoryDemand)). A step that does not fit now waits; one that can never
//! fit is refused. Processes that use the same folder share one budget.

mod slots;

use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nightshift_protocol::step::StepFailure;
use nightshift_protocol::task::usable_memory;

use nightshift_sandbox::process::{CancelFlag, ProcessError};

use self::slots::Slots;

/// Interval at which a waiting step checks whether it was cancelled.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A memory budget. Requests are served in FIFO order.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    what: String,
    usable_bytes: u64,
    table: Mutex<Table>,
    changed: Condvar,
    /// Slots of the memory, if other processes share it.
    slots: Option<PathBuf>,
}

#[derive(Debug, Default)]
struct Table {
    taken_bytes: u64,
    next: u64,
    waiting: VecDeque<u64>,
}

/// A reserved part of a memory, released when dropped.
#[derive(Debug)]
pub(crate) struct MemoryShare {
    _here: Taken,
    /// Locks that reserve the memory against other processes.
    _slots: Vec<File>,
}

/// Number of bytes reserved in this process.
#[derive(Debug)]
struct Taken {
    budget: Arc<MemoryBudget>,
    bytes: u64,
}

impl MemoryBudget {
    /// Creates a budget of this many bytes for this process alone. With 0, an unknown size, every step fits. `what` names the
    /// memory in messages.
    pub(crate) fn new(what: impl Into<String>, bytes: u64) -> Arc<Self> {
        Arc::new(Self::of(what.into(), bytes, None))
    }

    /// Creates a budget that processes with the same folder share.
    pub(crate) fn between_processes(what: impl Into<String>, bytes: u64, folder: &Path) -> Arc<Self> {
        let is_known = bytes > 0;
        Arc::new(Self::of(what.into(), bytes, is_known.then(|| folder.to_owned())))
    }

    fn of(what: String, bytes: u64, slots: Option<PathBuf>) -> Self {
        let usable_bytes = if bytes == 0 { u64::MAX } else { usable_memory(bytes) };
        Self { what, usable_bytes, table: Mutex::default(), changed: Condvar::new(), slots }
    }

    /// Waits until `bytes` are free and reserves them, plus as many of the `beside` bytes as the memory has. Requests are
    /// served in FIFO order. During the wait, `give_back` is called so that idle processes release memory.
    pub(crate) fn take(
        self: &Arc<Self>,
        bytes: u64,
        beside: u64,
        give_back: &dyn Fn(),
        cancel: &CancelFlag,
    ) -> Result<MemoryShare, StepFailure> {
        if bytes > self.usable_bytes {
            return Err(StepFailure::retriable(
                "worker.too_little_memory",
                format!(
                    "judging programs of this task takes about {} of {}, and steps may use {} there: make the sizes of the \
                     task smaller, or use a machine with more",
                    gib(bytes),
                    self.what,
                    gib(self.usable_bytes)
                ),
            ));
        }
        let bytes = bytes.saturating_add(beside).min(self.usable_bytes);
        let here = self.take_here(bytes, give_back, cancel)?;
        let slots = self.take_slots(bytes, cancel)?;
        Ok(MemoryShare { _here: here, _slots: slots })
    }

    /// Waits for the memory among the steps of this process.
    fn take_here(
        self: &Arc<Self>,
        bytes: u64,
        give_back: &dyn Fn(),
        cancel: &CancelFlag,
    ) -> Result<Taken, StepFailure> {
        let mut table = self.table();
        let number = table.next;
        table.next += 1;
        table.waiting.push_back(number);
        loop {
            let first = table.waiting.front() == Some(&number);
            if first && table.taken_bytes.saturating_add(bytes) <= self.usable_bytes {
                table.waiting.pop_front();
                table.taken_bytes += bytes;
                self.changed.notify_all();
                return Ok(Taken { budget: Arc::clone(self), bytes });
            }
            if cancel.is_cancelled() {
                table.waiting.retain(|waiting| *waiting != number);
                self.changed.notify_all();
                return Err(ProcessError::Cancelled.into());
            }
            table = self.changed.wait_timeout(table, LOOK_EVERY).unwrap_or_else(PoisonError::into_inner).0;
            if first {
                drop(table);
                give_back();
                table = self.table();
            }
        }
    }

    /// Waits for the memory among processes.
    fn take_slots(&self, bytes: u64, cancel: &CancelFlag) -> Result<Vec<File>, StepFailure> {
        let Some(folder) = &self.slots else { return Ok(Vec::new()) };
        let slots = match Slots::open(folder) {
            Ok(slots) => slots,
            Err(error) => {
                tracing::warn!(%error, folder = %folder.display(), "memory cannot be shared with other processes");
                return Ok(Vec::new());
            }
        };
        slots.take(bytes, self.usable_bytes, || {
            if cancel.is_cancelled() {
                return Err(ProcessError::Cancelled.into());
            }
            std::thread::sleep(LOOK_EVERY);
            Ok(())
        })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut table = self.budget.table();
        table.taken_bytes = table.taken_bytes.saturating_sub(self.bytes);
        self.budget.changed.notify_all();
    }
}

/// Returns a number of bytes in GiB, with one digit after the point.
fn gib(bytes: u64) -> String {
    let tenths = bytes.saturating_mul(10) >> 30;
    format!("{}.{} GiB", tenths / 10, tenths % 10)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    const SHORT: Duration = Duration::from_millis(300);

    fn budget_of(usable: u64) -> Arc<MemoryBudget> {
        let budget = MemoryBudget::new("this machine's memory", usable * 100 / 92 + 100);
        assert!(budget.usable_bytes >= usable && budget.usable_bytes < usable + 100, "{}", budget.usable_bytes);
        budget
    }

    fn taken(budget: &Arc<MemoryBudget>, bytes: u64) -> MemoryShare {
        match budget.take(bytes, 0, &|| (), &CancelFlag::default()) {
            Ok(part) => part,
            Err(failure) => panic!("refused: {failure}"),
        }
    }

    #[test]
    fn what_there_is_no_room_for_now_waits_and_goes_first() {
        let budget = budget_of(1_000);
        let first = taken(&budget, 600);
        let (told, heard) = channel();
        std::thread::scope(|scope| {
            let large = told.clone();
            let of_large = &budget;
            scope.spawn(move || {
                let part = taken(of_large, 900);
                large.send("large").ok();
                std::thread::sleep(SHORT);
                drop(part);
            });
            while budget.table().waiting.is_empty() {
                std::thread::yield_now();
            }
            // There would be memory for it, but the large one asked before.
            let of_small = &budget;
            scope.spawn(move || {
                let _part = taken(of_small, 200);
                told.send("small").ok();
            });
            assert!(heard.recv_timeout(SHORT).is_err(), "both wait");
            drop(first);
            assert_eq!((heard.recv(), heard.recv()), (Ok("large"), Ok("small")));
        });
        assert_eq!(budget.table().taken_bytes, 0);
    }

    #[test]
    fn what_there_can_be_no_room_for_is_refused_with_what_to_do() {
        let budget = MemoryBudget::new("this machine's memory", 32 << 30);
        let Err(failure) = budget.take(80 << 30, 0, &|| (), &CancelFlag::default()) else { panic!("not refused") };
        assert_eq!(failure.code, "worker.too_little_memory");
        assert!(failure.message.contains("about 80.0 GiB of this machine's memory"), "{}", failure.message);
        assert!(failure.message.contains("29.4 GiB"), "{}", failure.message);
        assert!(MemoryBudget::new("unknown", 0).take(u64::MAX >> 1, 0, &|| (), &CancelFlag::default()).is_ok());
    }

    #[test]
    fn what_would_be_good_to_have_beside_is_taken_as_far_as_there_is_some() {
        let budget = budget_of(1_000);
        for (bytes, beside, taken) in
            [(300, 200, 500), (900, 400, budget.usable_bytes), (300, u64::MAX, budget.usable_bytes)]
        {
            let part = budget.take(bytes, beside, &|| (), &CancelFlag::default());
            assert!(part.is_ok());
            assert_eq!(budget.table().taken_bytes, taken, "{bytes} and {beside}");
        }
    }

    #[test]
    fn one_that_is_cancelled_leaves_its_place_to_others() {
        let budget = budget_of(1_000);
        let first = taken(&budget, 600);
        let cancel = CancelFlag::default();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| budget.take(900, 0, &|| (), &cancel).map(drop));
            while budget.table().waiting.is_empty() {
                std::thread::yield_now();
            }
            cancel.cancel();
            assert!(waits.join().is_ok_and(|waited| waited.is_err()));
        });
        let second = taken(&budget, 300);
        drop((first, second));
        assert_eq!(budget.table().taken_bytes, 0);
    }

    #[test]
    fn a_step_waits_for_the_memory_that_another_process_holds() {
        let folder = tempfile::tempdir().unwrap();
        let process = || MemoryBudget::between_processes("the memory of a GPU", 1_000, folder.path());
        let (one, other) = (process(), process());
        let first = taken(&one, 600);
        drop(taken(&other, 300));
        let cancel = CancelFlag::default();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| other.take(600, 0, &|| (), &cancel).map(drop));
            // It has the memory in its own process, and looks for slots.
            while other.table().taken_bytes == 0 && !waits.is_finished() {
                std::thread::yield_now();
            }
            cancel.cancel();
            assert!(waits.join().is_ok_and(|waited| waited.is_err()), "both have 600 of 1,000 bytes");
        });
        assert_eq!(other.table().taken_bytes, 0, "a cancelled step leaves nothing taken");
        drop(first);
        drop(taken(&other, 600));
    }
}
