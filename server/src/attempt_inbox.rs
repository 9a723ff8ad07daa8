//! The inbox of the loop that maintains the index of attempts.

mod written;

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use nightshift_protocol::id::RunId;
use nightshift_store::IndexedAttempt;
use tokio::sync::{Notify, OnceCell};

use self::written::Written;

/// Maximum number of runs in the inbox. Beyond it, the loop scans all runs instead.
const MAX_INBOX: usize = 10_000;

/// The inbox of the loop.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    told: Mutex<PendingWork>,
    pub(crate) news: Notify,
    written: Mutex<Written>,
    /// Whether a server without loops has caught up.
    pub(crate) caught_up: OnceCell<()>,
}

/// The pending work.
#[derive(Debug, Default)]
pub(crate) struct PendingWork {
    pub(crate) runs: HashSet<RunId>,
    pub(crate) look: bool,
}

impl Inbox {
    /// Records that the log or status of this run changed.
    pub(crate) fn run_changed(&self, run: &RunId) {
        {
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            if told.runs.len() < MAX_INBOX {
                told.runs.insert(run.clone());
            } else {
                told.look = true;
            }
        }
        self.news.notify_one();
    }

    /// Records an unknown change.
    pub(crate) fn look(&self) {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).look = true;
        self.news.notify_one();
    }

    /// Returns the rows of a run that differ from the index, as far as this process knows.
    pub(crate) fn changed_rows(&self, run: &RunId, rows: &[IndexedAttempt]) -> Vec<IndexedAttempt> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).changed(run, rows)
    }

    /// Records that the rows of this run were written.
    pub(crate) fn keep_written(&self, run: &RunId, rows: Vec<IndexedAttempt>) {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).keep(run, rows);
    }

    /// Forces the next write of this run to be complete.
    pub(crate) fn forget_written(&self, run: &RunId) {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).forget(run);
    }

    pub(crate) fn take(&self) -> PendingWork {
        std::mem::take(&mut *self.told.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use nightshift_protocol::id::RunId;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_run_that_changed_twice_is_looked_at_once() {
        let inbox = Inbox::default();
        let run = RunId::from_uuid(Uuid::from_u128(1));
        inbox.run_changed(&run);
        inbox.run_changed(&run);
        let told = inbox.take();
        assert_eq!((told.runs.len(), told.look), (1, false));
        assert!(inbox.take().runs.is_empty());
    }

    #[test]
    fn beyond_the_limit_everything_is_looked_at() {
        let inbox = Inbox::default();
        for number in 0..=MAX_INBOX {
            inbox.run_changed(&RunId::from_uuid(Uuid::from_u128(u128::try_from(number).unwrap_or_default())));
        }
        let told = inbox.take();
        assert!(told.look && told.runs.len() == MAX_INBOX);
    }
}
