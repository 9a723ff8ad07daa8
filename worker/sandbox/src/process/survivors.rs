//! Processes that still run although they were killed. The driver of a wedged GPU keeps its processes in the kernel, where no
//! signal reaches them.

use std::cell::RefCell;
use std::path::Path;

use crate::procfs::{self, PROC};

thread_local! {
    /// Survivors of the processes of this thread. One thread starts and kills all processes of a step.
    static SURVIVORS: RefCell<Vec<Survivor>> = const { RefCell::new(Vec::new()) };
}

/// A process that survived its killing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survivor {
    pid: i32,
    /// Start time, which tells the process from a later one with the same id.
    start_ticks: u64,
}

impl Survivor {
    /// Returns the process id.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Returns whether the process still runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        running_since(Path::new(PROC), self.pid) == Some(self.start_ticks)
    }
}

/// Records a killed process of this thread if it still runs.
pub(super) fn note(pid: Option<i32>) {
    let Some(pid) = pid else { return };
    if let Some(start_ticks) = running_since(Path::new(PROC), pid) {
        SURVIVORS.with_borrow_mut(|survivors| survivors.push(Survivor { pid, start_ticks }));
    }
}

/// Returns the survivors of this thread and forgets them.
pub fn take_survivors() -> Vec<Survivor> {
    SURVIVORS.with_borrow_mut(std::mem::take)
}

/// Records survivors of another thread as those of this one.
pub fn adopt_survivors(survivors: Vec<Survivor>) {
    SURVIVORS.with_borrow_mut(|own| own.extend(survivors));
}

/// Runs two functions at the same time, the left one on another thread. Survivors of both are recorded for this thread.
pub fn run_in_parallel<A: Send, B>(left: impl FnOnce() -> A + Send, right: impl FnOnce() -> B) -> (A, B) {
    std::thread::scope(|scope| {
        let other = scope.spawn(|| (left(), take_survivors()));
        let right = right();
        match other.join() {
            Ok((left, survivors)) => {
                adopt_survivors(survivors);
                (left, right)
            }
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Returns the start time of a process in a process table; none when it has ended.
fn running_since(table: &Path, pid: i32) -> Option<u64> {
    procfs::stat(table, pid).filter(|stat| !stat.has_ended()).map(|stat| stat.start_ticks)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_id_and_start_time_until_it_is_a_zombie() {
        let table = tempfile::tempdir().unwrap();
        let write = |pid: i32, text: &str| {
            std::fs::create_dir_all(table.path().join(pid.to_string())).unwrap();
            std::fs::write(table.path().join(pid.to_string()).join("stat"), text).unwrap();
        };
        let rest = "1 1 1 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 777 1000 10";
        write(7, &format!("7 (a) name) D {rest}"));
        write(8, &format!("8 (b) Z {rest}"));
        assert_eq!(running_since(table.path(), 7), Some(777));
        assert_eq!(running_since(table.path(), 8), None);
        assert_eq!(running_since(table.path(), 9), None);
    }

    #[test]
    fn survivors_are_recorded_for_the_thread_and_for_its_helpers() {
        let ourselves = i32::try_from(std::process::id()).unwrap();
        note(Some(ourselves));
        note(None);
        std::thread::spawn(|| assert!(take_survivors().is_empty())).join().unwrap();
        let (theirs, own) = run_in_parallel(|| note(Some(ourselves)), || 7);
        assert_eq!((theirs, own), ((), 7));
        let survivors = take_survivors();
        assert_eq!(survivors.iter().map(Survivor::pid).collect::<Vec<_>>(), [ourselves, ourselves]);
        assert!(survivors[0].is_running() && take_survivors().is_empty());
    }
}
