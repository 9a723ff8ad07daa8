//! What people do with runs: pause, resume, cancel, retry.

use nightshift_engine::event::Event;
use nightshift_protocol::id::RunId;
use nightshift_protocol::run::{IllegalTransition, RunStatus, RunTransition};
use nightshift_protocol::time::TimestampMs;
use sqlx::SqliteConnection;

use super::failure::Failure;
use super::{event, ready, run, step};
use crate::json;

/// Pauses, resumes or cancels. Every change of status also changes the revision, so that a decision which was made
/// from the status before is made again.
pub(super) async fn control(
    connection: &mut SqliteConnection,
    run: &RunId,
    transition: RunTransition,
    at: TimestampMs,
) -> Result<RunStatus, Failure> {
    let head = run::head(connection, run).await?;
    let event = match transition {
        RunTransition::Pause => Event::RunPaused,
        RunTransition::Resume => Event::RunResumed,
        RunTransition::Cancel => Event::RunCancelRequested,
        RunTransition::CancelFinished | RunTransition::Complete | RunTransition::Fail | RunTransition::Retry => {
            return Err(IllegalTransition { from: head.status, transition }.into());
        }
    };
    let status = head.status.next(transition)?;
    if status == head.status {
        return Ok(status);
    }
    set_status(connection, head.id, status).await?;
    let mut events = vec![event];
    match status {
        RunStatus::Paused => ready::remove_run(connection, head.id).await?,
        RunStatus::Running => ready::restore_run(connection, head.id).await?,
        _ => {
            let stopped = step::cancel_open(connection, head.id, at, step::Open::Scheduled).await?;
            events.extend(stopped.into_iter().map(|key| Event::StepCancelled { key }));
        }
    }
    event::append(connection, head.id, at, &events).await?;
    Ok(status)
}

/// Begins again from failed steps, all or one, and with them from the steps that were cancelled because the run failed:
/// nobody asked to cancel those.
pub(super) async fn retry(
    connection: &mut SqliteConnection,
    run: &RunId,
    key: Option<&str>,
    at: TimestampMs,
) -> Result<Vec<String>, Failure> {
    let head = run::head(connection, run).await?;
    let status = head.status.next(RunTransition::Retry)?;
    let key = key.map(json::clean);
    if let Some(key) = &key {
        let failed: Option<i64> =
            sqlx::query_scalar("SELECT id FROM step WHERE run_id = ?1 AND key = ?2 AND status = 'failed'")
                .bind(head.id)
                .bind(key.as_ref())
                .fetch_optional(&mut *connection)
                .await?;
        failed.ok_or_else(|| Failure::not_found("failed step", key.as_ref()))?;
    }
    let mut again: Vec<(i64, String)> = sqlx::query_as(
        "UPDATE step SET status = 'scheduled', tries = 0, failure = NULL, finished_at_ms = NULL \
         WHERE run_id = ?1 AND (status = 'cancelled' OR (status = 'failed' AND coalesce(?2, key) = key)) \
         RETURNING id, key",
    )
    .bind(head.id)
    .bind(key.as_deref())
    .fetch_all(&mut *connection)
    .await?;
    // SQLite returns them in no particular order.
    again.sort_unstable();
    let keys: Vec<String> = again.into_iter().map(|(_, key)| key).collect();
    sqlx::query("UPDATE run SET failure = NULL, finished_at_ms = NULL WHERE id = ?1")
        .bind(head.id)
        .execute(&mut *connection)
        .await?;
    set_status(connection, head.id, status).await?;
    event::append(connection, head.id, at, &[Event::RunRetried { keys: keys.clone() }]).await?;
    ready::restore_run(connection, head.id).await?;
    Ok(keys)
}

async fn set_status(connection: &mut SqliteConnection, run_id: i64, status: RunStatus) -> Result<(), Failure> {
    sqlx::query("UPDATE run SET status = ?2, revision = revision + 1 WHERE id = ?1")
        .bind(run_id)
        .bind(status.as_str())
        .execute(connection)
        .await?;
    Ok(())
}
