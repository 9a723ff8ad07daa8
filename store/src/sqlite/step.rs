//! Steps.

use nightshift_engine::event::Event;
use nightshift_engine::retry::RetryPolicy;
use nightshift_engine::store::StepRecord;
use nightshift_engine::workflow::StepOrder;
use nightshift_protocol::id::{RunId, StepId};
use nightshift_protocol::run::StepStatus;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::time::TimestampMs;
use sqlx::SqliteConnection;

use super::failure::Failure;
use super::{public_id, ready, run};
use crate::json;
use crate::number::{count_from_stored, from_stored, to_stored};

/// The steps of a run.
pub(super) const LIST: &str = step_query!("WHERE s.run_id = ?1 ORDER BY s.id");

/// The steps of a run without input and output.
pub(super) const LIST_HEADS: &str =
    step_columns!("'null' AS input, NULL AS output_event", "", "WHERE s.run_id = ?1 ORDER BY s.id");

/// Every column of a step record; the tail says which steps. The output is read from the event that committed it.
macro_rules! step_query {
    ($tail:literal) => {
        $crate::sqlite::step::step_columns!(
            "i.input, e.body AS output_event",
            "JOIN step_input i ON i.step_id = s.id LEFT JOIN event e ON e.run_id = s.run_id AND e.seq = s.output_seq ",
            $tail
        )
    };
}
pub(super) use step_query;

/// A query for step records: where input and output come from, and which steps.
macro_rules! step_columns {
    ($payloads:literal, $joins:literal, $tail:literal) => {
        concat!(
            "SELECT s.public_id, r.public_id AS run, s.key, s.kind, route.needs AS route, s.status, s.epoch, s.tries, ",
            "s.max_tries, s.first_delay_ms, s.max_delay_ms, s.timeout_ms, w.public_id AS worker, ",
            $payloads,
            ", s.failure, s.scheduled_at_ms, s.started_at_ms, s.finished_at_ms, t.not_before_ms ",
            "FROM step s JOIN run r ON r.id = s.run_id JOIN route ON route.id = s.route_id ",
            $joins,
            "LEFT JOIN worker w ON w.id = s.worker_id LEFT JOIN timer t ON t.step_id = s.id ",
            $tail
        )
    };
}
pub(super) use step_columns;

pub(super) async fn list(connection: &mut SqliteConnection, run: &RunId) -> Result<Vec<StepRecord>, Failure> {
    let run_id = run::key_of(connection, run.as_str()).await?;
    let rows: Vec<Row> = sqlx::query_as(LIST).bind(run_id).fetch_all(connection).await?;
    records(rows)
}

/// The steps of a run without input and output.
pub(super) async fn list_heads(connection: &mut SqliteConnection, run: &RunId) -> Result<Vec<StepRecord>, Failure> {
    let run_id = run::key_of(connection, run.as_str()).await?;
    let rows: Vec<Row> = sqlx::query_as(LIST_HEADS).bind(run_id).fetch_all(connection).await?;
    records(rows)
}

pub(super) async fn load(connection: &mut SqliteConnection, id: &StepId) -> Result<StepRecord, Failure> {
    let row: Option<Row> =
        sqlx::query_as(step_query!("WHERE s.public_id = ?1")).bind(id.as_str()).fetch_optional(connection).await?;
    row.ok_or_else(|| Failure::not_found("step", id.as_str()))?.into_record()
}

/// Steps by their internal keys, a JSON list, in the order they were scheduled.
pub(super) async fn load_all(connection: &mut SqliteConnection, ids: &str) -> Result<Vec<StepRecord>, Failure> {
    let rows: Vec<Row> = sqlx::query_as(step_query!("WHERE s.id IN (SELECT value FROM json_each(?1)) ORDER BY s.id"))
        .bind(ids)
        .fetch_all(connection)
        .await?;
    records(rows)
}

pub(super) fn records(rows: Vec<Row>) -> Result<Vec<StepRecord>, Failure> {
    rows.into_iter().map(Row::into_record).collect()
}

/// Inserts a step, ready at once when the run is running. `false`: the key exists, and was left as it is.
pub(super) async fn schedule(
    connection: &mut SqliteConnection,
    run_id: i64,
    begins: bool,
    id: &StepId,
    order: StepOrder,
    at: TimestampMs,
) -> Result<bool, Failure> {
    let needs = order.needs.route();
    sqlx::query("INSERT INTO route (needs) VALUES (?1) ON CONFLICT (needs) DO NOTHING")
        .bind(&needs)
        .execute(&mut *connection)
        .await?;
    let step_id: Option<i64> = sqlx::query_scalar(
        "INSERT INTO step (public_id, run_id, key, kind, route_id, status, max_tries, first_delay_ms, max_delay_ms, \
                           timeout_ms, scheduled_at_ms) \
         VALUES (?1, ?2, ?3, ?4, (SELECT id FROM route WHERE needs = ?5), 'scheduled', ?6, ?7, ?8, ?9, ?10) \
         ON CONFLICT (run_id, key) DO NOTHING RETURNING id",
    )
    .bind(id.as_str())
    .bind(run_id)
    .bind(json::clean(&order.key).as_ref())
    .bind(json::clean(&order.kind).as_ref())
    .bind(&needs)
    .bind(order.retry.max_tries)
    .bind(to_stored(order.retry.first_delay_ms))
    .bind(to_stored(order.retry.max_delay_ms))
    .bind(to_stored(order.timeout_ms))
    .bind(at.0)
    .fetch_optional(&mut *connection)
    .await?;
    let Some(step_id) = step_id else { return Ok(false) };
    sqlx::query("INSERT INTO step_input (step_id, input) VALUES (?1, ?2)")
        .bind(step_id)
        .bind(json::write(&order.input)?)
        .execute(&mut *connection)
        .await?;
    if begins {
        ready::insert(connection, step_id).await?;
    }
    Ok(true)
}

/// Which open steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Open {
    /// Those that nobody carries out: workers stop the others first.
    Scheduled,
    /// All.
    ScheduledAndLeased,
}

/// Cancels open steps of a run, with their ready rows, timers and leases; their keys in the order of scheduling.
pub(super) async fn cancel_open(
    connection: &mut SqliteConnection,
    run_id: i64,
    at: TimestampMs,
    open: Open,
) -> Result<Vec<String>, Failure> {
    ready::remove_run(connection, run_id).await?;
    let mut cancelled: Vec<(i64, String)> = sqlx::query_as(
        "UPDATE step SET status = 'cancelled', finished_at_ms = ?2 \
         WHERE run_id = ?1 AND (status = 'scheduled' OR (status = 'leased' AND ?3)) RETURNING id, key",
    )
    .bind(run_id)
    .bind(at.0)
    .bind(open == Open::ScheduledAndLeased)
    .fetch_all(&mut *connection)
    .await?;
    // SQLite returns them in no particular order.
    cancelled.sort_unstable();
    let (ids, keys): (Vec<i64>, Vec<String>) = cancelled.into_iter().unzip();
    let ids = json::write(&ids)?;
    sqlx::query("DELETE FROM timer WHERE step_id IN (SELECT value FROM json_each(?1))")
        .bind(&ids)
        .execute(&mut *connection)
        .await?;
    sqlx::query("DELETE FROM lease WHERE step_id IN (SELECT value FROM json_each(?1))")
        .bind(&ids)
        .execute(&mut *connection)
        .await?;
    Ok(keys)
}

#[derive(sqlx::FromRow)]
pub(super) struct Row {
    public_id: String,
    run: String,
    key: String,
    kind: String,
    route: String,
    status: String,
    epoch: i64,
    tries: i64,
    max_tries: i64,
    first_delay_ms: i64,
    max_delay_ms: i64,
    timeout_ms: i64,
    worker: Option<String>,
    input: String,
    output_event: Option<String>,
    failure: Option<String>,
    scheduled_at_ms: i64,
    started_at_ms: Option<i64>,
    finished_at_ms: Option<i64>,
    not_before_ms: Option<i64>,
}

impl Row {
    pub(super) fn into_record(self) -> Result<StepRecord, Failure> {
        let unreadable = |what: &'static str| {
            let id = self.public_id.clone();
            move |error: serde_json::Error| Failure::unreadable(format!("the {what} of step {id}"), &error)
        };
        let status = StepStatus::parse(&self.status)
            .ok_or_else(|| Failure::unreadable("the status of a step", &format!("`{}` is none", self.status)))?;
        let input = json::read(&self.input).map_err(unreadable("input"))?;
        let event: Option<Event> =
            self.output_event.as_deref().map(json::read).transpose().map_err(unreadable("output"))?;
        let output = match event {
            Some(Event::StepCompleted { output, .. }) => Some(output),
            _ => None,
        };
        let failure: Option<StepFailure> =
            self.failure.as_deref().map(json::read).transpose().map_err(unreadable("failure"))?;
        Ok(StepRecord {
            run: public_id(&self.run, "a run's id")?,
            key: self.key,
            kind: self.kind,
            route: self.route,
            status,
            epoch: from_stored(self.epoch),
            tries: count_from_stored(self.tries),
            retry: RetryPolicy {
                max_tries: count_from_stored(self.max_tries),
                first_delay_ms: from_stored(self.first_delay_ms),
                max_delay_ms: from_stored(self.max_delay_ms),
            },
            timeout_ms: from_stored(self.timeout_ms),
            worker: self.worker.as_deref().map(|worker| public_id(worker, "a worker's id")).transpose()?,
            input,
            output,
            failure,
            scheduled_at: TimestampMs(self.scheduled_at_ms),
            started_at: self.started_at_ms.map(TimestampMs),
            finished_at: self.finished_at_ms.map(TimestampMs),
            not_before: self.not_before_ms.map(TimestampMs),
            id: public_id(&self.public_id, "a step's id")?,
        })
    }
}
