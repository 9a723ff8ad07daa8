//! Workers.

use nightshift_engine::store::WorkerRecord;
use nightshift_protocol::id::WorkerId;
use nightshift_protocol::time::TimestampMs;
use sqlx::SqliteConnection;

use super::failure::Failure;
use super::{MAX_PAGE, public_id};
use crate::json;
use crate::number::from_stored;

pub(super) async fn register(connection: &mut SqliteConnection, worker: WorkerRecord) -> Result<(), Failure> {
    let worker_id: i64 = sqlx::query_scalar(
        "INSERT INTO worker (public_id, name, embedded, offers, version) VALUES (?1, ?2, ?3, ?4, ?5) \
         ON CONFLICT (public_id) DO UPDATE SET name = excluded.name, embedded = excluded.embedded, \
                                               offers = excluded.offers, version = excluded.version \
         RETURNING id",
    )
    .bind(worker.id.as_str())
    .bind(json::clean(&worker.name).as_ref())
    .bind(worker.embedded)
    .bind(json::write(&worker.offers)?)
    .bind(json::clean(&worker.version).as_ref())
    .fetch_one(&mut *connection)
    .await?;
    seen(connection, worker_id, worker.last_seen_at).await
}

pub(super) async fn list(connection: &mut SqliteConnection, limit: u32) -> Result<Vec<WorkerRecord>, Failure> {
    let rows: Vec<Row> = sqlx::query_as(
        "SELECT w.public_id, w.name, w.embedded, w.offers, w.version, s.at_ms, \
                (SELECT COUNT(*) FROM lease WHERE worker_id = w.id) AS leases \
         FROM worker w JOIN worker_seen s ON s.worker_id = w.id ORDER BY s.at_ms DESC, w.id DESC LIMIT ?1",
    )
    .bind(limit.min(MAX_PAGE))
    .fetch_all(connection)
    .await?;
    rows.into_iter().map(Row::into_record).collect()
}

/// The internal key of a worker that must be known, and when it was last heard of.
pub(super) async fn find(connection: &mut SqliteConnection, worker: &WorkerId) -> Result<(i64, TimestampMs), Failure> {
    let found: Option<(i64, i64)> = sqlx::query_as(
        "SELECT w.id, s.at_ms FROM worker w JOIN worker_seen s ON s.worker_id = w.id WHERE w.public_id = ?1",
    )
    .bind(worker.as_str())
    .fetch_optional(connection)
    .await?;
    let (id, at_ms) = found.ok_or_else(|| Failure::not_found("worker", worker.as_str()))?;
    Ok((id, TimestampMs(at_ms)))
}

/// Notes that a worker was heard of.
pub(super) async fn seen(connection: &mut SqliteConnection, worker_id: i64, at: TimestampMs) -> Result<(), Failure> {
    sqlx::query(
        "INSERT INTO worker_seen (worker_id, at_ms) VALUES (?1, ?2) \
         ON CONFLICT (worker_id) DO UPDATE SET at_ms = max(at_ms, excluded.at_ms)",
    )
    .bind(worker_id)
    .bind(at.0)
    .execute(connection)
    .await?;
    Ok(())
}

#[derive(sqlx::FromRow)]
struct Row {
    public_id: String,
    name: String,
    embedded: bool,
    offers: String,
    version: String,
    at_ms: i64,
    leases: i64,
}

impl Row {
    fn into_record(self) -> Result<WorkerRecord, Failure> {
        let offers = json::read(&self.offers)
            .map_err(|error| Failure::unreadable(format!("the offers of worker {}", self.public_id), &error))?;
        Ok(WorkerRecord {
            id: public_id(&self.public_id, "a worker's id")?,
            name: self.name,
            embedded: self.embedded,
            offers,
            version: self.version,
            last_seen_at: TimestampMs(self.at_ms),
            leases: from_stored(self.leases),
        })
    }
}
