//! Steps that wait for a moment.

use nightshift_protocol::time::TimestampMs;
use sqlx::SqliteConnection;

use super::failure::Failure;
use crate::json;
use crate::number::from_stored;

/// When the next timer is due.
pub(super) const NEXT: &str = "SELECT MIN(not_before_ms) FROM timer";

/// Timers that are due.
pub(super) const DUE: &str = "DELETE FROM timer WHERE step_id IN \
     (SELECT step_id FROM timer WHERE not_before_ms <= ?1 ORDER BY not_before_ms LIMIT ?2) \
     RETURNING step_id";

/// Timers fired in one transaction.
const MAX_FIRED: u32 = 10_000;

pub(super) async fn insert(
    connection: &mut SqliteConnection,
    step_id: i64,
    not_before: TimestampMs,
) -> Result<(), Failure> {
    sqlx::query("INSERT INTO timer (step_id, not_before_ms) VALUES (?1, ?2)")
        .bind(step_id)
        .bind(not_before.0)
        .execute(connection)
        .await?;
    Ok(())
}

/// When the next timer is due.
pub(super) async fn next(connection: &mut SqliteConnection) -> Result<Option<TimestampMs>, Failure> {
    let next: Option<i64> = sqlx::query_scalar(NEXT).fetch_one(connection).await?;
    Ok(next.map(TimestampMs))
}

/// Ends timers that are due. Steps of paused runs become ready when the run is resumed.
pub(super) async fn fire(
    connection: &mut SqliteConnection,
    at: TimestampMs,
    limit: u32,
) -> Result<(u64, Option<TimestampMs>), Failure> {
    let due: Vec<i64> =
        sqlx::query_scalar(DUE).bind(at.0).bind(limit.min(MAX_FIRED)).fetch_all(&mut *connection).await?;
    let ready: Vec<i64> = sqlx::query_scalar(
        "INSERT INTO ready (route_id, step_id) \
         SELECT s.route_id, s.id FROM step s JOIN run r ON r.id = s.run_id \
          WHERE s.id IN (SELECT value FROM json_each(?1)) AND s.status = 'scheduled' AND r.status = 'running' \
         RETURNING step_id",
    )
    .bind(json::write(&due)?)
    .fetch_all(&mut *connection)
    .await?;
    let fired = from_stored(i64::try_from(ready.len()).unwrap_or(i64::MAX));
    Ok((fired, next(connection).await?))
}
