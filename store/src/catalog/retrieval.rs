//! Notes and lessons that steps received.

use nightshift_engine::store::RetrievalRecord;
use nightshift_protocol::id::RunId;
use nightshift_protocol::time::TimestampMs;
use serde_json::Value as Json;

use super::{MAX_PAGE, run};
use crate::connection::Connection;
use crate::failure::Failure;
use crate::json;
use crate::transaction::Transaction;
use crate::value::values;

/// The items of a step.
pub(crate) const FIND: &str = "SELECT items FROM retrieval WHERE run_id = $1 AND step_key = $2";

/// Stores the items, unless items are stored. Returns the stored items.
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
        .map_err(|error| Failure::unreadable(format!("the notes and lessons of step `{step_key}` of {run}"), &error))
}

/// The items of steps whose keys match a text.
pub(crate) const LIST: &str = "SELECT step_key, items, at_ms FROM retrieval \
     WHERE run_id = $1 AND step_key > $2 AND step_key LIKE $3 ORDER BY step_key LIMIT $4";

pub(crate) async fn list(
    connection: &mut Connection,
    run: &RunId,
    attempt: Option<u32>,
    after: Option<&str>,
    limit: u32,
) -> Result<Vec<RetrievalRecord>, Failure> {
    let run_id = run::key_of(connection, run.as_str()).await?;
    let like = attempt.map_or_else(|| "%".to_owned(), |attempt| format!("%/attempt{attempt}/%"));
    let after = json::clean(after.unwrap_or_default());
    let rows = connection.fetch_all(LIST, values![run_id, after, like, limit.min(MAX_PAGE)]).await?;
    rows.iter()
        .map(|row| {
            let step_key = row.text(0)?;
            let items = json::read(row.str(1)?).map_err(|error| {
                Failure::unreadable(format!("the notes and lessons of step `{step_key}` of {run}"), &error)
            })?;
            Ok(RetrievalRecord { step_key, items, at: TimestampMs(row.i64(2)?) })
        })
        .collect()
}
