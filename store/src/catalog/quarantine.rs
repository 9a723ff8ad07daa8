//! Quarantined devices.

use nightshift_engine::store::QuarantineRecord;
use nightshift_protocol::id::WorkerId;
use nightshift_protocol::time::TimestampMs;
use serde_json::Value as Json;

use super::{MAX_PAGE, public_id};
use crate::connection::Connection;
use crate::failure::Failure;
use crate::json;
use crate::number::{count_from_stored, from_stored, to_stored};
use crate::row::Row;
use crate::sql::any_of;
use crate::transaction::Transaction;
use crate::value::values;

macro_rules! quarantine_query {
    ($tail:literal) => {
        concat!(
            "SELECT device, worker, worker_name, number, device_name, incident, code, reason, since_ms, released_at_ms, ",
            "released_by FROM quarantine ",
            $tail
        )
    };
}

/// The same incident keeps its start and its release.
const PUT: &str = "INSERT INTO quarantine (device, worker, worker_name, number, device_name, incident, code, reason, since_ms) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) \
     ON CONFLICT (device) DO UPDATE SET worker = excluded.worker, worker_name = excluded.worker_name, \
         number = excluded.number, device_name = excluded.device_name, incident = excluded.incident, \
         code = excluded.code, reason = excluded.reason, since_ms = excluded.since_ms, released_at_ms = NULL, \
         released_by = NULL \
     WHERE quarantine.worker <> excluded.worker OR quarantine.incident <> excluded.incident";

/// Stores a worker's report about its devices: the offers, and the quarantined and healthy devices.
pub(crate) async fn set(
    transaction: &mut Transaction<'_>,
    worker: &WorkerId,
    offers: &Json,
    quarantined: &[QuarantineRecord],
    well: &[String],
) -> Result<(), Failure> {
    let connection = &mut *transaction.connection;
    let sql = "UPDATE worker SET offers = $2 WHERE public_id = $1";
    if connection.execute(sql, values![worker.as_str(), json::write(offers)?]).await? == 0 {
        return Err(Failure::not_found("worker", worker.as_str()));
    }
    let well: Vec<String> = well.iter().map(|device| json::clean(device).into_owned()).collect();
    connection.execute(any_of!("DELETE FROM quarantine WHERE device", "$1", ""), values![well]).await?;
    for record in quarantined {
        let stored = values![
            json::clean(&record.device),
            record.worker.as_str(),
            json::clean(&record.worker_name),
            record.number,
            json::clean(&record.device_name),
            to_stored(record.incident),
            json::clean(&record.code),
            json::clean(&record.reason),
            record.since.0
        ];
        connection.execute(PUT, stored).await?;
    }
    Ok(())
}

pub(crate) async fn list(connection: &mut Connection) -> Result<Vec<QuarantineRecord>, Failure> {
    let sql = quarantine_query!("ORDER BY since_ms DESC, device LIMIT $1");
    connection.fetch_all(sql, values![MAX_PAGE]).await?.iter().map(record).collect()
}

/// Records a request to release a device. For a deleted worker, which cannot try the device again, the entry is
/// deleted.
pub(crate) async fn release(
    transaction: &mut Transaction<'_>,
    device: &str,
    by: Option<&str>,
    at: TimestampMs,
) -> Result<QuarantineRecord, Failure> {
    let connection = &mut *transaction.connection;
    let sql = "UPDATE quarantine SET released_at_ms = coalesce(released_at_ms, $2), \
               released_by = CASE WHEN released_at_ms IS NULL THEN $3 ELSE released_by END WHERE device = $1";
    connection.execute(sql, values![json::clean(device), at.0, by.map(|by| json::clean(by).into_owned())]).await?;
    let found = connection.fetch_optional(quarantine_query!("WHERE device = $1"), values![json::clean(device)]).await?;
    let record = record(&found.ok_or_else(|| Failure::not_found("device", device))?)?;
    let sql = "DELETE FROM quarantine WHERE device = $1 AND NOT EXISTS \
               (SELECT 1 FROM worker WHERE worker.public_id = quarantine.worker)";
    connection.execute(sql, values![json::clean(device)]).await?;
    Ok(record)
}

fn record(row: &Row) -> Result<QuarantineRecord, Failure> {
    Ok(QuarantineRecord {
        device: row.text("device")?,
        worker: public_id(row.str("worker")?, "a worker's id")?,
        worker_name: row.text("worker_name")?,
        number: count_from_stored(row.i64("number")?),
        device_name: row.text("device_name")?,
        incident: from_stored(row.i64("incident")?),
        code: row.text("code")?,
        reason: row.text("reason")?,
        since: TimestampMs(row.i64("since_ms")?),
        released_at: row.opt_i64("released_at_ms")?.map(TimestampMs),
        released_by: row.opt_text("released_by")?,
    })
}
