//! Methods of the port that servers call periodically and that usually have nothing to write.

use nightshift_engine::store::StoreError;
use nightshift_protocol::id::WorkerId;
use nightshift_protocol::time::TimestampMs;

use crate::direct::{timer, worker};
use crate::store::SqlStore;

impl SqlStore {
    /// Fires due timers. Returns their number, and the next due time.
    pub(crate) async fn fire_due_timers(
        &self,
        at: TimestampMs,
        limit: u32,
    ) -> Result<(u64, Option<TimestampMs>), StoreError> {
        let next = read!(self, |connection| timer::next(connection))?;
        if next.is_none_or(|next| next > at) {
            return Ok((0, next));
        }
        transaction!(self, |tx, at, limit| timer::fire(tx, *at, *limit))
    }

    /// Records that workers were seen.
    pub(crate) async fn note_seen_workers(&self, workers: &[WorkerId], at: TimestampMs) -> Result<(), StoreError> {
        if workers.is_empty() {
            return Ok(());
        }
        let workers = workers.to_vec();
        transaction!(self, |tx, workers, at| worker::all_seen(tx, workers, *at))
    }
}
