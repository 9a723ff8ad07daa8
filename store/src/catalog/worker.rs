//! Workers.

use nightshift_engine::store::{WorkerMark, WorkerRecord};
use nightshift_protocol::id::WorkerId;
use nightshift_protocol::time::TimestampMs;

use super::{MAX_PAGE, public_id, server};
use crate::connection::{Connection, Sql};
use crate::failure::Failure;
use crate::json;
use crate::number::from_stored;
use crate::row::Row;
use crate::transaction::Transaction;
use crate::value::values;

macro_rules! worker_query {
    ($tail:literal) => {
        concat!(
            "SELECT w.public_id, w.name, w.embedded, w.offers, w.version, w.draining, s.at_ms, o.public_id AS server, ",
            "(SELECT COUNT(*) FROM lease WHERE worker_id = w.id) AS leases ",
            "FROM worker w JOIN worker_seen s ON s.worker_id = w.id LEFT JOIN server o ON o.id = w.server_id ",
            $tail
        )
    };
}

/// Records that a worker was seen.
const SEEN: Sql = Sql {
    sqlite: "INSERT INTO worker_seen (worker_id, at_ms) VALUES ($1, $2) \
             ON CONFLICT (worker_id) DO UPDATE SET at_ms = max(at_ms, excluded.at_ms)",
    postgres: "INSERT INTO worker_seen (worker_id, at_ms) VALUES ($1, $2) \
               ON CONFLICT (worker_id) DO UPDATE SET at_ms = greatest(worker_seen.at_ms, excluded.at_ms)",
};

/// Records that workers were seen. Sorted, so that two transactions cannot deadlock.
const ALL_SEEN: Sql = Sql {
    sqlite: "INSERT INTO worker_seen (worker_id, at_ms) \
             SELECT id, $2 FROM worker WHERE public_id IN (SELECT value FROM json_each($1)) ORDER BY id \
             ON CONFLICT (worker_id) DO UPDATE SET at_ms = max(at_ms, excluded.at_ms)",
    postgres: "INSERT INTO worker_seen (worker_id, at_ms) \
               SELECT id, $2 FROM worker WHERE public_id = ANY($1) ORDER BY id \
               ON CONFLICT (worker_id) DO UPDATE SET at_ms = greatest(worker_seen.at_ms, excluded.at_ms)",
};

/// Workers without leases that were not seen for long.
const TO_FORGET: &str = "SELECT worker_id FROM worker_seen \
     WHERE at_ms < $1 AND NOT EXISTS (SELECT 1 FROM lease WHERE lease.worker_id = worker_seen.worker_id)";

/// Locks these workers against new leases. On SQLite there is only one writer anyway.
const LOCK: Sql = Sql {
    sqlite: "SELECT value FROM json_each($1)",
    postgres: "SELECT id FROM worker WHERE id = ANY ($1::bigint[]) ORDER BY id FOR UPDATE",
};

pub(crate) async fn register(transaction: &mut Transaction<'_>, worker: &WorkerRecord) -> Result<(), Failure> {
    let connection = &mut *transaction.connection;
    let server_id = match &worker.server {
        None => None,
        Some(server) => Some(server::key_of(connection, server).await?),
    };
    let row = connection
        .fetch_one(
            "INSERT INTO worker (public_id, name, server_id, embedded, offers, version, draining) \
             VALUES ($1, $2, $3, $4, $5, $6, $7) \
             ON CONFLICT (public_id) DO UPDATE SET name = excluded.name, server_id = excluded.server_id, \
                 embedded = excluded.embedded, offers = excluded.offers, version = excluded.version, \
                 draining = excluded.draining \
             RETURNING id",
            values![
                worker.id.as_str(),
                json::clean(&worker.name),
                server_id,
                worker.embedded,
                json::write(&worker.offers)?,
                json::clean(&worker.version),
                worker.draining
            ],
        )
        .await?;
    seen(connection, row.i64(0)?, worker.last_seen_at).await
}

pub(crate) async fn list(connection: &mut Connection, limit: u32) -> Result<Vec<WorkerRecord>, Failure> {
    let sql = worker_query!("ORDER BY s.at_ms DESC, w.id DESC LIMIT $1");
    connection.fetch_all(sql, values![limit.min(MAX_PAGE)]).await?.iter().map(record).collect()
}

/// Workers without their offers.
const MARKS: &str = "SELECT w.public_id, w.name, w.draining, s.at_ms, \
         (SELECT COUNT(*) FROM lease WHERE worker_id = w.id) AS leases \
     FROM worker w JOIN worker_seen s ON s.worker_id = w.id ORDER BY s.at_ms DESC, w.id DESC LIMIT $1";

pub(crate) async fn marks(connection: &mut Connection, limit: u32) -> Result<Vec<WorkerMark>, Failure> {
    let mark = |row: &Row| {
        Ok(WorkerMark {
            worker: public_id(row.str("public_id")?, "a worker's id")?,
            name: row.text("name")?,
            leases: from_stored(row.i64("leases")?),
            draining: row.flag("draining")?,
            last_seen_at: TimestampMs(row.i64("at_ms")?),
        })
    };
    connection.fetch_all(MARKS, values![limit.min(MAX_PAGE)]).await?.iter().map(mark).collect()
}

pub(crate) async fn load(connection: &mut Connection, id: &WorkerId) -> Result<WorkerRecord, Failure> {
    let row = connection.fetch_optional(worker_query!("WHERE w.public_id = $1"), values![id.as_str()]).await?;
    record(&row.ok_or_else(|| Failure::not_found("worker", id.as_str()))?)
}

/// Returns the internal key of a known worker.
pub(crate) async fn key_of(connection: &mut Connection, worker: &WorkerId) -> Result<i64, Failure> {
    let row = connection.fetch_optional("SELECT id FROM worker WHERE public_id = $1", values![worker.as_str()]).await?;
    row.ok_or_else(|| Failure::not_found("worker", worker.as_str()))?.i64(0)
}

/// Records that a worker was seen.
pub(crate) async fn seen(connection: &mut Connection, worker_id: i64, at: TimestampMs) -> Result<(), Failure> {
    connection.execute(SEEN, values![worker_id, at.0]).await?;
    Ok(())
}

/// Records that workers were seen. Unknown ones are skipped.
pub(crate) async fn all_seen(
    transaction: &mut Transaction<'_>,
    workers: &[WorkerId],
    at: TimestampMs,
) -> Result<(), Failure> {
    let ids: Vec<String> = workers.iter().map(|worker| worker.as_str().to_owned()).collect();
    transaction.connection.execute(ALL_SEEN, values![ids, at.0]).await?;
    Ok(())
}

pub(crate) async fn drain(transaction: &mut Transaction<'_>, id: &WorkerId, draining: bool) -> Result<(), Failure> {
    let sql = "UPDATE worker SET draining = $2 WHERE public_id = $1";
    let found = transaction.connection.execute(sql, values![id.as_str(), draining]).await?;
    if found == 0 { Err(Failure::not_found("worker", id.as_str())) } else { Ok(()) }
}

pub(crate) async fn forget(transaction: &mut Transaction<'_>, before: TimestampMs) -> Result<u64, Failure> {
    let connection = &mut *transaction.connection;
    let found = to_forget(connection, before).await?;
    if found.is_empty() {
        return Ok(0);
    }
    // A worker may get a lease at this time. After the lock, a worker without leases gets none.
    connection.fetch_all(LOCK, values![found.clone()]).await?;
    let mut ids = to_forget(connection, before).await?;
    ids.retain(|id| found.contains(id));
    let seen = crate::sql::any_of!("DELETE FROM worker_seen WHERE worker_id", "$1", "");
    connection.execute(seen, values![ids.clone()]).await?;
    let read = crate::sql::any_of!("DELETE FROM worker_reading WHERE worker_id", "$1", "");
    connection.execute(read, values![ids.clone()]).await?;
    connection.execute(crate::sql::any_of!("DELETE FROM worker WHERE id", "$1", ""), values![ids]).await
}

async fn to_forget(connection: &mut Connection, before: TimestampMs) -> Result<Vec<i64>, Failure> {
    let rows = connection.fetch_all(TO_FORGET, values![before.0]).await?;
    rows.iter().map(|row| row.i64(0)).collect()
}

fn record(row: &Row) -> Result<WorkerRecord, Failure> {
    let id = row.str("public_id")?;
    let offers = json::read(row.str("offers")?)
        .map_err(|error| Failure::unreadable(format!("the offers of worker {id}"), &error))?;
    Ok(WorkerRecord {
        id: public_id(id, "a worker's id")?,
        name: row.text("name")?,
        embedded: row.flag("embedded")?,
        offers,
        version: row.text("version")?,
        last_seen_at: TimestampMs(row.i64("at_ms")?),
        leases: from_stored(row.i64("leases")?),
        server: row.opt_str("server")?.map(|server| public_id(server, "a server's id")).transpose()?,
        draining: row.flag("draining")?,
    })
}
