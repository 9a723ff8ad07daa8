//! The fences of the runs that this server owns.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nightshift_engine::store::OwnerFence;
use nightshift_protocol::id::{RunId, ServerId};
use tokio::time::Instant;

/// Maximum number of cached fences. Further ones are acquired again.
const MAX_FENCES: usize = 200_000;
/// Maximum number of known runs of other servers.
const MAX_FOREIGN: usize = 50_000;

/// The fences.
#[derive(Debug, Default)]
pub(crate) struct Fences(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    mine: HashMap<RunId, OwnerFence>,
    foreign: HashMap<RunId, Instant>,
}

impl Fences {
    /// Returns the fence of this run under this server lease.
    pub(crate) fn get(&self, run: &RunId, server: &ServerId) -> Option<OwnerFence> {
        self.kept().mine.get(run).filter(|fence| fence.server == *server).cloned()
    }

    /// Records that this server owns the run.
    pub(crate) fn keep(&self, run: RunId, fence: OwnerFence) {
        let mut kept = self.kept();
        kept.foreign.remove(&run);
        if kept.mine.len() < MAX_FENCES {
            kept.mine.insert(run, fence);
        }
    }

    /// Removes a run that has ended or has another owner.
    pub(crate) fn give_up(&self, run: &RunId) {
        self.kept().mine.remove(run);
    }

    /// Records that the run belongs to another server. Until `until`, notices about it cause no acquisition.
    pub(crate) fn mark_foreign_until(&self, run: RunId, until: Instant) {
        let mut kept = self.kept();
        kept.mine.remove(&run);
        if kept.foreign.len() >= MAX_FOREIGN {
            let now = Instant::now();
            kept.foreign.retain(|_, until| *until > now);
        }
        if kept.foreign.len() < MAX_FOREIGN {
            kept.foreign.insert(run, until);
        }
    }

    /// Returns whether the run recently belonged to another server.
    pub(crate) fn is_foreign(&self, run: &RunId) -> bool {
        self.kept().foreign.get(run).is_some_and(|until| Instant::now() < *until)
    }

    /// Removes all fences after the end of the server lease. Returns the runs.
    pub(crate) fn clear(&self) -> Vec<RunId> {
        std::mem::take(&mut *self.kept()).mine.into_keys().collect()
    }

    fn kept(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
