//! Refreshes the columns before each query.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use nightshift_protocol::attempt::{AttemptOutcome, Stage};

use super::columns::{ABSENT, Columns, Run, Slot};
use super::rows::target_of;
use crate::connection::{Connection, Sql};
use crate::failure::Failure;
use crate::number::count_from_stored;
use crate::row::Row;
use crate::sql::any_of;
use crate::value::values;

/// Runs per read, which bounds the memory of their rows.
pub(crate) const RUNS_AT_ONCE: u32 = 50;

/// The state of the index.
const CLOCK: &str = "SELECT changed, forgotten FROM attempt_clock WHERE id = 1";

/// Runs changed after a change number.
pub(crate) const CHANGED: &str = "SELECT run_id, changed, is_gone, run, campaign, task, target, strategy FROM attempt_run \
     WHERE changed > $1 ORDER BY changed, run_id LIMIT $2";

/// Further runs of the same change number.
pub(crate) const CHANGED_WITH: &str = "SELECT run_id, changed, is_gone, run, campaign, task, target, strategy \
     FROM attempt_run WHERE changed = $1 AND run_id > $3 ORDER BY run_id LIMIT $2";

/// The columns of the attempts of some runs.
pub(crate) const OF_RUNS: Sql = any_of!(
    "SELECT run_id, number, stage, outcome, is_best, is_confirmed, speedup_ppm, reward_ppm, tokens, cost_microusd, model, \
            device, created_at_ms, finished_at_ms, device_ms, over_fastest_ppm FROM attempt WHERE run_id",
    "$1",
    " ORDER BY run_id, number"
);

/// The columns of a store.
#[derive(Debug, Default)]
pub(crate) struct ColumnCache {
    pub(crate) columns: Arc<RwLock<Columns>>,
    /// One task reads the changes while the others wait for it.
    pub(crate) reading: tokio::sync::Mutex<()>,
}

/// A changed run as stored now.
pub(crate) struct ChangedRun {
    pub(crate) run_id: i64,
    pub(crate) changed: i64,
    pub(crate) is_gone: bool,
    id: String,
    campaign: String,
    task: String,
    target: String,
    strategy: String,
}

impl ColumnCache {
    pub(crate) fn read<T>(&self, look: impl FnOnce(&Columns) -> T) -> T {
        look(&self.columns.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn write<T>(&self, change: impl FnOnce(&mut Columns) -> T) -> T {
        change(&mut self.columns.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Inserts runs with the rows of their attempts.
    pub(crate) fn take(&self, changed: Vec<ChangedRun>, rows: &[Row]) -> Result<(), Failure> {
        self.write(|columns| {
            let mut slots: HashMap<i64, Vec<Slot>> = HashMap::with_capacity(changed.len());
            for row in rows {
                let slot = slot(row, columns)?;
                slots.entry(row.i64(0)?).or_default().push(slot);
            }
            for run in changed {
                if run.is_gone {
                    columns.remove(run.run_id);
                    continue;
                }
                let unknown = || Failure::unreadable(format!("the target of run {}", run.id), &run.target);
                let read = Run {
                    changed: run.changed,
                    campaign: columns.campaigns.number(&run.campaign),
                    task: columns.names.number(&run.task),
                    target: target_of(&run.target).ok_or_else(unknown)?,
                    strategy: columns.names.number(&run.strategy),
                    attempts: slots.remove(&run.run_id).unwrap_or_default().into_boxed_slice(),
                    id: run.id.into_boxed_str(),
                };
                columns.put(run.run_id, read);
            }
            Ok(())
        })
    }
}

pub(crate) async fn clock(connection: &mut Connection) -> Result<(i64, i64), Failure> {
    let row = connection.fetch_one(CLOCK, values![]).await?;
    Ok((row.i64(0)?, row.i64(1)?))
}

pub(crate) async fn changes(
    connection: &mut Connection,
    sql: &'static str,
    seen: i64,
    run_id: i64,
) -> Result<Vec<ChangedRun>, Failure> {
    let values = if sql == CHANGED { values![seen, RUNS_AT_ONCE] } else { values![seen, RUNS_AT_ONCE, run_id] };
    let rows = connection.fetch_all(sql, values).await?;
    rows.iter()
        .map(|row| {
            Ok(ChangedRun {
                run_id: row.i64(0)?,
                changed: row.i64(1)?,
                is_gone: row.flag(2)?,
                id: row.text(3)?,
                campaign: row.text(4)?,
                task: row.text(5)?,
                target: row.text(6)?,
                strategy: row.text(7)?,
            })
        })
        .collect()
}

fn slot(row: &Row, columns: &mut Columns) -> Result<Slot, Failure> {
    let (stage, outcome) = (row.str(2)?, row.str(3)?);
    let unknown = |what: &str, text: &str| Failure::unreadable(format!("the {what} of an attempt"), &text.to_owned());
    Ok(Slot {
        created_ms: row.i64(12)?,
        finished_ms: row.opt_i64(13)?.unwrap_or(ABSENT),
        speedup_ppm: row.opt_i64(6)?.unwrap_or(ABSENT),
        over_fastest_ppm: row.opt_i64(15)?.unwrap_or(ABSENT),
        reward_ppm: row.opt_i64(7)?.unwrap_or(ABSENT),
        cost_microusd: row.opt_i64(9)?.unwrap_or(ABSENT),
        tokens: row.i64(8)?,
        device_ms: count_from_stored(row.i64(14)?),
        number: count_from_stored(row.i64(1)?),
        model: columns.names.number(row.str(10)?),
        device: row.opt_str(11)?.map(|device| columns.names.number(device)),
        outcome: AttemptOutcome::parse(outcome).ok_or_else(|| unknown("outcome", outcome))?,
        stage: Stage::parse(stage).ok_or_else(|| unknown("stage", stage))?,
        is_best: row.flag(4)?,
        is_confirmed: row.flag(5)?,
    })
}
