//! Looks at the columns of a store's attempts, refreshed before each look.

use std::sync::{Arc, PoisonError};

use nightshift_engine::store::StoreError;

use crate::attempt::columns::Columns;
use crate::attempt::refresh::{CHANGED, CHANGED_WITH, OF_RUNS, RUNS_AT_ONCE, changes, clock};
use crate::store::SqlStore;
use crate::value::values;
use crate::writer::closed;

impl SqlStore {
    /// Runs `look` on the refreshed columns, in a thread of its own: scanning a million attempts takes milliseconds.
    pub(crate) async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Columns) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        self.refresh_attempts().await?;
        let columns = Arc::clone(&self.attempts.columns);
        let looking = move || look(&columns.read().unwrap_or_else(PoisonError::into_inner));
        tokio::task::spawn_blocking(looking).await.map_err(|_| closed())
    }

    async fn refresh_attempts(&self) -> Result<(), StoreError> {
        let _only_one = self.attempts.reading.lock().await;
        let clock = read!(self, |connection| clock(connection))?;
        let mut seen = self.attempts.read(|columns| columns.seen);
        if seen == clock.0 {
            return Ok(());
        }
        // The log of deletions does not reach back far enough, or the database is older than it was (a restored
        // backup): read everything again.
        if seen < clock.1 || seen > clock.0 {
            self.attempts.write(Columns::clear);
            seen = 0;
        }
        let mut within: Option<i64> = None;
        loop {
            let changed = match within {
                None => read!(self, |connection| changes(connection, CHANGED, seen, 0))?,
                Some(run_id) => read!(self, |connection| changes(connection, CHANGED_WITH, seen, run_id))?,
            };
            let full = changed.len() >= usize::try_from(RUNS_AT_ONCE).unwrap_or(usize::MAX);
            let last = changed.last().map(|last| (last.changed, last.run_id));
            let here: Vec<i64> = changed.iter().filter(|run| !run.is_gone).map(|run| run.run_id).collect();
            let rows = read!(self, |connection| connection.fetch_all(OF_RUNS, values![here.clone()]))?;
            self.attempts.take(changed, &rows).map_err(|failure| self.store_error(failure))?;
            // A page may end within a change. Its rest comes first.
            match (last, full, within) {
                (Some((change, run_id)), true, _) => (seen, within) = (change, Some(run_id)),
                (_, _, Some(_)) => within = None,
                _ => break,
            }
        }
        self.attempts.write(|columns| columns.seen = clock.0.max(seen));
        Ok(())
    }
}
