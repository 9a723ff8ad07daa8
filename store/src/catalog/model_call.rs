//! Answered model calls. A stored call is never paid for again.

use nightshift_engine::store::ModelCallRecord;
use nightshift_protocol::id::RunId;
use nightshift_protocol::time::TimestampMs;

use super::artifact::{self, Whole};
use super::{budget, run};
use crate::connection::Connection;
use crate::failure::Failure;
use crate::json;
use crate::scheduling::event_text::artifact_hashes;
use crate::scheduling::locked_rows::{LoadRequest, LockedRows};
use crate::transaction::Transaction;
use crate::value::values;

/// The answer to a call.
pub(crate) const FIND: &str = "SELECT summary, at_ms FROM model_call \
     WHERE run_id = $1 AND step_key = $2 AND turn = $3 AND request_hash = $4";

pub(crate) async fn find(
    connection: &mut Connection,
    run: &RunId,
    step_key: &str,
    turn: u32,
    request_hash: &str,
) -> Result<Option<ModelCallRecord>, Failure> {
    let run_id = run::key_of(connection, run.as_str()).await?;
    let step_key = json::clean(step_key);
    let request_hash = json::clean(request_hash);
    let found =
        connection.fetch_optional(FIND, values![run_id, step_key.as_ref(), turn, request_hash.as_ref()]).await?;
    let Some(row) = found else { return Ok(None) };
    let summary = json::read(row.str(0)?)
        .map_err(|error| Failure::unreadable(format!("model call {turn} of step `{step_key}` of {run}"), &error))?;
    Ok(Some(ModelCallRecord {
        run: run.clone(),
        step_key: step_key.into_owned(),
        turn,
        request_hash: request_hash.into_owned(),
        summary,
        released: Vec::new(),
        used: Vec::new(),
        at: TimestampMs(row.i64(1)?),
    }))
}

/// Commits a call with its reply and its price, once.
pub(crate) async fn record(
    transaction: &mut Transaction<'_>,
    call: &ModelCallRecord,
    artifacts: &[Whole],
) -> Result<(), Failure> {
    let run_id = run::key_of(transaction.connection, call.run.as_str()).await?;
    let step_key = json::clean(&call.step_key);
    let sql = "SELECT id FROM step WHERE run_id = $1 AND key = $2";
    let step = transaction.connection.fetch_optional(sql, values![run_id, step_key.as_ref()]).await?;
    let step_id = step.map(|row| row.i64(0)).transpose()?;
    let priced = !(call.released.is_empty() && call.used.is_empty());
    // The lock order requires the run's lock before any write.
    let mut held = None;
    if let Some(step_id) = step_id.filter(|_| priced) {
        let wanted = LoadRequest { run_ids: vec![run_id], step_ids: vec![step_id], ..LoadRequest::default() };
        held = Some((LockedRows::load(transaction, wanted).await?, step_id));
    }
    let connection = &mut *transaction.connection;
    let summary = json::write(&call.summary)?;
    let mut hashes: Vec<String> = artifact_hashes(&summary).collect();
    hashes.extend(artifacts.iter().map(|whole| whole.hash.as_str().to_owned()));
    for whole in artifacts {
        artifact::put(connection, whole, call.at).await?;
    }
    for hash in hashes {
        let sql = "INSERT INTO artifact_use (run_id, hash) VALUES ($1, $2) ON CONFLICT DO NOTHING";
        connection.execute(sql, values![run_id, hash]).await?;
    }
    let inserted = connection
        .execute(
            "INSERT INTO model_call (run_id, step_key, turn, request_hash, summary, at_ms) \
             VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING",
            values![run_id, step_key, call.turn, json::clean(&call.request_hash), summary, call.at.0],
        )
        .await?;
    if let Some((mut held, step_id)) = held.filter(|_| inserted == 1) {
        budget::give_back(&mut held.set, step_id, &call.released, &call.used)?;
        held.write(transaction, call.at).await?;
    }
    Ok(())
}
