//! Timers of steps, and ready steps whose latest start has passed.

use nightshift_protocol::time::TimestampMs;

use super::step_runs::runs_of;
use crate::connection::Connection;
use crate::failure::Failure;
use crate::scheduling::admit;
use crate::scheduling::locked_rows::{LoadRequest, LockedRows};
use crate::scheduling::rows::Place;
use crate::transaction::Transaction;
use crate::value::values;

/// The next due time: a timer, or the first time after the latest start of a ready step.
pub(crate) const NEXT: &str = "SELECT (SELECT MIN(not_before_ms) FROM timer) AS timer, \
     (SELECT MIN(latest_start_ms) + 1 FROM ready WHERE latest_start_ms IS NOT NULL) AS too_late";

/// Due timers.
pub(crate) const DUE: &str =
    "SELECT step_id FROM timer WHERE not_before_ms <= $1 ORDER BY not_before_ms, step_id LIMIT $2";

/// Ready steps that may not begin any more: they could not end before their campaign's window closes, or its wall time
/// is over.
pub(crate) const TOO_LATE: &str = "SELECT step_id FROM ready \
     WHERE latest_start_ms IS NOT NULL AND latest_start_ms < $1 ORDER BY latest_start_ms, step_id LIMIT $2";

/// Maximum number of timers fired per transaction.
const MAX_FIRED: u32 = 10_000;

/// Returns the next due time.
pub(crate) async fn next(connection: &mut Connection) -> Result<Option<TimestampMs>, Failure> {
    let row = connection.fetch_one(NEXT, values![]).await?;
    let (timer, too_late) = (row.opt_i64(0)?, row.opt_i64(1)?);
    Ok(timer.into_iter().chain(too_late).min().map(TimestampMs))
}

/// Admits steps whose time has come. Resuming a paused run admits its steps.
pub(crate) async fn fire(
    transaction: &mut Transaction<'_>,
    at: TimestampMs,
    limit: u32,
) -> Result<(u64, Option<TimestampMs>), Failure> {
    let limit = limit.min(MAX_FIRED);
    let connection = &mut *transaction.connection;
    let mut step_ids = Vec::new();
    for sql in [DUE, TOO_LATE] {
        for row in connection.fetch_all(sql, values![at.0, limit]).await? {
            step_ids.push(row.i64(0)?);
        }
    }
    let run_ids = runs_of(transaction, &step_ids).await?;
    let mut held =
        LockedRows::load(transaction, LoadRequest { run_ids, step_ids: step_ids.clone(), ..LoadRequest::default() })
            .await?;
    let set = &mut held.set;
    let mut became_ready = 0;
    for id in step_ids {
        // Another transaction may have been first.
        let Some(step) = set.steps.get(&id) else { continue };
        match step.place {
            Place::Timer { not_before, .. } if not_before <= at.0 => {
                set.put(id, Place::Nowhere)?;
                admit::admit(set, id, at)?;
                became_ready += u64::from(matches!(set.step(id)?.place, Place::Ready { .. }));
            }
            Place::Ready { latest_start: Some(latest_start), .. } if latest_start < at.0 => {
                admit::admit(set, id, at)?;
            }
            _ => {}
        }
    }
    held.write(transaction, at).await?;
    Ok((became_ready, next(transaction.connection).await?))
}
