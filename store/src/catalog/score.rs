//! Scores of attempts that were computed after their run.

use nightshift_engine::store::ScoreRecord;
use nightshift_protocol::id::RunId;
use nightshift_protocol::time::TimestampMs;

use super::run;
use crate::connection::Connection;
use crate::failure::Failure;
use crate::json;
use crate::number::count_from_stored;
use crate::row::Row;
use crate::transaction::Transaction;
use crate::value::values;

const PUT: &str = "INSERT INTO attempt_score (run_id, attempt, formula, score, at_ms) VALUES ($1, $2, $3, $4, $5) \
     ON CONFLICT (run_id, attempt, formula) DO UPDATE SET score = excluded.score, at_ms = excluded.at_ms";

/// Scores of a run.
pub(crate) const OF_A_RUN: &str =
    "SELECT attempt, formula, score, at_ms FROM attempt_score WHERE run_id = $1 ORDER BY attempt, formula";

pub(crate) async fn put(transaction: &mut Transaction<'_>, scores: &[ScoreRecord]) -> Result<(), Failure> {
    let connection = &mut *transaction.connection;
    for score in scores {
        let run_id = run::key_of(connection, score.run.as_str()).await?;
        let values =
            values![run_id, score.attempt, json::clean(&score.formula), json::write(&score.score)?, score.at.0];
        connection.execute(PUT, values).await?;
    }
    Ok(())
}

pub(crate) async fn list(connection: &mut Connection, run: &RunId) -> Result<Vec<ScoreRecord>, Failure> {
    let run_id = run::key_of(connection, run.as_str()).await?;
    let rows = connection.fetch_all(OF_A_RUN, values![run_id]).await?;
    rows.iter().map(|row| record(run, row)).collect()
}

fn record(run: &RunId, row: &Row) -> Result<ScoreRecord, Failure> {
    let score =
        json::read(row.str("score")?).map_err(|error| Failure::unreadable(format!("a score of {run}"), &error))?;
    Ok(ScoreRecord {
        run: run.clone(),
        attempt: count_from_stored(row.i64("attempt")?),
        formula: row.text("formula")?,
        score,
        at: TimestampMs(row.i64("at_ms")?),
    })
}
