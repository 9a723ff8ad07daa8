//! What a process keeps of the store between transactions.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use tokio::sync::Mutex;

use crate::connection::{Backend, Connection};
use crate::created::CreatedRuns;
use crate::failure::Failure;
use crate::value::values;

/// Ids of steps that the sequence of Postgres gives at once: its increment in the schema.
const STEP_ID_BLOCK: i64 = 1_000;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    virtual_now: AtomicI64,
    counter: AtomicU64,
    step_ids: Mutex<StepIds>,
    routes: RwLock<HashMap<String, i64>>,
    /// Runs that nobody has decided for yet.
    pub(crate) created: CreatedRuns,
}

/// Ids that were taken from the database and given to no step yet: from the first, before the last.
#[derive(Debug, Default)]
struct StepIds {
    next: i64,
    end: i64,
}

impl Memory {
    /// The virtual time of fairness: the rank of the last step that was claimed.
    pub(crate) fn virtual_now(&self) -> i64 {
        self.virtual_now.load(Ordering::Relaxed)
    }

    /// Moves the virtual time on; it never goes back.
    pub(crate) fn raise_virtual_now(&self, rank: i64) {
        self.virtual_now.fetch_max(rank, Ordering::Relaxed);
    }

    /// The key of a route that is committed.
    pub(crate) fn route(&self, needs: &str) -> Option<i64> {
        self.routes.read().unwrap_or_else(PoisonError::into_inner).get(needs).copied()
    }

    /// Keeps what a commit made true.
    pub(crate) fn remember(&self, routes: Vec<(String, i64)>, claimed_rank: Option<i64>) {
        if !routes.is_empty() {
            self.routes.write().unwrap_or_else(PoisonError::into_inner).extend(routes);
        }
        if let Some(rank) = claimed_rank {
            self.raise_virtual_now(rank);
        }
    }

    /// A number that this process did not give before.
    pub(crate) fn number(&self) -> u64 {
        self.counter.fetch_add(1, Ordering::Relaxed)
    }

    /// Ids for new steps, ascending. Those of a transaction that fails are lost, which is no harm.
    pub(crate) async fn step_ids(&self, connection: &mut Connection, count: usize) -> Result<Vec<i64>, Failure> {
        let mut ids = self.step_ids.lock().await;
        let mut taken = Vec::with_capacity(count);
        while taken.len() < count {
            if ids.next == ids.end {
                *ids = match connection.backend() {
                    Backend::Sqlite => {
                        let row = connection.fetch_one("SELECT coalesce(MAX(id), 0) FROM step", values![]).await?;
                        StepIds { next: row.i64(0)? + 1, end: i64::MAX }
                    }
                    Backend::Postgres => {
                        let row = connection.fetch_one("SELECT nextval('step_id_seq')", values![]).await?;
                        let next = row.i64(0)?;
                        StepIds { next, end: next + STEP_ID_BLOCK }
                    }
                };
            }
            taken.push(ids.next);
            ids.next += 1;
        }
        Ok(taken)
    }
}
