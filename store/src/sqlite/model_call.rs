//! Answered model calls: what is here is never paid for again.

use nightshift_engine::store::ModelCallRecord;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::id::RunId;
use nightshift_protocol::time::TimestampMs;
use sqlx::SqliteConnection;

use super::failure::Failure;
use super::{artifact, run};
use crate::json;

pub(super) async fn find(
    connection: &mut SqliteConnection,
    run: &RunId,
    step_key: &str,
    turn: u32,
    request_hash: &str,
) -> Result<Option<ModelCallRecord>, Failure> {
    let run_id = run::key_of(connection, run.as_str()).await?;
    let step_key = json::clean(step_key);
    let request_hash = json::clean(request_hash);
    let found: Option<(String, i64)> = sqlx::query_as(
        "SELECT summary, at_ms FROM model_call \
         WHERE run_id = ?1 AND step_key = ?2 AND turn = ?3 AND request_hash = ?4",
    )
    .bind(run_id)
    .bind(step_key.as_ref())
    .bind(turn)
    .bind(request_hash.as_ref())
    .fetch_optional(connection)
    .await?;
    let Some((summary, at_ms)) = found else { return Ok(None) };
    let summary = json::read(&summary)
        .map_err(|error| Failure::unreadable(format!("model call {turn} of step `{step_key}` of {run}"), &error))?;
    Ok(Some(ModelCallRecord {
        run: run.clone(),
        step_key: step_key.into_owned(),
        turn,
        request_hash: request_hash.into_owned(),
        summary,
        at: TimestampMs(at_ms),
    }))
}

pub(super) async fn record(
    connection: &mut SqliteConnection,
    call: ModelCallRecord,
    artifacts: Vec<(ArtifactHash, Vec<u8>)>,
) -> Result<(), Failure> {
    let run_id = run::key_of(connection, call.run.as_str()).await?;
    for (hash, bytes) in artifacts {
        artifact::put(connection, &hash, &bytes).await?;
    }
    sqlx::query(
        "INSERT INTO model_call (run_id, step_key, turn, request_hash, summary, at_ms) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING",
    )
    .bind(run_id)
    .bind(json::clean(&call.step_key).as_ref())
    .bind(call.turn)
    .bind(json::clean(&call.request_hash).as_ref())
    .bind(json::write(&call.summary)?)
    .bind(call.at.0)
    .execute(connection)
    .await?;
    Ok(())
}
