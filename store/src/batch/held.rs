//! The working set for rare operations: load, apply verbs, write.

use std::collections::HashSet;

use nightshift_protocol::time::TimestampMs;

use super::working_set::WorkingSet;
use super::{load, unblock, write};
use crate::failure::Failure;
use crate::transaction::Transaction;

/// Which rows a rare operation needs. Runs come with their campaigns and budgets, and on Postgres with their locks.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    /// Runs by public id.
    pub(crate) runs: Vec<String>,
    /// Runs of these steps, by public id, and the steps.
    pub(crate) steps: Vec<String>,
    /// Runs by id.
    pub(crate) run_ids: Vec<i64>,
    /// Steps by id, of the runs that are named.
    pub(crate) step_ids: Vec<i64>,
    /// Whether all open steps of the runs are wanted.
    pub(crate) open_steps: bool,
}

/// Rows that are held until they are written.
pub(crate) struct Held {
    /// What verbs are applied to.
    pub(crate) set: WorkingSet,
}

impl Held {
    /// Loads them. What does not exist is left out.
    pub(crate) async fn load(transaction: &mut Transaction<'_>, wanted: Wanted) -> Result<Self, Failure> {
        let mut set = WorkingSet { virtual_now: transaction.memory.virtual_now(), ..WorkingSet::default() };
        let connection = &mut *transaction.connection;
        load::runs(connection, &mut set, wanted.runs, wanted.steps.clone(), wanted.run_ids).await?;
        let with_budget: HashSet<i64> = set.runs.values().map(|run| run.campaign_id).collect();
        load::campaigns(connection, &mut set, &with_budget).await?;
        load::steps(connection, &mut set, wanted.step_ids).await?;
        if wanted.open_steps {
            let runs = set.runs.keys().copied().collect();
            load::open_steps(connection, &mut set, runs).await?;
        }
        if !wanted.steps.is_empty() {
            load::steps_by_public_id(connection, &mut set, wanted.steps).await?;
        }
        Ok(Self { set })
    }

    /// Writes what became of them, after a look at steps that wait for what was given back; whether there was anything.
    pub(crate) async fn write(mut self, transaction: &mut Transaction<'_>, at: TimestampMs) -> Result<bool, Failure> {
        let mut wrote = unblock::look_again(transaction.connection, &mut self.set, at).await?;
        wrote |= write::campaigns(transaction.connection, &mut self.set).await?;
        transaction.notices.extend(self.set.take_notices());
        wrote |= write::all(transaction.connection, self.set).await?;
        Ok(wrote)
    }
}
