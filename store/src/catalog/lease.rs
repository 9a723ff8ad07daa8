//! Leases: extended, found expired, ended by the sweeper.

use std::collections::BTreeMap;

use nightshift_engine::store::{ExpiredLease, HeartbeatOutcome, Reported, StepRecord, TryEnd};
use nightshift_protocol::id::{StepId, WorkerId};
use nightshift_protocol::run::RunStatus;
use nightshift_protocol::time::TimestampMs;

use super::budget::of_step;
use super::step::{record, step_query};
use super::{public_id, run, worker};
use crate::connection::{Connection, Sql};
use crate::failure::Failure;
use crate::scheduling::locked_rows::LockedRows;
use crate::scheduling::try_end::{self, ReportSource};
use crate::sql::any_of;
use crate::transaction::Transaction;
use crate::value::values;

/// Extends leases of a worker. A lease has the epoch of its step. CROSS JOIN and the unary plus keep SQLite from
/// scanning all leases of the worker or of the table.
pub(crate) const EXTEND: Sql = Sql {
    sqlite: "UPDATE lease SET expires_at_ms = max(expires_at_ms, $4) \
      WHERE step_id IN (SELECT s.id FROM json_each($1) AS d \
                         CROSS JOIN step s ON s.public_id = d.value ->> 0 AND s.epoch = d.value ->> 1) \
        AND +worker_id = $2 AND +expires_at_ms > $3 \
     RETURNING step_id",
    postgres: "UPDATE lease l SET expires_at_ms = greatest(l.expires_at_ms, $4) \
      FROM (SELECT h.step_id FROM json_array_elements($1::json) AS d (value) \
              JOIN step s ON s.public_id = d.value ->> 0 AND s.epoch = (d.value ->> 1)::bigint \
              JOIN lease h ON h.step_id = s.id WHERE h.worker_id = $2 ORDER BY h.step_id FOR UPDATE OF h) AS held \
     WHERE l.step_id = held.step_id AND l.worker_id = $2 AND l.expires_at_ms > $3 \
     RETURNING l.step_id",
};

/// Expired leases.
pub(crate) const EXPIRED: &str =
    step_query!("JOIN lease l ON l.step_id = s.id WHERE l.expires_at_ms <= $1 ORDER BY l.expires_at_ms, s.id LIMIT $2");

/// Maximum number of leases per heartbeat.
pub const MAX_HEARTBEAT_LEASES: usize = 4_096;
/// Maximum number of expired leases per answer.
const MAX_EXPIRED: u32 = 10_000;

pub(crate) async fn heartbeat(
    transaction: &mut Transaction<'_>,
    worker: &WorkerId,
    leases: &[(StepId, u64)],
    at: TimestampMs,
    expires_at: TimestampMs,
) -> Result<HeartbeatOutcome, Failure> {
    if leases.len() > MAX_HEARTBEAT_LEASES {
        let message = format!("a heartbeat carries at most {MAX_HEARTBEAT_LEASES} leases, this one {}", leases.len());
        return Err(Failure::refused("request.too_large", message));
    }
    let connection = &mut *transaction.connection;
    let worker_id = worker::key_of(connection, worker).await?;
    worker::seen(connection, worker_id, at).await?;
    if leases.is_empty() {
        return Ok(HeartbeatOutcome::default());
    }
    // No lease has an epoch beyond i64, and a JSON number would lose its digits.
    let held: Vec<(&str, i64)> = leases
        .iter()
        .filter_map(|(step, epoch)| i64::try_from(*epoch).ok().map(|epoch| (step.as_str(), epoch)))
        .collect();
    let rows =
        connection.fetch_all(EXTEND, values![serde_json::to_string(&held)?, worker_id, at.0, expires_at.0]).await?;
    let extended = rows.iter().map(|row| row.i64(0)).collect::<Result<Vec<_>, _>>()?;
    let sql =
        any_of!("SELECT s.public_id, s.epoch, r.status FROM step s JOIN run r ON r.id = s.run_id WHERE s.id", "$1", "");
    let mut alive = BTreeMap::new();
    for row in connection.fetch_all(sql, values![extended]).await? {
        alive.insert((public_id::<StepId>(row.str(0)?, "a step's id")?, row.i64(1)?), run::status_of(row.str(2)?)?);
    }
    let mut outcome = HeartbeatOutcome::default();
    for (step, epoch) in leases {
        let status = i64::try_from(*epoch).ok().and_then(|epoch| alive.get(&(step.clone(), epoch)));
        match status {
            None => outcome.lost.push(step.clone()),
            Some(RunStatus::Cancelling) => outcome.cancelled.push(step.clone()),
            Some(_) => {}
        }
    }
    Ok(outcome)
}

pub(crate) async fn expired(
    connection: &mut Connection,
    at: TimestampMs,
    limit: u32,
) -> Result<Vec<ExpiredLease>, Failure> {
    let rows = connection.fetch_all(EXPIRED, values![at.0, limit.min(MAX_EXPIRED)]).await?;
    let (steps, mut unreadable): (Vec<_>, Vec<_>) = rows.iter().map(record).partition(Result::is_ok);
    // A step that cannot be read is an error once the other leases are ended.
    if steps.is_empty()
        && let Some(Err(error)) = unreadable.pop()
    {
        return Err(error);
    }
    let lease = |step: StepRecord| ExpiredLease { epoch: step.epoch, step };
    Ok(steps.into_iter().flatten().map(lease).collect())
}

/// Ends an expired lease, after checking again that it is expired.
pub(crate) async fn expire(
    transaction: &mut Transaction<'_>,
    step: &StepId,
    epoch: u64,
    end: &TryEnd,
    at: TimestampMs,
) -> Result<Reported, Failure> {
    let mut held = LockedRows::load(transaction, of_step(step)).await?;
    let reported = try_end::end(&mut held.set, step, epoch, end, ReportSource::Sweeper, at)?;
    held.write(transaction, at).await?;
    Ok(reported)
}
