//! How a try ends: reported by its worker, or by the sweeper when the lease ran out, or with the life of the server.

use nightshift_engine::event::Event;
use nightshift_engine::store::{Reported, TryEnd};
use nightshift_protocol::id::StepId;
use nightshift_protocol::run::{RunStatus, StepStatus};
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::time::TimestampMs;
use sqlx::SqliteConnection;

use super::failure::Failure;
use super::{event, lease, ready, run, timer};
use crate::json;

/// A step and its lease, as far as ending a try needs them.
#[derive(sqlx::FromRow)]
struct Held {
    id: i64,
    run_id: i64,
    key: String,
    status: String,
    epoch: i64,
    reported_epoch: Option<i64>,
    reported_digest: Option<Vec<u8>>,
    run_status: String,
    expires_at_ms: Option<i64>,
}

/// The columns of [`Held`]; the tail says which step.
macro_rules! held_query {
    ($tail:literal) => {
        concat!(
            "SELECT s.id, s.run_id, s.key, s.status, s.epoch, s.reported_epoch, s.reported_digest, ",
            "r.status AS run_status, l.expires_at_ms ",
            "FROM step s JOIN run r ON r.id = s.run_id ",
            "LEFT JOIN lease l ON l.step_id = s.id AND l.epoch = s.epoch ",
            $tail
        )
    };
}

/// Who says that a try ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Teller {
    /// Its worker. As long as nobody else was given the step, a report is welcome after the lease's time too.
    Worker,
    /// The sweeper, which must not end a lease that was extended meanwhile.
    Sweeper,
}

/// Commits how a try ended, if the fence holds.
pub(super) async fn end(
    connection: &mut SqliteConnection,
    step: &StepId,
    epoch: u64,
    end: TryEnd,
    at: TimestampMs,
    teller: Teller,
) -> Result<Reported, Failure> {
    let held: Option<Held> = sqlx::query_as(held_query!("WHERE s.public_id = ?1"))
        .bind(step.as_str())
        .fetch_optional(&mut *connection)
        .await?;
    let held = held.ok_or_else(|| Failure::not_found("step", step.as_str()))?;
    let digest = digest(&end)?;
    let stored_epoch = i64::try_from(epoch).ok();
    let fence_holds = held.status == StepStatus::Leased.as_str() && stored_epoch == Some(held.epoch);
    let in_time = match (teller, held.expires_at_ms) {
        (_, None) => false,
        (Teller::Worker, Some(_)) => true,
        (Teller::Sweeper, Some(expires_at_ms)) => expires_at_ms <= at.0,
    };
    if !(fence_holds && in_time) {
        // The first answer to the same report may have been lost.
        let again = stored_epoch.is_some()
            && held.reported_epoch == stored_epoch
            && held.reported_digest.as_deref() == Some(digest.as_slice());
        return Ok(if again { Reported::Committed } else { Reported::LeaseLost });
    }
    sqlx::query("UPDATE step SET reported_epoch = ?2, reported_digest = ?3 WHERE id = ?1")
        .bind(held.id)
        .bind(held.epoch)
        .bind(digest.as_slice())
        .execute(&mut *connection)
        .await?;
    lease::delete(connection, held.id).await?;
    match end {
        TryEnd::Completed { output } => complete(connection, held, output, at).await?,
        TryEnd::Failed { failure } => fail(connection, held, failure, at).await?,
        TryEnd::Retry { failure, at: not_before } => {
            give_back(connection, held, Some(failure), not_before, at).await?;
        }
        // Stopped although nobody asked for it, for example because the worker goes away: the step is still wanted.
        TryEnd::Cancelled => give_back(connection, held, None, at, at).await?,
    }
    Ok(Reported::Committed)
}

/// Frees the leases of embedded workers: the server's life that held them is over, and the tries do not count.
pub(super) async fn free_embedded(connection: &mut SqliteConnection, at: TimestampMs) -> Result<u64, Failure> {
    let mut freed = 0;
    for step_id in lease::of_embedded_workers(connection).await? {
        let held: Option<Held> =
            sqlx::query_as(held_query!("WHERE s.id = ?1")).bind(step_id).fetch_optional(&mut *connection).await?;
        let Some(held) = held else { continue };
        lease::delete(connection, step_id).await?;
        sqlx::query("UPDATE step SET tries = max(tries - 1, 0) WHERE id = ?1")
            .bind(step_id)
            .execute(&mut *connection)
            .await?;
        give_back(connection, held, None, at, at).await?;
        freed += 1;
    }
    Ok(freed)
}

async fn complete(
    connection: &mut SqliteConnection,
    held: Held,
    output: serde_json::Value,
    at: TimestampMs,
) -> Result<(), Failure> {
    let completed = Event::StepCompleted { key: held.key, output };
    let seq = event::append(connection, held.run_id, at, &[completed]).await?;
    sqlx::query(
        "UPDATE step SET status = 'completed', output_seq = ?2, failure = NULL, finished_at_ms = ?3 WHERE id = ?1",
    )
    .bind(held.id)
    .bind(seq)
    .bind(at.0)
    .execute(connection)
    .await?;
    Ok(())
}

async fn fail(
    connection: &mut SqliteConnection,
    held: Held,
    failure: StepFailure,
    at: TimestampMs,
) -> Result<(), Failure> {
    sqlx::query("UPDATE step SET status = 'failed', failure = ?2, finished_at_ms = ?3 WHERE id = ?1")
        .bind(held.id)
        .bind(json::write(&failure)?)
        .bind(at.0)
        .execute(&mut *connection)
        .await?;
    event::append(connection, held.run_id, at, &[Event::StepFailed { key: held.key, failure }]).await?;
    Ok(())
}

/// The step is wanted again, now or later; unless its run is being cancelled, then this was its end.
async fn give_back(
    connection: &mut SqliteConnection,
    held: Held,
    failure: Option<StepFailure>,
    not_before: TimestampMs,
    at: TimestampMs,
) -> Result<(), Failure> {
    let stored = failure.as_ref().map(json::write).transpose()?;
    let run_status = run::status_of(&held.run_status)?;
    let cancelled = run_status == RunStatus::Cancelling;
    let status = if cancelled { StepStatus::Cancelled } else { StepStatus::Scheduled };
    sqlx::query("UPDATE step SET status = ?2, failure = coalesce(?3, failure), finished_at_ms = ?4 WHERE id = ?1")
        .bind(held.id)
        .bind(status.as_str())
        .bind(stored)
        .bind(cancelled.then_some(at.0))
        .execute(&mut *connection)
        .await?;
    if cancelled {
        event::append(connection, held.run_id, at, &[Event::StepCancelled { key: held.key }]).await?;
        return Ok(());
    }
    if let Some(failure) = failure {
        let retried = Event::StepRetried { key: held.key, failure, at: not_before };
        event::append(connection, held.run_id, at, &[retried]).await?;
    }
    if not_before > at {
        timer::insert(connection, held.id, not_before).await?;
    } else if run_status == RunStatus::Running {
        ready::insert(connection, held.id).await?;
    }
    Ok(())
}

/// What a report says, without the moment of the next try: that is chosen anew, with new jitter, for each copy.
fn digest(end: &TryEnd) -> Result<[u8; 32], Failure> {
    let (kind, what) = match end {
        TryEnd::Completed { output } => ("completed", json::write(output)?),
        TryEnd::Retry { failure, .. } => ("retry", json::write(failure)?),
        TryEnd::Failed { failure } => ("failed", json::write(failure)?),
        TryEnd::Cancelled => ("cancelled", String::new()),
    };
    let mut hasher = blake3::Hasher::new();
    hasher.update(kind.as_bytes()).update(b"\n").update(what.as_bytes());
    Ok(*hasher.finalize().as_bytes())
}
