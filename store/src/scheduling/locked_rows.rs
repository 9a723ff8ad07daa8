//! The working set for rare operations: load, apply verbs, write.

use std::collections::HashSet;

use nightshift_protocol::time::TimestampMs;

use super::working_set::WorkingSet;
use super::{load, unblock, write};
use crate::failure::Failure;
use crate::transaction::Transaction;

/// The rows that a rare operation needs. Runs are loaded with their campaigns and budgets, and locked on Postgres.
#[derive(Debug, Default)]
pub(crate) struct LoadRequest {
    /// Runs by public id.
    pub(crate) runs: Vec<String>,
    /// Steps by public id, with their runs.
    pub(crate) steps: Vec<String>,
    /// Runs by id.
    pub(crate) run_ids: Vec<i64>,
    /// Steps by id, of the runs above.
    pub(crate) step_ids: Vec<i64>,
    /// Whether to load all open steps of the runs.
    pub(crate) open_steps: bool,
}

/// Rows that are locked until they are written.
pub(crate) struct LockedRows {
    /// The rows that verbs are applied to.
    pub(crate) set: WorkingSet,
}

impl LockedRows {
    /// Loads the rows. Missing ones are skipped.
    pub(crate) async fn load(transaction: &mut Transaction<'_>, wanted: LoadRequest) -> Result<Self, Failure> {
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

    /// Writes the changed rows after reconsidering steps that waited for released amounts. Returns whether anything was
    /// written.
    pub(crate) async fn write(mut self, transaction: &mut Transaction<'_>, at: TimestampMs) -> Result<bool, Failure> {
        let mut wrote = unblock::look_again(transaction.connection, &mut self.set, at).await?;
        wrote |= write::campaigns(transaction.connection, &mut self.set).await?;
        transaction.notices.extend(self.set.take_notices());
        wrote |= write::all(transaction.connection, self.set).await?;
        Ok(wrote)
    }
}
