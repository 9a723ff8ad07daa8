//! Keeps the index of attempts: what the states of runs say is written into it after the commits that it follows.
//!
//! It is derived, so that nothing waits for it: a notice says that a run changed, and a moment later lists know. A slow
//! look over all runs finds what nobody was told of (an imported campaign, another form of the index, a server that ended
//! before it had written). Writing the same twice is harmless, so that replicas need not agree on who writes; a run that
//! is known to belong to another one is left to that one at first.

mod keep;
mod project;
mod texts;
mod written;

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use nightshift_protocol::id::RunId;
use nightshift_store::IndexedAttempt;
use tokio::sync::{Notify, OnceCell};

use self::written::Written;

pub(crate) use keep::run;
pub use project::{AttemptSpan, FORM, indexed_attempts};

/// Runs in the inbox; beyond that the loop looks at all of them instead.
const MAX_INBOX: usize = 10_000;

/// What the loop is told.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    told: Mutex<Told>,
    news: Notify,
    written: Mutex<Written>,
    /// Whether a server without loops has caught up.
    caught_up: OnceCell<()>,
}

/// What there is to do.
#[derive(Debug, Default)]
struct Told {
    runs: HashSet<RunId>,
    look: bool,
}

impl Inbox {
    /// The log or status of this run changed.
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

    /// Something changed, and it is not known what.
    pub(crate) fn look(&self) {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).look = true;
        self.news.notify_one();
    }

    /// The rows of a run that are not in the index as they are, as far as this process knows.
    fn changed_rows(&self, run: &RunId, rows: &[IndexedAttempt]) -> Vec<IndexedAttempt> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).changed(run, rows)
    }

    /// The rows of this run were written.
    fn keep_written(&self, run: &RunId, rows: Vec<IndexedAttempt>) {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).keep(run, rows);
    }

    /// The next write of this run is a whole one.
    fn forget_written(&self, run: &RunId) {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).forget(run);
    }

    fn take(&self) -> Told {
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
