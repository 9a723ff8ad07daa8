//! Which runs this server decides for, each under the fence that it got with it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nightshift_engine::store::OwnerFence;
use nightshift_protocol::id::{RunId, ServerId};
use tokio::time::Instant;

/// Fences that are kept; those beyond are asked for again.
const MAX_FENCES: usize = 200_000;
/// Runs of others that are remembered.
const MAX_FOREIGN: usize = 50_000;

/// The fences.
#[derive(Debug, Default)]
pub(crate) struct Fences(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    mine: HashMap<RunId, OwnerFence>,
    foreign: HashMap<RunId, Instant>,
}

impl Fences {
    /// The fence of this run, for this life.
    pub(crate) fn get(&self, run: &RunId, server: &ServerId) -> Option<OwnerFence> {
        self.kept().mine.get(run).filter(|fence| fence.server == *server).cloned()
    }

    /// The run is ours.
    pub(crate) fn keep(&self, run: RunId, fence: OwnerFence) {
        let mut kept = self.kept();
        kept.foreign.remove(&run);
        if kept.mine.len() < MAX_FENCES {
            kept.mine.insert(run, fence);
        }
    }

    /// The run is over, or not ours any more.
    pub(crate) fn give_up(&self, run: &RunId) {
        self.kept().mine.remove(run);
    }

    /// The run belongs to another server: until then nobody asks again because of a mere notice.
    pub(crate) fn is_foreign_until(&self, run: RunId, until: Instant) {
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

    /// Whether the run was another server's a moment ago.
    pub(crate) fn is_foreign(&self, run: &RunId) -> bool {
        self.kept().foreign.get(run).is_some_and(|until| Instant::now() < *until)
    }

    /// This server's life is over: nothing is its any more. Gives what was.
    pub(crate) fn clear(&self) -> Vec<RunId> {
        std::mem::take(&mut *self.kept()).mine.into_keys().collect()
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
