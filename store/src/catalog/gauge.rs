//! Gauges for operators.

use nightshift_engine::store::StoreGauges;
use nightshift_protocol::time::TimestampMs;

use super::run::status_of;
use crate::connection::Connection;
use crate::failure::Failure;
use crate::number::from_stored;
use crate::value::values;

pub(crate) async fn gauges(connection: &mut Connection) -> Result<StoreGauges, Failure> {
    let mut gauges = StoreGauges::default();
    let sql = "SELECT route.needs, COUNT(*) AS steps, MIN(s.scheduled_at_ms) AS oldest FROM ready \
               JOIN route ON route.id = ready.route_id JOIN step s ON s.id = ready.step_id \
               GROUP BY route.needs ORDER BY route.needs";
    for row in connection.fetch_all(sql, values![]).await? {
        let needs = row.text(0)?;
        gauges.ready.push((needs.clone(), from_stored(row.i64(1)?)));
        gauges.oldest_ready.push((needs, TimestampMs(row.i64(2)?)));
    }
    let sql = "SELECT exclusive, COUNT(*) AS devices FROM (SELECT DISTINCT worker_id, device, exclusive FROM lease \
               WHERE device IS NOT NULL) used GROUP BY exclusive";
    for row in connection.fetch_all(sql, values![]).await? {
        let devices = from_stored(row.i64(1)?);
        if row.i64(0)? == 0 { gauges.devices_shared = devices } else { gauges.devices_alone = devices }
    }
    let sql = "SELECT route.needs, MIN(s.started_at_ms) AS oldest FROM lease l JOIN step s ON s.id = l.step_id \
               JOIN route ON route.id = s.route_id WHERE s.started_at_ms IS NOT NULL \
               GROUP BY route.needs ORDER BY route.needs";
    for row in connection.fetch_all(sql, values![]).await? {
        gauges.oldest_lease.push((row.text(0)?, TimestampMs(row.i64(1)?)));
    }
    let sql = "SELECT (SELECT COUNT(*) FROM timer) AS timers, (SELECT COUNT(*) FROM blocked) AS blocked, \
               (SELECT COUNT(*) FROM lease) AS leases";
    let row = connection.fetch_one(sql, values![]).await?;
    gauges.timers = from_stored(row.i64(0)?);
    gauges.blocked = from_stored(row.i64(1)?);
    gauges.leases = from_stored(row.i64(2)?);
    for row in connection.fetch_all("SELECT status, COUNT(*) AS runs FROM run GROUP BY status", values![]).await? {
        gauges.runs.add(status_of(row.str(0)?)?, from_stored(row.i64(1)?));
    }
    Ok(gauges)
}
