//! Limits on calls that occupy memory or a connection for long.

use std::sync::Arc;

use axum::http::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::ApiFailure;

/// Maximum number of calls that wait for a run's log. A further call is answered at once.
const MAX_HELD_POLLS: usize = 1_024;
/// Maximum number of concurrent artifact transfers, which bounds their memory.
const MAX_TRANSFERS: usize = 8;
/// Maximum number of pages of tables that are read and written at once; a further one waits.
const MAX_TABLES: usize = 4;
/// Maximum number of tables that are being sent, each of which keeps a page in memory. A further one is refused.
const MAX_OPEN_TABLES: usize = 64;

/// The calls of each kind that may still begin.
pub(crate) struct CallLimits {
    pub(crate) held_polls: Semaphore,
    pub(crate) transfers: Semaphore,
    pub(crate) tables: Arc<Semaphore>,
    open_tables: Arc<Semaphore>,
}

impl CallLimits {
    /// Counts a table until the permit is dropped.
    pub(crate) fn open_table(&self) -> Result<OwnedSemaphorePermit, ApiFailure> {
        self.open_tables.clone().try_acquire_owned().map_err(|_| {
            ApiFailure::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "server.too_many_tables",
                format!("this server already sends {MAX_OPEN_TABLES} tables: try again when one of them has ended"),
            )
        })
    }
}

impl Default for CallLimits {
    fn default() -> Self {
        Self {
            held_polls: Semaphore::new(MAX_HELD_POLLS),
            transfers: Semaphore::new(MAX_TRANSFERS),
            tables: Arc::new(Semaphore::new(MAX_TABLES)),
            open_tables: Arc::new(Semaphore::new(MAX_OPEN_TABLES)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_beyond_the_limit_is_refused_until_another_ends() {
        let limits = CallLimits::default();
        let mut open: Vec<_> = (0..MAX_OPEN_TABLES).map(|_| limits.open_table()).collect();
        assert!(open.iter().all(Result::is_ok));
        let refused = limits.open_table();
        assert!(refused.is_err_and(|failure| failure.status() == StatusCode::SERVICE_UNAVAILABLE));
        open.pop();
        assert!(limits.open_table().is_ok());
    }
}
