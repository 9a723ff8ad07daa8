//! What servers ask for again and again, where a method of the port has nothing to write most of the time.

use nightshift_engine::store::StoreError;
use nightshift_protocol::id::WorkerId;
use nightshift_protocol::time::TimestampMs;

use crate::direct::{timer, worker};
use crate::store::SqlStore;

impl SqlStore {
    /// Fires timers that are due; how many, and when the next one is.
    pub(crate) async fn fire_due_timers(
        &self,
        at: TimestampMs,
        limit: u32,
    ) -> Result<(u64, Option<TimestampMs>), StoreError> {
        let next = read!(self, |connection| timer::next(connection))?;
        if next.is_none_or(|next| next > at) {
            return Ok((0, next));
        }
        write!(self, |transaction, at, limit| timer::fire(transaction, *at, *limit))
    }

    /// Notes that workers were heard of.
    pub(crate) async fn note_seen_workers(&self, workers: &[WorkerId], at: TimestampMs) -> Result<(), StoreError> {
        if workers.is_empty() {
            return Ok(());
        }
        let workers = workers.to_vec();
        write!(self, |transaction, workers, at| worker::all_seen(transaction, workers, *at))
    }
}
