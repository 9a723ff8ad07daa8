//! Reads steps.

use nightshift_engine::event::Event;
use nightshift_engine::retry::RetryPolicy;
use nightshift_engine::store::StepRecord;
use nightshift_protocol::budget::Resource;
use nightshift_protocol::id::{RunId, StepId};
use nightshift_protocol::run::StepStatus;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::time::TimestampMs;

use super::{public_id, run};
use crate::connection::Connection;
use crate::failure::Failure;
use crate::json;
use crate::number::{count_from_stored, from_stored};
use crate::row::Row;
use crate::scheduling::admit::read_amounts;
use crate::value::values;

/// Selects every column of a step record. The tail selects which steps. The output comes from the event that committed
/// it.
macro_rules! step_query {
    ($tail:expr) => {
        $crate::catalog::step::step_columns!(
            "i.input, e.body AS output_event",
            "JOIN step_input i ON i.step_id = s.id LEFT JOIN event e ON e.run_id = s.run_id AND e.seq = s.output_seq ",
            $tail
        )
    };
}
pub(crate) use step_query;

/// A query for step records with the given sources of input and output.
macro_rules! step_columns {
    ($payloads:literal, $joins:literal, $tail:expr) => {
        concat!(
            "SELECT s.public_id, r.public_id AS run, s.key, s.kind, route.needs AS route, s.status, s.epoch, s.tries, ",
            "s.max_tries, s.first_delay_ms, s.max_delay_ms, s.timeout_ms, s.worker, s.reserve, ",
            $payloads,
            ", s.failure, s.scheduled_at_ms, s.started_at_ms, s.finished_at_ms, t.not_before_ms, ",
            "b.resource AS blocked_on, h.device ",
            "FROM step s JOIN run r ON r.id = s.run_id JOIN route ON route.id = s.route_id ",
            $joins,
            "LEFT JOIN timer t ON t.step_id = s.id LEFT JOIN blocked b ON b.step_id = s.id ",
            "LEFT JOIN lease h ON h.step_id = s.id ",
            $tail
        )
    };
}
pub(crate) use step_columns;

/// The steps of a run without input and output.
pub(crate) const LIST_HEADS: &str = step_columns!(
    "'null' AS input, NULL AS output_event",
    "",
    "WHERE s.run_id = (SELECT id FROM run WHERE public_id = $1) ORDER BY s.scheduled_seq, s.id"
);

/// The steps of a run whose keys are in a range, without input and output.
pub(crate) const LIST_HEADS_BETWEEN: &str = step_columns!(
    "'null' AS input, NULL AS output_event",
    "",
    "WHERE s.run_id = (SELECT id FROM run WHERE public_id = $1) AND s.key >= $2 AND s.key < $3 \
     ORDER BY s.scheduled_seq, s.id"
);

/// Lists the steps of a run without input and output.
pub(crate) async fn list_heads(connection: &mut Connection, run: &RunId) -> Result<Vec<StepRecord>, Failure> {
    let rows = connection.fetch_all(LIST_HEADS, values![run.as_str()]).await?;
    if rows.is_empty() {
        // An error if the run does not exist.
        run::key_of(connection, run.as_str()).await?;
    }
    records(&rows)
}

/// Lists the steps of a run whose keys are in a folder, without input and output. See [`LIST_HEADS_BETWEEN`].
pub(crate) async fn list_heads_in(
    connection: &mut Connection,
    run: &RunId,
    folder: &str,
) -> Result<Vec<StepRecord>, Failure> {
    // `0` follows `/`.
    let (first, end) = (format!("{folder}/"), format!("{folder}0"));
    records(&connection.fetch_all(LIST_HEADS_BETWEEN, values![run.as_str(), first, end]).await?)
}

pub(crate) async fn load(connection: &mut Connection, id: &StepId) -> Result<StepRecord, Failure> {
    let row = connection.fetch_optional(step_query!("WHERE s.public_id = $1"), values![id.as_str()]).await?;
    record(&row.ok_or_else(|| Failure::not_found("step", id.as_str()))?)
}

pub(crate) fn records(rows: &[Row]) -> Result<Vec<StepRecord>, Failure> {
    rows.iter().map(record).collect()
}

pub(crate) fn record(row: &Row) -> Result<StepRecord, Failure> {
    let id = row.str("public_id")?;
    let unreadable =
        |what: &str, error: &serde_json::Error| Failure::unreadable(format!("the {what} of step {id}"), error);
    let status = row.str("status")?;
    let status = StepStatus::parse(status)
        .ok_or_else(|| Failure::unreadable("the status of a step", &format!("`{status}` is none")))?;
    let event: Option<Event> =
        row.opt_str("output_event")?.map(json::read).transpose().map_err(|error| unreadable("output", &error))?;
    let output = match event {
        Some(Event::StepCompleted { output, .. }) => Some(output),
        _ => None,
    };
    let failure: Option<StepFailure> =
        row.opt_str("failure")?.map(json::read).transpose().map_err(|error| unreadable("failure", &error))?;
    Ok(StepRecord {
        id: public_id(id, "a step's id")?,
        run: public_id(row.str("run")?, "a run's id")?,
        key: row.text("key")?,
        kind: row.text("kind")?,
        route: row.text("route")?,
        status,
        epoch: from_stored(row.i64("epoch")?),
        tries: count_from_stored(row.i64("tries")?),
        retry: RetryPolicy {
            max_tries: count_from_stored(row.i64("max_tries")?),
            first_delay_ms: from_stored(row.i64("first_delay_ms")?),
            max_delay_ms: from_stored(row.i64("max_delay_ms")?),
        },
        timeout_ms: from_stored(row.i64("timeout_ms")?),
        worker: row.opt_str("worker")?.map(|worker| public_id(worker, "a worker's id")).transpose()?,
        input: json::read(row.str("input")?).map_err(|error| unreadable("input", &error))?,
        output,
        failure,
        scheduled_at: TimestampMs(row.i64("scheduled_at_ms")?),
        started_at: row.opt_i64("started_at_ms")?.map(TimestampMs),
        finished_at: row.opt_i64("finished_at_ms")?.map(TimestampMs),
        not_before: row.opt_i64("not_before_ms")?.map(TimestampMs),
        blocked_on: row.opt_str("blocked_on")?.map(resource_of).transpose()?,
        device: row.opt_i64("device")?.map(count_from_stored),
        reserve: read_amounts(row.opt_str("reserve")?)?,
    })
}

/// Parses a stored resource.
pub(crate) fn resource_of(text: &str) -> Result<Resource, Failure> {
    Resource::parse(text).ok_or_else(|| Failure::unreadable("a resource", &format!("`{text}` is none")))
}

/// Routes of ready steps, in the order of the first rank of each. Reads one index entry per route, regardless of the
/// number of ready steps.
pub(crate) const READY_ROUTES: &str = "WITH RECURSIVE present (route_id) AS ( \
         SELECT MIN(route_id) FROM ready \
         UNION ALL \
         SELECT (SELECT MIN(y.route_id) FROM ready y WHERE y.route_id > present.route_id) FROM present \
          WHERE present.route_id IS NOT NULL) \
     SELECT n.needs FROM present JOIN route n ON n.id = present.route_id \
      ORDER BY (SELECT MIN(y.rank) FROM ready y WHERE y.route_id = present.route_id), n.id LIMIT $1";

pub(crate) async fn ready_routes(connection: &mut Connection, limit: u32) -> Result<Vec<String>, Failure> {
    let rows = connection.fetch_all(READY_ROUTES, values![limit]).await?;
    rows.iter().map(|row| row.text(0)).collect()
}
