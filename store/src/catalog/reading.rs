//! Readings of the devices of workers.

use nightshift_engine::store::ReadingRecord;
use nightshift_protocol::time::TimestampMs;

use super::public_id;
use crate::connection::Connection;
use crate::failure::Failure;
use crate::json;
use crate::row::Row;
use crate::transaction::Transaction;
use crate::value::values;

/// Keeps later readings. A worker that is being deleted is skipped.
const PUT: &str = "INSERT INTO worker_reading (worker_id, at_ms, devices) \
     SELECT id, $2, $3 FROM worker WHERE public_id = $1 \
     ON CONFLICT (worker_id) DO UPDATE SET at_ms = excluded.at_ms, devices = excluded.devices \
     WHERE worker_reading.at_ms <= excluded.at_ms";

const LIST: &str = "SELECT w.public_id, d.at_ms, d.devices FROM worker_reading d JOIN worker w ON w.id = d.worker_id \
     ORDER BY w.id";

pub(crate) async fn put(transaction: &mut Transaction<'_>, readings: &[ReadingRecord]) -> Result<(), Failure> {
    // Sorted, so that two servers cannot deadlock.
    let mut readings: Vec<&ReadingRecord> = readings.iter().collect();
    readings.sort_by(|one, other| one.worker.as_str().cmp(other.worker.as_str()));
    for reading in readings {
        let stored = values![reading.worker.as_str(), reading.at.0, json::write(&reading.devices)?];
        transaction.connection.execute(PUT, stored).await?;
    }
    Ok(())
}

pub(crate) async fn list(connection: &mut Connection) -> Result<Vec<ReadingRecord>, Failure> {
    connection.fetch_all(LIST, values![]).await?.iter().map(record).collect()
}

fn record(row: &Row) -> Result<ReadingRecord, Failure> {
    let id = row.str("public_id")?;
    let unreadable = |error: &serde_json::Error| Failure::unreadable(format!("the devices of worker {id}"), error);
    Ok(ReadingRecord {
        worker: public_id(id, "a worker's id")?,
        at: TimestampMs(row.i64("at_ms")?),
        devices: json::read(row.str("devices")?).map_err(|error| unreadable(&error))?,
    })
}
