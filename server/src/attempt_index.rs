//! Maintains the index of attempts: writes the states of runs into it after their commits.
//!
//! The index is derived data, so no call waits for it. A notice triggers the update of a changed run, which lists show
//! a moment later. A scan of all runs at the start and after unknown changes finds an imported campaign or a new format
//! of the index. A regular scan of unfinished runs finds changes without a notice, for example of a server that ended
//! before writing. Writing the same twice is harmless, so replicas need not coordinate. A run that is known to belong to
//! another server is left to that server first.
//!
//! An [`Indexer`] remembers active runs, so a step costs the same at attempt 5 and at attempt 200.

mod indexer;
mod known_runs;
mod project;
mod texts;

use std::sync::Arc;
use std::time::Duration;

use nightshift_engine::store::StoreError;
use nightshift_store::AttemptIndex;
use tokio::time::Instant;

use crate::attempt_inbox::Inbox;
use crate::error::ApiFailure;
use crate::shared::Shared;

pub use indexer::Indexer;
pub use project::{AttemptSpan, FORM, indexed_attempts};

/// Maximum time for a server without loops to catch up before it answers with an incomplete index.
const LONGEST_CATCH_UP: Duration = Duration::from_secs(20);

/// The index of attempts of this server.
pub(crate) struct Index {
    shared: Arc<Shared>,
    /// Writes the index; none on a server without one.
    pub(crate) indexer: Option<Indexer>,
    pub(crate) inbox: Inbox,
}

impl Index {
    pub(crate) fn new(shared: Arc<Shared>, indexer: Option<Indexer>) -> Self {
        Self { shared, indexer, inbox: Inbox::default() }
    }

    /// Returns the index after bringing it up to date.
    pub(crate) async fn current(&self) -> Result<&dyn AttemptIndex, ApiFailure> {
        let indexer = self.indexer.as_ref();
        let indexer =
            indexer.ok_or_else(|| ApiFailure::internal("store.failed", "this server has no index of attempts"))?;
        self.catch_up(indexer).await;
        Ok(&*indexer.index)
    }

    /// Brings the index up to date once if no loop does, so that a command that only reads sees everything. After an
    /// error, lists may be incomplete.
    async fn catch_up(&self, indexer: &Indexer) {
        if self.shared.config.drives {
            return;
        }
        let until = Instant::now() + LONGEST_CATCH_UP;
        let caught_up = self.inbox.caught_up.get_or_try_init(|| async {
            if let Some(error) = indexer.update_all(Some(until)).await? {
                tracing::warn!(error = %error, "a run could not be indexed: lists may be incomplete");
            }
            Ok::<(), StoreError>(())
        });
        if let Err(error) = caught_up.await {
            tracing::warn!(error = %error, "the index of attempts could not be updated: lists may be incomplete");
        }
    }
}
