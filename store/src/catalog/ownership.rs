//! Ownership of runs by servers.

use nightshift_engine::store::{OwnerFence, Ownership};
use nightshift_protocol::id::{RunId, ServerId};
use nightshift_protocol::time::TimestampMs;

use super::run::status_of;
use super::{MAX_PAGE, public_id, server};
use crate::connection::{Connection, Sql};
use crate::failure::Failure;
use crate::number::from_stored;
use crate::sql::any_of;
use crate::transaction::Transaction;
use crate::value::values;

/// Runs that a server may acquire: its own, runs without an owner, and runs of dead servers. Excluded are runs with an
/// unknown state format and runs that are handed over.
macro_rules! may_have {
    ($wanted:literal, $end:literal) => {
        concat!(
            "SELECT r.id, r.public_id, r.owner_id, r.owner_epoch FROM run r WHERE ",
            $wanted,
            " AND NOT EXISTS (SELECT 1 FROM handover h WHERE h.campaign_id = r.campaign_id \
                             AND h.state IN ('leaving', 'out')) \
              AND r.state_format <= (SELECT s.state_format FROM server s WHERE s.id = $1) \
              AND (r.owner_id IS NULL OR r.owner_id = $1 OR NOT EXISTS \
               (SELECT 1 FROM server o WHERE o.id = r.owner_id AND o.expires_at_ms > $2)) ORDER BY r.id LIMIT $3",
            $end
        )
    };
}

macro_rules! both {
    ($wanted:literal) => {
        Sql { sqlite: may_have!($wanted, ""), postgres: may_have!($wanted, " FOR UPDATE OF r SKIP LOCKED") }
    };
}

/// Runs whose log is ahead of their state.
pub(crate) const AHEAD: Sql = both!("r.to_drive = 1");

/// Cancelled runs without open steps: they wait for their end, whatever their log contains.
pub(crate) const TO_BE_ENDED: Sql = both!(
    "r.status = 'cancelling' AND r.wake_seq <= r.folded_seq \
     AND NOT EXISTS (SELECT 1 FROM step WHERE run_id = r.id AND status IN ('scheduled', 'leased'))"
);

macro_rules! one {
    ($end:literal) => {
        concat!("SELECT r.id, r.public_id, r.owner_id, r.owner_epoch, r.status, r.state_format FROM run r WHERE r.public_id = $1", $end)
    };
}

/// One run, locked.
const ONE: Sql = Sql { sqlite: one!(""), postgres: one!(" FOR UPDATE OF r") };

pub(crate) async fn acquire_runs(
    transaction: &mut Transaction<'_>,
    server: &ServerId,
    limit: u32,
    at: TimestampMs,
) -> Result<Vec<(RunId, OwnerFence)>, Failure> {
    let connection = &mut *transaction.connection;
    let Some((server_id, _)) = alive(connection, server, at).await? else { return Ok(Vec::new()) };
    let limit = limit.min(MAX_PAGE);
    let mut rows = connection.fetch_all(AHEAD, values![server_id, at.0, limit]).await?;
    let left = limit.saturating_sub(u32::try_from(rows.len()).unwrap_or(u32::MAX));
    if left > 0 {
        rows.extend(connection.fetch_all(TO_BE_ENDED, values![server_id, at.0, left]).await?);
    }
    let mut acquired = Vec::with_capacity(rows.len());
    let mut new = Vec::new();
    for row in rows {
        let is_new = row.opt_i64(2)? != Some(server_id);
        if is_new {
            new.push(row.i64(0)?);
        }
        let epoch = from_stored(row.i64(3)? + i64::from(is_new));
        acquired.push((public_id(row.str(1)?, "a run's id")?, OwnerFence { server: server.clone(), epoch }));
    }
    take(connection, new, server_id).await?;
    Ok(acquired)
}

pub(crate) async fn acquire_run(
    transaction: &mut Transaction<'_>,
    server: &ServerId,
    run: &RunId,
    at: TimestampMs,
) -> Result<Ownership, Failure> {
    let connection = &mut *transaction.connection;
    let row = connection.fetch_optional(ONE, values![run.as_str()]).await?;
    let row = row.ok_or_else(|| Failure::not_found("run", run.as_str()))?;
    if status_of(row.str(4)?)?.is_final() {
        return Ok(Ownership::Over);
    }
    let (server_id, reads) = alive(connection, server, at).await?.ok_or_else(|| dead(server))?;
    let owner = row.opt_i64(2)?;
    if let Some(owner) = owner.filter(|owner| *owner != server_id) {
        let sql = "SELECT public_id FROM server WHERE id = $1 AND expires_at_ms > $2";
        if let Some(other) = connection.fetch_optional(sql, values![owner, at.0]).await? {
            return Ok(Ownership::Other(public_id(other.str(0)?, "a server's id")?));
        }
    }
    let sql = "SELECT 1 FROM handover h JOIN run r ON r.campaign_id = h.campaign_id \
               WHERE r.id = $1 AND h.state IN ('leaving', 'out')";
    let is_new = owner != Some(server_id);
    if is_new && connection.fetch_optional(sql, values![row.i64(0)?]).await?.is_some() {
        return Ok(Ownership::HandedOver);
    }
    if row.i64(5)? > reads {
        return Ok(Ownership::TooNew { state_format: u32::try_from(row.i64(5)?).unwrap_or(u32::MAX) });
    }
    if is_new {
        take(connection, vec![row.i64(0)?], server_id).await?;
    }
    let epoch = from_stored(row.i64(3)? + i64::from(is_new));
    Ok(Ownership::Mine(OwnerFence { server: server.clone(), epoch }))
}

/// Assigns locked runs to the server, each with a higher epoch and the server's state format.
async fn take(connection: &mut Connection, run_ids: Vec<i64>, server_id: i64) -> Result<(), Failure> {
    if !run_ids.is_empty() {
        let sql = any_of!(
            "UPDATE run SET owner_id = $2, owner_epoch = owner_epoch + 1, \
                 state_format = (SELECT s.state_format FROM server s WHERE s.id = $2) WHERE id",
            "$1",
            ""
        );
        connection.execute(sql, values![run_ids, server_id]).await?;
    }
    Ok(())
}

/// Returns the internal key of a known server and its state format. Returns none if it is dead.
async fn alive(connection: &mut Connection, server: &ServerId, at: TimestampMs) -> Result<Option<(i64, i64)>, Failure> {
    let server_id = server::key_of(connection, server).await?;
    let sql = "SELECT state_format FROM server WHERE id = $1 AND expires_at_ms > $2";
    let row = connection.fetch_optional(sql, values![server_id, at.0]).await?;
    row.map(|row| Ok((server_id, row.i64(0)?))).transpose()
}

/// Counts unfinished runs whose state has a higher format.
pub(crate) async fn count_newer(connection: &mut Connection, state_format: u32) -> Result<u64, Failure> {
    let sql = "SELECT COUNT(*) FROM run WHERE state_format > $1 AND status IN ('running', 'paused', 'cancelling')";
    Ok(from_stored(connection.fetch_one(sql, values![state_format]).await?.i64(0)?))
}

fn dead(server: &ServerId) -> Failure {
    Failure::refused("server.expired", format!("the server {server} sent no heartbeat for too long: it owns nothing"))
}
