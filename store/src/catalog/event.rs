//! The append-only log of a run.

use nightshift_engine::event::EventRecord;
use nightshift_protocol::id::RunId;
use nightshift_protocol::time::TimestampMs;

use super::run;
use crate::connection::Connection;
use crate::failure::Failure;
use crate::json;
use crate::number::{from_stored, to_stored};
use crate::value::values;

/// Selects the events of a run after a position, limited by number and size.
pub(crate) const AFTER: &str = "SELECT e.seq, e.at_ms, e.body FROM \
         (SELECT run_id, seq, SUM(bytes) OVER (ORDER BY seq) - bytes AS bytes_before FROM \
             (SELECT run_id, seq, octet_length(body) AS bytes FROM event \
               WHERE run_id = (SELECT id FROM run WHERE public_id = $1) AND seq > $2 \
               ORDER BY seq LIMIT $3) AS page) AS sized \
     CROSS JOIN event e WHERE e.run_id = sized.run_id AND e.seq = sized.seq AND sized.bytes_before < $4 ORDER BY e.seq";

/// Maximum number of events per answer.
const MAX_EVENTS: u32 = 10_000;
/// Size of events at which an answer ends, in bytes.
const MAX_BYTES: i64 = 4 * 1024 * 1024;

pub(crate) async fn after(
    connection: &mut Connection,
    run: &RunId,
    after: u64,
    limit: u32,
) -> Result<Vec<EventRecord>, Failure> {
    let values = values![run.as_str(), to_stored(after), limit.min(MAX_EVENTS), MAX_BYTES];
    let rows = connection.fetch_all(AFTER, values).await?;
    if rows.is_empty() {
        // An error if the run does not exist.
        run::key_of(connection, run.as_str()).await?;
    }
    rows.iter()
        .map(|row| {
            let seq = from_stored(row.i64(0)?);
            let event = json::read(row.str(2)?)
                .map_err(|error| Failure::unreadable(format!("event {seq} of run {run}"), &error))?;
            Ok(EventRecord { seq, at: TimestampMs(row.i64(1)?), event })
        })
        .collect()
}
