//! What steps were given of notes and lessons.

use nightshift_protocol::id::RunId;
use nightshift_protocol::time::TimestampMs;
use serde_json::Value as Json;

use super::run;
use crate::connection::Connection;
use crate::failure::Failure;
use crate::json;
use crate::transaction::Transaction;
use crate::value::values;

/// What a step was given.
pub(crate) const FIND: &str = "SELECT items FROM retrieval WHERE run_id = $1 AND step_key = $2";

/// Stores the items unless others are there; gives those that are there now.
pub(crate) async fn pin(
    transaction: &mut Transaction<'_>,
    run: &RunId,
    step_key: &str,
    items: &Json,
    at: TimestampMs,
) -> Result<Json, Failure> {
    let connection = &mut *transaction.connection;
    let run_id = run::key_of(connection, run.as_str()).await?;
    let sql = "INSERT INTO retrieval (run_id, step_key, items, at_ms) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING";
    connection.execute(sql, values![run_id, json::clean(step_key), json::write(items)?, at.0]).await?;
    match find(connection, run, step_key).await? {
        Some(pinned) => Ok(pinned),
        None => Err(Failure::not_found("run", run.as_str())),
    }
}

pub(crate) async fn find(connection: &mut Connection, run: &RunId, step_key: &str) -> Result<Option<Json>, Failure> {
    let run_id = run::key_of(connection, run.as_str()).await?;
    let found = connection.fetch_optional(FIND, values![run_id, json::clean(step_key)]).await?;
    let Some(row) = found else { return Ok(None) };
    json::read(row.str(0)?)
        .map(Some)
        .map_err(|error| Failure::unreadable(format!("what step `{step_key}` of {run} was given"), &error))
}
