//! Processes that are still there although they were killed. The driver of a wedged device keeps its processes in the
//! kernel, where no signal reaches them.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

thread_local! {
    /// Those of this thread: whatever a step starts, it starts and ends on one thread.
    static SURVIVORS: RefCell<Vec<Survivor>> = const { RefCell::new(Vec::new()) };
}

/// A process that outlived its killing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survivor {
    pid: i32,
    /// When it was started, which tells it from a later one of the same number.
    started: u64,
}

impl Survivor {
    /// Its number.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether it is still there.
    #[must_use]
    pub fn is_there(&self) -> bool {
        running(Path::new("/proc"), self.pid) == Some(self.started)
    }
}

/// Remembers this process when it is still there.
pub(super) fn note(pid: Option<i32>) {
    let Some(pid) = pid else { return };
    if let Some(started) = running(Path::new("/proc"), pid) {
        SURVIVORS.with_borrow_mut(|survivors| survivors.push(Survivor { pid, started }));
    }
}

/// Those that this thread left behind, which are forgotten with that.
pub fn take_survivors() -> Vec<Survivor> {
    SURVIVORS.with_borrow_mut(std::mem::take)
}

/// Counts them as left behind by this thread.
pub fn adopt(survivors: Vec<Survivor>) {
    SURVIVORS.with_borrow_mut(|own| own.extend(survivors));
}

/// Does two things at once, of which either may start and end processes: what outlives them counts as left behind by this
/// thread.
pub fn side_by_side<A: Send, B>(left: impl FnOnce() -> A + Send, right: impl FnOnce() -> B) -> (A, B) {
    std::thread::scope(|scope| {
        let other = scope.spawn(|| (left(), take_survivors()));
        let right = right();
        match other.join() {
            Ok((left, survivors)) => {
                adopt(survivors);
                (left, right)
            }
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// When a process was started, by the table of processes in this folder; none when it is gone or only waits for
/// somebody to take its end.
fn running(table: &Path, pid: i32) -> Option<u64> {
    let path: PathBuf = table.join(pid.to_string()).join("stat");
    let stat = std::fs::read_to_string(path).ok()?;
    // The name in parentheses may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let is_over = matches!(fields.next()?, "Z" | "X" | "x");
    let started = fields.nth(18)?.parse().ok()?;
    (!is_over).then_some(started)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_number_and_start_and_gone_when_only_its_end_is_left() {
        let table = tempfile::tempdir().unwrap();
        let write = |pid: i32, text: &str| {
            std::fs::create_dir_all(table.path().join(pid.to_string())).unwrap();
            std::fs::write(table.path().join(pid.to_string()).join("stat"), text).unwrap();
        };
        let rest = "1 1 1 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 777 1000 10";
        write(7, &format!("7 (a) name) D {rest}"));
        write(8, &format!("8 (b) Z {rest}"));
        assert_eq!(running(table.path(), 7), Some(777));
        assert_eq!(running(table.path(), 8), None);
        assert_eq!(running(table.path(), 9), None);
    }

    #[test]
    fn what_is_still_there_is_remembered_by_this_thread_and_for_those_beside_it() {
        let ourselves = i32::try_from(std::process::id()).unwrap();
        note(Some(ourselves));
        note(None);
        std::thread::spawn(|| assert!(take_survivors().is_empty())).join().unwrap();
        let (theirs, own) = side_by_side(|| note(Some(ourselves)), || 7);
        assert_eq!((theirs, own), ((), 7));
        let survivors = take_survivors();
        assert_eq!(survivors.iter().map(Survivor::pid).collect::<Vec<_>>(), [ourselves, ourselves]);
        assert!(survivors[0].is_there() && take_survivors().is_empty());
    }
}
