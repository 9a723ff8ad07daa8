//! The inbox of the loop that maintains the index of attempts.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use nightshift_protocol::id::RunId;
use tokio::sync::{Notify, OnceCell};

/// Maximum number of runs in the inbox. Beyond it, the loop scans all runs instead.
const MAX_INBOX: usize = 10_000;

/// The inbox of the loop.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    told: Mutex<PendingWork>,
    pub(crate) news: Notify,
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
