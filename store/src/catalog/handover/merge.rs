//! Merges returned rows table by table.
//!
//! Changed rows replace the stored ones and new rows are added. Data that people or agents created here in the meantime
//! stays unchanged.

use nightshift_protocol::time::TimestampMs;
use serde_json::Value;

use crate::catalog::archive::{ROWS_PER_STATEMENT, columns_of, table_of, unusable};
use crate::connection::{Connection, Sql};
use crate::failure::Failure;
use crate::json;
use crate::sql::from_rows;
use crate::transaction::Transaction;
use crate::value::values;

/// The statement that merges rows of a table.
///
/// `d.value ->> n` is the column `n` of the archive. After the columns follow the id of a new step, the internal key of
/// the campaign, and the time.
struct Merge {
    table: &'static str,
    sql: Sql,
}

/// Tables in which every returned row must be stored, or the merge fails. A row that cannot be stored refers to another
/// campaign.
const WHOLE: [&str; 6] = ["run", "run_format", "run_state", "run_part", "event", "step"];

/// The merges in an order in which rows can be stored.
const MERGES: &[Merge] = &[
    Merge {
        table: "route",
        sql: from_rows!("INSERT INTO route (needs) SELECT d.value ->> 0 FROM ", " WHERE true ON CONFLICT DO NOTHING"),
    },
    // Retention begins at the merge, because the runs were not visible here before.
    Merge {
        table: "run",
        sql: from_rows!(
            "UPDATE run SET status = d.value ->> 2, \
                 revision = 1 + CASE WHEN run.revision > CAST(d.value ->> 4 AS BIGINT) THEN run.revision \
                                     ELSE CAST(d.value ->> 4 AS BIGINT) END, \
                 last_seq = CAST(d.value ->> 5 AS BIGINT), wake_seq = CAST(d.value ->> 6 AS BIGINT), \
                 folded_seq = CAST(d.value ->> 7 AS BIGINT), digest = d.value ->> 8, awaits = d.value ->> 9, \
                 failure = d.value ->> 10, \
                 finished_at_ms = CASE WHEN CAST(d.value ->> 12 AS BIGINT) < CAST(d.value ->> 14 AS BIGINT) \
                                       AND run.finished_at_ms IS NULL \
                                       THEN CAST(d.value ->> 14 AS BIGINT) ELSE CAST(d.value ->> 12 AS BIGINT) END FROM ",
            " WHERE run.public_id = d.value ->> 0"
        ),
    },
    Merge {
        table: "run_format",
        sql: from_rows!(
            "UPDATE run SET state_format = CAST(d.value ->> 1 AS BIGINT) FROM ",
            " WHERE run.public_id = d.value ->> 0"
        ),
    },
    Merge {
        table: "run_state",
        sql: from_rows!(
            "INSERT INTO run_state (run_id, state) SELECT r.id, d.value ->> 1 FROM ",
            " JOIN run r ON r.public_id = d.value ->> 0 WHERE true \
              ON CONFLICT (run_id) DO UPDATE SET state = excluded.state"
        ),
    },
    Merge {
        table: "run_part",
        sql: from_rows!(
            "INSERT INTO run_part (run_id, field, number, value, revision) \
             SELECT r.id, d.value ->> 1, CAST(d.value ->> 2 AS BIGINT), d.value ->> 3, r.revision FROM ",
            " JOIN run r ON r.public_id = d.value ->> 0 WHERE true \
              ON CONFLICT (run_id, field, number) DO UPDATE SET value = excluded.value, revision = excluded.revision"
        ),
    },
    Merge {
        table: "event",
        sql: from_rows!(
            "INSERT INTO event (run_id, seq, at_ms, kind, body) \
             SELECT r.id, CAST(d.value ->> 1 AS BIGINT), CAST(d.value ->> 2 AS BIGINT), d.value ->> 3, d.value ->> 4 FROM ",
            " JOIN run r ON r.public_id = d.value ->> 0"
        ),
    },
    // A step keeps its internal key, which requests of outside agents reference.
    Merge {
        table: "step",
        sql: from_rows!(
            "INSERT INTO step (public_id, run_id, key, kind, route_id, status, epoch, tries, max_tries, first_delay_ms, \
                 max_delay_ms, timeout_ms, cost_ms, reserve, worker, scheduled_seq, output_seq, failure, \
                 scheduled_at_ms, started_at_ms, finished_at_ms, id) \
             SELECT d.value ->> 0, r.id, d.value ->> 2, d.value ->> 3, route.id, d.value ->> 5, \
                 CAST(d.value ->> 6 AS BIGINT), CAST(d.value ->> 7 AS BIGINT), CAST(d.value ->> 8 AS BIGINT), \
                 CAST(d.value ->> 9 AS BIGINT), CAST(d.value ->> 10 AS BIGINT), CAST(d.value ->> 11 AS BIGINT), \
                 CAST(d.value ->> 12 AS BIGINT), d.value ->> 13, d.value ->> 14, CAST(d.value ->> 15 AS BIGINT), \
                 CAST(d.value ->> 16 AS BIGINT), d.value ->> 17, CAST(d.value ->> 18 AS BIGINT), \
                 CAST(d.value ->> 19 AS BIGINT), CAST(d.value ->> 20 AS BIGINT), CAST(d.value ->> 21 AS BIGINT) FROM ",
            " JOIN run r ON r.public_id = d.value ->> 1 JOIN route ON route.needs = d.value ->> 4 WHERE true \
              ON CONFLICT (public_id) DO UPDATE SET status = excluded.status, epoch = excluded.epoch, \
                 tries = excluded.tries, worker = excluded.worker, output_seq = excluded.output_seq, \
                 failure = excluded.failure, started_at_ms = excluded.started_at_ms, \
                 finished_at_ms = excluded.finished_at_ms WHERE step.run_id = excluded.run_id"
        ),
    },
    Merge {
        table: "step_input",
        sql: from_rows!(
            "INSERT INTO step_input (step_id, input) SELECT s.id, d.value ->> 1 FROM ",
            " JOIN step s ON s.public_id = d.value ->> 0 JOIN run r ON r.id = s.run_id \
              WHERE r.campaign_id = CAST(d.value ->> 2 AS BIGINT) ON CONFLICT DO NOTHING"
        ),
    },
    Merge {
        table: "model_call",
        sql: from_rows!(
            "INSERT INTO model_call (run_id, step_key, turn, request_hash, summary, at_ms) \
             SELECT r.id, d.value ->> 1, CAST(d.value ->> 2 AS BIGINT), d.value ->> 3, d.value ->> 4, \
                 CAST(d.value ->> 5 AS BIGINT) FROM ",
            " JOIN run r ON r.public_id = d.value ->> 0 WHERE true ON CONFLICT DO NOTHING"
        ),
    },
    Merge {
        table: "budget",
        sql: from_rows!(
            "UPDATE budget SET used = used + CAST(d.value ->> 3 AS BIGINT) FROM ",
            " WHERE budget.campaign_id = CAST(d.value ->> 4 AS BIGINT) AND budget.resource = d.value ->> 1 \
              AND CAST(d.value ->> 3 AS BIGINT) > 0"
        ),
    },
    Merge {
        table: "artifact_use",
        sql: from_rows!(
            "INSERT INTO artifact_use (run_id, hash) SELECT r.id, d.value ->> 1 FROM ",
            " JOIN run r ON r.public_id = d.value ->> 0 WHERE true ON CONFLICT DO NOTHING"
        ),
    },
    Merge {
        table: "retrieval",
        sql: from_rows!(
            "INSERT INTO retrieval (run_id, step_key, items, at_ms) \
             SELECT r.id, d.value ->> 1, d.value ->> 2, CAST(d.value ->> 3 AS BIGINT) FROM ",
            " JOIN run r ON r.public_id = d.value ->> 0 WHERE true ON CONFLICT DO NOTHING"
        ),
    },
];

/// Counts the events that are stored identically.
const STORED_EVENTS: Sql = from_rows!(
    "SELECT COUNT(*) FROM ",
    " JOIN run r ON r.public_id = d.value ->> 0 \
      JOIN event e ON e.run_id = r.id AND e.seq = CAST(d.value ->> 1 AS BIGINT) \
      WHERE e.kind = d.value ->> 3 AND e.body = d.value ->> 4"
);

/// Returns whether these events are stored identically.
pub(super) async fn are_stored(connection: &mut Connection, events: &[&Value]) -> Result<bool, Failure> {
    let table = table_of("event")?;
    for chunk in events.chunks(ROWS_PER_STATEMENT) {
        let lists = chunk.iter().map(|row| columns_of(table, row)).collect::<Result<Vec<_>, _>>()?;
        let row = connection.fetch_one(STORED_EVENTS, values![json::write(&lists)?]).await?;
        if usize::try_from(row.i64(0)?) != Ok(chunk.len()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Merges rows of a campaign; of events, only the new ones.
pub(super) async fn merge(
    transaction: &mut Transaction<'_>,
    (campaign_id, at): (i64, TimestampMs),
    rows: &[Value],
    is_new_event: &impl Fn(&Value) -> bool,
) -> Result<(), Failure> {
    for Merge { table: name, sql } in MERGES {
        let table = table_of(name)?;
        let of_table: Vec<&Value> =
            rows.iter().filter(|row| row["table"] == *name && (*name != "event" || is_new_event(row))).collect();
        for chunk in of_table.chunks(ROWS_PER_STATEMENT) {
            let mut lists = chunk.iter().map(|row| columns_of(table, row)).collect::<Result<Vec<_>, _>>()?;
            if table.has_step_ids {
                let ids = transaction.memory.step_ids(transaction.connection, lists.len()).await?;
                lists.iter_mut().zip(ids).for_each(|(list, id)| list.push(Value::from(id)));
            }
            for list in &mut lists {
                list.extend([Value::from(campaign_id), Value::from(at.0)]);
            }
            let stored = transaction.connection.execute(*sql, values![json::write(&lists)?]).await?;
            if WHOLE.contains(name) && usize::try_from(stored) != Ok(chunk.len()) {
                return Err(unusable(&format!("rows of `{name}` belong to something else")));
            }
        }
    }
    Ok(())
}
