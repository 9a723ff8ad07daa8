//! Committing a decision of the driver.

use nightshift_engine::event::Event;
use nightshift_engine::store::{Advance, Advanced, StoreError};
use nightshift_protocol::run::RunStatus;
use sqlx::SqliteConnection;

use super::failure::Failure;
use super::{event, run, step};
use crate::json;
use crate::number::to_stored;

/// Steps that one decision schedules.
pub const MAX_STEPS_PER_ADVANCE: usize = 1_000;

/// State, digest, new steps, the run's end and the events that say so: all of it, or a conflict and nothing.
pub(super) async fn advance(connection: &mut SqliteConnection, advance: Advance) -> Result<Advanced, Failure> {
    if advance.schedule.len() > MAX_STEPS_PER_ADVANCE {
        let message = format!("a decision schedules at most {MAX_STEPS_PER_ADVANCE} steps");
        return Err(StoreError::Other(message).into());
    }
    let head = run::head(connection, &advance.run).await?;
    let current = head.revision == advance.revision && !head.status.is_final();
    let folds_the_log = (head.folded_seq..=head.last_seq).contains(&advance.folded_seq);
    let begins_what_is_being_stopped = head.status == RunStatus::Cancelling && !advance.schedule.is_empty();
    if !current || !folds_the_log || begins_what_is_being_stopped {
        return Ok(Advanced::Conflict);
    }
    let status = match &advance.end {
        None => head.status,
        Some((transition, _)) => head.status.next(*transition)?,
    };

    sqlx::query(
        "INSERT INTO run_state (run_id, state) VALUES (?1, ?2) ON CONFLICT (run_id) DO UPDATE SET state = excluded.state",
    )
    .bind(head.id)
    .bind(json::write(&advance.state)?)
    .execute(&mut *connection)
    .await?;
    let failure = match &advance.end {
        Some((_, Event::RunFailed { failure })) => Some(json::write(failure)?),
        _ => None,
    };
    sqlx::query(
        "UPDATE run SET revision = revision + 1, folded_seq = ?2, digest = ?3, status = ?4, failure = ?5, \
                        finished_at_ms = ?6 \
         WHERE id = ?1",
    )
    .bind(head.id)
    .bind(to_stored(advance.folded_seq))
    .bind(json::write(&advance.digest)?)
    .bind(status.as_str())
    .bind(failure)
    .bind(status.is_final().then_some(advance.at.0))
    .execute(&mut *connection)
    .await?;

    let mut events = Vec::new();
    if let Some((_, ended)) = advance.end {
        // A run that is over leaves nothing to do: workers read that their lease is gone.
        let stopped = step::cancel_open(connection, head.id, advance.at, step::Open::ScheduledAndLeased).await?;
        events.extend(stopped.into_iter().map(|key| Event::StepCancelled { key }));
        events.push(ended);
    } else {
        for (id, order) in advance.schedule {
            let key = json::clean(&order.key).into_owned();
            let begins = status == RunStatus::Running;
            if step::schedule(connection, head.id, begins, &id, order, advance.at).await? {
                events.push(Event::StepScheduled { key });
            }
        }
    }
    if !events.is_empty() {
        event::append(connection, head.id, advance.at, &events).await?;
    }
    Ok(Advanced::Committed)
}
