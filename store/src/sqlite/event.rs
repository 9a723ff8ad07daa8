//! The append-only log of a run.

use nightshift_engine::event::{Event, EventRecord};
use nightshift_protocol::id::RunId;
use nightshift_protocol::time::TimestampMs;
use sqlx::SqliteConnection;

use super::failure::Failure;
use super::run;
use crate::json;
use crate::number::{from_stored, to_stored};

/// The events of a run after a position.
pub(super) const AFTER: &str =
    "SELECT seq, at_ms, body FROM event WHERE run_id = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3";

/// Events of one answer.
const MAX_EVENTS: u32 = 10_000;

/// Appends events to the log; the position of the last one. Those that ask for a decision put the run on the
/// driver's work list.
pub(super) async fn append(
    connection: &mut SqliteConnection,
    run_id: i64,
    at: TimestampMs,
    events: &[Event],
) -> Result<i64, Failure> {
    let count = i64::try_from(events.len()).unwrap_or(i64::MAX);
    let last_wake = events.iter().rposition(Event::asks_for_a_decision);
    let wake_offset = last_wake.map(|index| i64::try_from(index).unwrap_or(i64::MAX).saturating_add(1));
    let last_seq: i64 = sqlx::query_scalar(
        "UPDATE run SET last_seq = last_seq + ?2, wake_seq = coalesce(last_seq + ?3, wake_seq) WHERE id = ?1 \
         RETURNING last_seq",
    )
    .bind(run_id)
    .bind(count)
    .bind(wake_offset)
    .fetch_one(&mut *connection)
    .await?;
    for (seq, event) in (last_seq - count + 1..).zip(events) {
        sqlx::query("INSERT INTO event (run_id, seq, at_ms, kind, body) VALUES (?1, ?2, ?3, ?4, ?5)")
            .bind(run_id)
            .bind(seq)
            .bind(at.0)
            .bind(event.kind())
            .bind(json::write(event)?)
            .execute(&mut *connection)
            .await?;
    }
    Ok(last_seq)
}

pub(super) async fn after(
    connection: &mut SqliteConnection,
    run: &RunId,
    after: u64,
    limit: u32,
) -> Result<Vec<EventRecord>, Failure> {
    let run_id = run::key_of(connection, run.as_str()).await?;
    let rows: Vec<(i64, i64, String)> = sqlx::query_as(AFTER)
        .bind(run_id)
        .bind(to_stored(after))
        .bind(limit.min(MAX_EVENTS))
        .fetch_all(connection)
        .await?;
    rows.into_iter()
        .map(|(seq, at_ms, body)| {
            let event =
                json::read(&body).map_err(|error| Failure::unreadable(format!("event {seq} of run {run}"), &error))?;
            Ok(EventRecord { seq: from_stored(seq), at: TimestampMs(at_ms), event })
        })
        .collect()
}
