//! Server leases.

use nightshift_engine::store::{Pulse, ServerRecord};
use nightshift_protocol::id::ServerId;
use nightshift_protocol::time::TimestampMs;

use super::blocked::{self, blocked_with_room};
use super::public_id;
use super::step_runs::runs_of;
use super::timer;
use crate::connection::{Connection, Sql};
use crate::failure::Failure;
use crate::json;
use crate::scheduling::locked_rows::{LoadRequest, LockedRows};
use crate::scheduling::rows::Place;
use crate::scheduling::try_end;
use crate::sql::any_of;
use crate::transaction::Transaction;
use crate::value::values;

/// Maximum number of server leases per answer.
const MAX_SERVERS: i64 = 1_000;

/// Returns where work is due for a server. Its runs are its own, runs without an owner, and runs of dead servers.
pub(crate) const DUE_WORK: &str = concat!(
    "SELECT \
     CAST(CASE WHEN EXISTS (SELECT 1 FROM run r WHERE r.to_drive = 1 \
                          AND r.state_format <= (SELECT s.state_format FROM server s WHERE s.id = $1) \
                          AND (r.owner_id IS NULL OR r.owner_id = $1 OR NOT EXISTS \
                               (SELECT 1 FROM server o WHERE o.id = r.owner_id AND o.expires_at_ms > $2))) \
            OR EXISTS (SELECT 1 FROM run r WHERE r.status = 'cancelling' \
                          AND NOT EXISTS (SELECT 1 FROM step WHERE run_id = r.id AND status IN ('scheduled', 'leased')) \
                          AND r.state_format <= (SELECT s.state_format FROM server s WHERE s.id = $1) \
                          AND (r.owner_id IS NULL OR r.owner_id = $1 OR NOT EXISTS \
                               (SELECT 1 FROM server o WHERE o.id = r.owner_id AND o.expires_at_ms > $2))) \
          THEN 1 ELSE 0 END AS BIGINT) AS runs, \
     CAST(CASE WHEN EXISTS (SELECT 1 FROM ready) THEN 1 ELSE 0 END AS BIGINT) AS ready, \
     CAST(CASE WHEN EXISTS (SELECT 1 FROM lease WHERE expires_at_ms <= $2) \
            OR EXISTS (SELECT 1 FROM server WHERE expires_at_ms <= $2) \
          THEN 1 ELSE 0 END AS BIGINT) AS expired, \
     CAST(CASE WHEN EXISTS (SELECT 1 ",
    blocked_with_room!(),
    ") THEN 1 ELSE 0 END AS BIGINT) AS room, \
     (SELECT MAX(virtual_now) FROM server) AS virtual_now"
);

/// Extends a server lease. Returns its key and the clock of Postgres.
macro_rules! extend_lease {
    ($clock:expr) => {
        concat!(
            "UPDATE server SET expires_at_ms = CASE WHEN expires_at_ms < $2 THEN $2 ELSE expires_at_ms END, ",
            "virtual_now = CASE WHEN virtual_now < $3 THEN $3 ELSE virtual_now END ",
            "WHERE public_id = $1 RETURNING id, ",
            $clock
        )
    };
}

/// The clock of Postgres, as an expression.
macro_rules! postgres_clock {
    () => {
        "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)"
    };
}

const EXTEND_LEASE: Sql = Sql { sqlite: extend_lease!("NULL"), postgres: extend_lease!(postgres_clock!()) };

/// Leases of embedded workers of servers.
const EMBEDDED_LEASES: Sql = any_of!(
    "SELECT l.step_id FROM worker w JOIN lease l ON l.worker_id = w.id WHERE w.embedded = 1 AND w.server_id",
    "$1",
    " ORDER BY l.step_id"
);

pub(crate) async fn register(
    transaction: &mut Transaction<'_>,
    server: &ServerRecord,
    sole: bool,
) -> Result<(), Failure> {
    let connection = &mut *transaction.connection;
    let row = connection.fetch_one("SELECT coalesce(MAX(virtual_now), 0) FROM server", values![]).await?;
    transaction.memory.raise_virtual_now(row.i64(0)?);
    connection
        .execute(
            "INSERT INTO server (public_id, name, version, address, started_at_ms, expires_at_ms, virtual_now, \
                                 state_format) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8) \
             ON CONFLICT (public_id) DO UPDATE SET name = excluded.name, version = excluded.version, \
                 address = excluded.address, expires_at_ms = excluded.expires_at_ms, \
                 state_format = excluded.state_format",
            values![
                server.id.as_str(),
                json::clean(&server.name),
                json::clean(&server.version),
                json::clean(&server.address),
                server.started_at.0,
                server.expires_at.0,
                transaction.memory.virtual_now(),
                server.state_format
            ],
        )
        .await?;
    if sole {
        // Every clock agrees that a dead server died before this time.
        connection
            .execute(
                "UPDATE server SET expires_at_ms = $2 WHERE public_id <> $1 AND expires_at_ms > $2",
                values![server.id.as_str(), server.started_at.0],
            )
            .await?;
    }
    Ok(())
}

pub(crate) async fn pulse(
    transaction: &mut Transaction<'_>,
    server: &ServerId,
    at: TimestampMs,
    expires_at: TimestampMs,
) -> Result<Pulse, Failure> {
    let connection = &mut *transaction.connection;
    let row = connection
        .fetch_optional(EXTEND_LEASE, values![server.as_str(), expires_at.0, transaction.memory.virtual_now()])
        .await?;
    let Some(row) = row else { return Ok(Pulse::default()) };
    let found = connection.fetch_one(DUE_WORK, values![row.i64(0)?, at.0]).await?;
    transaction.memory.raise_virtual_now(found.opt_i64("virtual_now")?.unwrap_or_default());
    let may_unblock = found.flag("room")?
        && transaction.memory.may_reconsider(at)
        && !transaction.memory.to_reconsider(blocked::with_room(connection).await?, at).is_empty();
    Ok(Pulse {
        alive: true,
        runs_to_drive: found.flag("runs")?,
        ready: found.flag("ready")?,
        expired: found.flag("expired")? || may_unblock,
        next_timer: timer::next(connection).await?,
        database_now: row.opt_i64(1)?.map(TimestampMs),
    })
}

pub(crate) async fn retire(
    transaction: &mut Transaction<'_>,
    server: &ServerId,
    at: TimestampMs,
) -> Result<(), Failure> {
    let sql = "SELECT id FROM server WHERE public_id = $1";
    match transaction.connection.fetch_optional(sql, values![server.as_str()]).await? {
        // The server was deleted before, so its lease has ended already.
        None => Ok(()),
        Some(row) => forget(transaction, vec![row.i64(0)?], at).await.map(|_| ()),
    }
}

/// Frees the leases of dead servers and deletes these servers.
pub(crate) async fn reap(transaction: &mut Transaction<'_>, at: TimestampMs) -> Result<u64, Failure> {
    let sql = "SELECT id FROM server WHERE expires_at_ms <= $1 ORDER BY id";
    let rows = transaction.connection.fetch_all(sql, values![at.0]).await?;
    let dead = rows.iter().map(|row| row.i64(0)).collect::<Result<Vec<_>, _>>()?;
    // Embedded workers without a server cannot be alive either. Their leases are found when they expire.
    if dead.is_empty() { Ok(0) } else { forget(transaction, dead, at).await }
}

async fn forget(transaction: &mut Transaction<'_>, servers: Vec<i64>, at: TimestampMs) -> Result<u64, Failure> {
    let rows = transaction.connection.fetch_all(EMBEDDED_LEASES, values![servers.clone()]).await?;
    let step_ids = rows.iter().map(|row| row.i64(0)).collect::<Result<Vec<_>, _>>()?;
    let run_ids = runs_of(transaction, &step_ids).await?;
    let mut held =
        LockedRows::load(transaction, LoadRequest { run_ids, step_ids: step_ids.clone(), ..LoadRequest::default() })
            .await?;
    let mut freed = 0;
    for id in step_ids {
        // It may have been reported before the lock was taken.
        if held.set.steps.get(&id).is_some_and(|step| matches!(step.place, Place::Leased { .. })) {
            try_end::free(&mut held.set, id, at)?;
            freed += 1;
        }
    }
    held.write(transaction, at).await?;
    // If a server is alive after all, its next heartbeat finds no lease and it registers again.
    let sql = any_of!("DELETE FROM server WHERE id", "$1", "");
    transaction.connection.execute(sql, values![servers]).await?;
    transaction.notice(nightshift_engine::store::Notice::Unknown);
    Ok(freed)
}

/// Returns the clock of Postgres.
pub(crate) async fn database_now(connection: &mut Connection) -> Result<TimestampMs, Failure> {
    let sql = concat!("SELECT ", postgres_clock!());
    Ok(TimestampMs(connection.fetch_one(sql, values![]).await?.i64(0)?))
}

pub(crate) async fn list(connection: &mut Connection) -> Result<Vec<ServerRecord>, Failure> {
    let sql = "SELECT public_id, name, version, address, started_at_ms, expires_at_ms, state_format FROM server \
               ORDER BY id DESC LIMIT $1";
    let rows = connection.fetch_all(sql, values![MAX_SERVERS]).await?;
    rows.iter()
        .map(|row| {
            Ok(ServerRecord {
                id: public_id(row.str(0)?, "a server's id")?,
                name: row.text(1)?,
                version: row.text(2)?,
                address: row.text(3)?,
                started_at: TimestampMs(row.i64(4)?),
                expires_at: TimestampMs(row.i64(5)?),
                state_format: u32::try_from(row.i64(6)?).unwrap_or(u32::MAX),
            })
        })
        .collect()
}

/// Returns the internal key of a known server.
pub(crate) async fn key_of(connection: &mut Connection, server: &ServerId) -> Result<i64, Failure> {
    let row = connection.fetch_optional("SELECT id FROM server WHERE public_id = $1", values![server.as_str()]).await?;
    row.ok_or_else(|| Failure::not_found("server", server.as_str()))?.i64(0)
}
