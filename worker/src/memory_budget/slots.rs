//! Memory shared by several processes of this machine. It is divided into slots of equal size. Each slot is a file, which
//! its user locks. The operating system frees the slots of a process that ends.

use std::fs::File;
use std::path::Path;

use nightshift_evaluator::lock::{open_lock_file, try_lock_file};

/// Number of slots: a step reserves up to a sixty-fourth more than it needs.
const SLOTS: u64 = 64;

/// The slots of one memory.
#[derive(Debug)]
pub(super) struct Slots {
    /// Locked while a process collects slots, because two partial holders would deadlock.
    turn: File,
    slots: Vec<File>,
}

impl Slots {
    /// Opens the slots in the folder that all sharing processes use.
    pub(super) fn open(folder: &Path) -> std::io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let slots = (0..SLOTS).map(|number| open_lock_file(&folder.join(format!("slot-{number}"))));
        Ok(Self { turn: open_lock_file(&folder.join("turn"))?, slots: slots.collect::<Result<_, _>>()? })
    }

    /// Locks the slots for `bytes` of `of_bytes`. While other processes hold them, calls `wait`, which returns an error to give up.
    pub(super) fn take<E>(
        mut self,
        bytes: u64,
        of_bytes: u64,
        mut wait: impl FnMut() -> Result<(), E>,
    ) -> Result<Vec<File>, E> {
        let needed = u128::from(bytes) * u128::from(SLOTS);
        let needed = usize::try_from(needed.div_ceil(u128::from(of_bytes.max(1)))).unwrap_or(usize::MAX);
        let needed = needed.min(self.slots.len());
        while !locked(&self.turn) {
            wait()?;
        }
        let mut taken = Vec::with_capacity(needed);
        loop {
            for slot in std::mem::take(&mut self.slots) {
                if taken.len() < needed && locked(&slot) { taken.push(slot) } else { self.slots.push(slot) }
            }
            if taken.len() == needed {
                return Ok(taken);
            }
            wait()?;
        }
    }
}

/// Returns whether this process holds the lock of the file now. Where files cannot be locked, the memory counts for this process alone.
fn locked(file: &File) -> bool {
    try_lock_file(file).unwrap_or_else(|error| {
        tracing::warn!(%error, "memory cannot be shared with other processes: a file cannot be locked");
        true
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// Gives up instead of waiting.
    fn take_now(folder: &Path, bytes: u64) -> Option<Vec<File>> {
        Slots::open(folder).unwrap().take(bytes, 640, || Err(())).ok()
    }

    #[test]
    fn processes_share_a_memory_and_free_what_they_took() {
        let folder = tempfile::tempdir().unwrap();
        let first = take_now(folder.path(), 400).unwrap();
        assert_eq!(first.len(), 40);
        assert!(take_now(folder.path(), 241).is_none(), "241 of 640 bytes beside 400");
        let second = take_now(folder.path(), 240).unwrap();
        assert!(take_now(folder.path(), 1).is_none());
        drop(first);
        assert_eq!(take_now(folder.path(), 400).unwrap().len(), 40);
        drop(second);
        assert_eq!(take_now(folder.path(), 10_000).unwrap().len(), 64, "more than there is takes all of it");
    }

    #[test]
    fn slots_that_become_free_are_collected_while_later_processes_wait() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = Some(take_now(folder.path(), 400).unwrap());
        let mut looks = 0;
        let second = Slots::open(folder.path()).unwrap().take(600, 640, || {
            looks += 1;
            assert!(take_now(folder.path(), 1).is_none(), "a later process waits, however little it needs");
            first = None;
            Ok::<(), ()>(())
        });
        assert_eq!((second.unwrap().len(), looks), (60, 1));
    }
}
