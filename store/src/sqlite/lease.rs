//! Leases: claimed, extended, found expired, freed. How a try ends is told in `try_end.rs`.

use std::collections::BTreeMap;

use nightshift_engine::store::{ClaimRequest, ExpiredLease, HeartbeatOutcome, StepRecord, StoreError};
use nightshift_protocol::id::{StepId, WorkerId};
use nightshift_protocol::run::RunStatus;
use nightshift_protocol::time::TimestampMs;
use sqlx::SqliteConnection;

use super::failure::Failure;
use super::step::{Row, step_query};
use super::{public_id, ready, run, step, worker};
use crate::json;

/// Leases of a worker that are extended; a lease has the epoch of its step. CROSS JOIN and the unary plus keep SQLite
/// from walking all leases of the worker, or all there are.
pub(super) const EXTEND: &str = "UPDATE lease SET expires_at_ms = max(expires_at_ms, ?4) \
      WHERE step_id IN (SELECT s.id FROM json_each(?1) AS d \
                         CROSS JOIN step s ON s.public_id = d.value ->> 0 AND s.epoch = d.value ->> 1) \
        AND +worker_id = ?2 AND +expires_at_ms > ?3 \
     RETURNING step_id";

/// Leases that ran out.
pub(super) const EXPIRED: &str =
    step_query!("JOIN lease l ON l.step_id = s.id WHERE l.expires_at_ms <= ?1 ORDER BY l.expires_at_ms, s.id LIMIT ?2");

/// Steps of one claim.
pub const MAX_CLAIMED: u32 = 256;
/// Routes of one claim.
pub const MAX_ROUTES: usize = 64;
/// Leases of one heartbeat.
pub const MAX_HEARTBEAT_LEASES: usize = 4_096;
/// Expired leases of one answer.
const MAX_EXPIRED: u32 = 10_000;
/// A claim that finds nothing notes that the worker was heard of only this often: waiting must be nearly free.
const SEEN_GRANULARITY_MS: u64 = 5_000;

/// Whether a claim has anything to write. Asked of a reader, so that waiting workers do not keep the writer busy.
pub(super) async fn worth_claiming(connection: &mut SqliteConnection, claim: &ClaimRequest) -> Result<bool, Failure> {
    let (_, seen_at) = worker::find(connection, &claim.worker).await?;
    if claim.at.since_ms(seen_at) >= SEEN_GRANULARITY_MS {
        return Ok(true);
    }
    let routes: Vec<&str> = wanted(claim)?.into_keys().collect();
    ready::any(connection, &json::write(&routes)?).await
}

/// Routes with how many steps of each; a route that is named twice counts twice.
fn wanted(claim: &ClaimRequest) -> Result<BTreeMap<&str, u32>, Failure> {
    if claim.free.len() > MAX_ROUTES {
        let message = format!("a claim names at most {MAX_ROUTES} routes, this one {}", claim.free.len());
        return Err(StoreError::Other(message).into());
    }
    let mut wanted = BTreeMap::new();
    for (route, count) in claim.free.iter().filter(|(_, count)| *count > 0) {
        let sum: &mut u32 = wanted.entry(route.as_str()).or_default();
        *sum = sum.saturating_add(*count);
    }
    Ok(wanted)
}

pub(super) async fn claim(connection: &mut SqliteConnection, claim: ClaimRequest) -> Result<Vec<StepRecord>, Failure> {
    let (worker_id, _) = worker::find(connection, &claim.worker).await?;
    worker::seen(connection, worker_id, claim.at).await?;
    let mut taken = Vec::new();
    let mut left = MAX_CLAIMED;
    for (route, count) in wanted(&claim)? {
        let steps = ready::take(connection, route, count.min(left)).await?;
        left = left.saturating_sub(u32::try_from(steps.len()).unwrap_or(u32::MAX));
        taken.extend(steps);
    }
    if taken.is_empty() {
        return Ok(Vec::new());
    }
    let leased: Vec<(i64, i64)> = sqlx::query_as(
        "UPDATE step SET status = 'leased', epoch = epoch + 1, tries = tries + 1, worker_id = ?2, started_at_ms = ?3 \
         WHERE id IN (SELECT value FROM json_each(?1)) AND status = 'scheduled' RETURNING id, epoch",
    )
    .bind(json::write(&taken)?)
    .bind(worker_id)
    .bind(claim.at.0)
    .fetch_all(&mut *connection)
    .await?;
    sqlx::query(
        "INSERT INTO lease (step_id, epoch, worker_id, expires_at_ms) \
         SELECT value ->> 0, value ->> 1, ?2, ?3 FROM json_each(?1)",
    )
    .bind(json::write(&leased)?)
    .bind(worker_id)
    .bind(claim.expires_at.0)
    .execute(&mut *connection)
    .await?;
    let ids: Vec<i64> = leased.into_iter().map(|(id, _)| id).collect();
    step::load_all(connection, &json::write(&ids)?).await
}

pub(super) async fn heartbeat(
    connection: &mut SqliteConnection,
    worker: &WorkerId,
    leases: &[(StepId, u64)],
    at: TimestampMs,
    expires_at: TimestampMs,
) -> Result<HeartbeatOutcome, Failure> {
    if leases.len() > MAX_HEARTBEAT_LEASES {
        let message = format!("a heartbeat carries at most {MAX_HEARTBEAT_LEASES} leases, this one {}", leases.len());
        return Err(StoreError::Other(message).into());
    }
    let (worker_id, _) = worker::find(connection, worker).await?;
    worker::seen(connection, worker_id, at).await?;
    if leases.is_empty() {
        return Ok(HeartbeatOutcome::default());
    }
    // An epoch beyond i64 was never given out; as a JSON number it would lose digits.
    let held: Vec<(&str, i64)> = leases
        .iter()
        .filter_map(|(step, epoch)| i64::try_from(*epoch).ok().map(|epoch| (step.as_str(), epoch)))
        .collect();
    let extended: Vec<i64> = sqlx::query_scalar(EXTEND)
        .bind(json::write(&held)?)
        .bind(worker_id)
        .bind(at.0)
        .bind(expires_at.0)
        .fetch_all(&mut *connection)
        .await?;
    let rows: Vec<(String, i64, String)> = sqlx::query_as(
        "SELECT s.public_id, s.epoch, r.status FROM step s JOIN run r ON r.id = s.run_id \
          WHERE s.id IN (SELECT value FROM json_each(?1))",
    )
    .bind(json::write(&extended)?)
    .fetch_all(&mut *connection)
    .await?;
    let mut alive = BTreeMap::new();
    for (id, epoch, status) in rows {
        alive.insert((public_id::<StepId>(&id, "a step's id")?, epoch), run::status_of(&status)?);
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

pub(super) async fn expired(
    connection: &mut SqliteConnection,
    at: TimestampMs,
    limit: u32,
) -> Result<Vec<ExpiredLease>, Failure> {
    let rows: Vec<Row> = sqlx::query_as(EXPIRED).bind(at.0).bind(limit.min(MAX_EXPIRED)).fetch_all(connection).await?;
    let steps = step::records(rows)?;
    Ok(steps.into_iter().map(|step| ExpiredLease { epoch: step.epoch, step }).collect())
}

/// The leases of embedded workers: internal keys of their steps.
pub(super) async fn of_embedded_workers(connection: &mut SqliteConnection) -> Result<Vec<i64>, Failure> {
    Ok(sqlx::query_scalar(
        "SELECT l.step_id FROM worker w JOIN lease l ON l.worker_id = w.id WHERE w.embedded = 1 ORDER BY l.step_id",
    )
    .fetch_all(connection)
    .await?)
}

pub(super) async fn delete(connection: &mut SqliteConnection, step_id: i64) -> Result<(), Failure> {
    sqlx::query("DELETE FROM lease WHERE step_id = ?1").bind(step_id).execute(connection).await?;
    Ok(())
}
