//! Limits on calls that occupy memory or a connection for long.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// Maximum number of calls that wait for a run's log. A further call is answered at once.
const MAX_HELD_POLLS: usize = 1_024;
/// Maximum number of concurrent artifact transfers, which bounds their memory.
const MAX_TRANSFERS: usize = 8;
/// Maximum number of pages of tables that are read and written at once; a further one waits.
const MAX_TABLES: usize = 4;

/// The calls of each kind that may still begin.
pub(crate) struct CallLimits {
    pub(crate) held_polls: Semaphore,
    pub(crate) transfers: Semaphore,
    pub(crate) tables: Arc<Semaphore>,
}

impl Default for CallLimits {
    fn default() -> Self {
        Self {
            held_polls: Semaphore::new(MAX_HELD_POLLS),
            transfers: Semaphore::new(MAX_TRANSFERS),
            tables: Arc::new(Semaphore::new(MAX_TABLES)),
        }
    }
}
