//! Controls runs: pause, resume, cancel, retry, change priority.

use nightshift_engine::event::Event;
use nightshift_protocol::id::RunId;
use nightshift_protocol::run::{RunStatus, RunTransition, StepStatus};
use nightshift_protocol::time::TimestampMs;

use super::transition::{apply, in_place, set_status};
use super::{handover, request, run};
use crate::failure::Failure;
use crate::json;
use crate::scheduling::admit;
use crate::scheduling::event_text::EventText;
use crate::scheduling::locked_rows::{LoadRequest, LockedRows};
use crate::scheduling::rows::Place;
use crate::scheduling::working_set::WorkingSet;
use crate::transaction::Transaction;
use crate::value::values;

/// Steps to retry: failed ones (all or one), and those that were cancelled because the run failed.
const TO_RETRY: &str = "SELECT id, key FROM step WHERE run_id = $1 \
     AND (status = 'cancelled' OR (status = 'failed' AND (CAST($2 AS TEXT) IS NULL OR key = $2))) ORDER BY id";

/// Pauses, resumes or cancels a run. Every change of status increments the revision, so that a decision based on the
/// old status is made again.
pub(crate) async fn control(
    transaction: &mut Transaction<'_>,
    run: &RunId,
    transition: RunTransition,
    by: Option<&str>,
    at: TimestampMs,
) -> Result<RunStatus, Failure> {
    let wanted = LoadRequest { runs: vec![run.as_str().to_owned()], open_steps: true, ..LoadRequest::default() };
    let mut held = LockedRows::load(transaction, wanted).await?;
    let run_id = locked_run_id(&held.set, run)?;
    handover::refuse_if_handed_over(transaction.connection, run_id).await?;
    if transition == RunTransition::Resume {
        request::renew(transaction.connection, run_id, at).await?;
    }
    let status = apply(&mut held.set, run_id, transition, by, at)?;
    held.write(transaction, at).await?;
    Ok(status)
}

/// Schedules failed steps again (all or one), and the steps that were cancelled because the run failed.
pub(crate) async fn retry(
    transaction: &mut Transaction<'_>,
    run: &RunId,
    key: Option<&str>,
    by: Option<&str>,
    at: TimestampMs,
) -> Result<Vec<String>, Failure> {
    let connection = &mut *transaction.connection;
    let failed = run::head(connection, run).await?;
    handover::refuse_if_handed_over(connection, failed.id).await?;
    failed.status.next(RunTransition::Retry)?;
    let key = key.map(json::clean);
    if let Some(key) = &key {
        let step = connection
            .fetch_optional(
                "SELECT id FROM step WHERE run_id = $1 AND key = $2 AND status = 'failed'",
                values![failed.id, key.as_ref()],
            )
            .await?;
        step.ok_or_else(|| Failure::not_found("failed step", key.as_ref()))?;
    }
    let rows = connection.fetch_all(TO_RETRY, values![failed.id, key.map(std::borrow::Cow::into_owned)]).await?;
    let mut ids = Vec::with_capacity(rows.len());
    let mut keys = Vec::with_capacity(rows.len());
    for row in &rows {
        ids.push(row.i64(0)?);
        keys.push(row.text(1)?);
    }
    let wanted = LoadRequest { run_ids: vec![failed.id], step_ids: ids.clone(), ..LoadRequest::default() };
    let mut held = LockedRows::load(transaction, wanted).await?;
    // Check again under the lock: the run may have been retried or handed over in between.
    handover::refuse_if_handed_over(transaction.connection, failed.id).await?;
    let status = held.set.run(failed.id)?.status.next(RunTransition::Retry)?;
    // Expired requests are replaced by new ones. Other requests get their full time again.
    let expired = "DELETE FROM model_request WHERE run_id = $1 AND answered_at_ms IS NULL AND deadline_ms <= $2";
    transaction.connection.execute(expired, values![failed.id, at.0]).await?;
    request::renew(transaction.connection, failed.id, at).await?;
    let set = &mut held.set;
    for id in &ids {
        let step = set.step_mut(*id)?;
        step.status = StepStatus::Scheduled;
        step.tries = 0;
        step.failure = None;
        step.finished_at = None;
        step.changed = true;
    }
    set_status(set, failed.id, status)?;
    let run = set.run_mut(failed.id)?;
    run.failure = None;
    run.finished_at = None;
    let by = by.map(|by| json::clean(by).into_owned());
    set.append(failed.id, at.0, EventText::of(&Event::RunRetried { keys: keys.clone(), by })?)?;
    for id in ids {
        admit::admit(set, id, at)?;
    }
    held.write(transaction, at).await?;
    Ok(keys)
}

/// Changes the priority of a run's steps. Ready steps are admitted again and get another rank.
pub(crate) async fn set_priority(
    transaction: &mut Transaction<'_>,
    run: &RunId,
    priority: i32,
    at: TimestampMs,
) -> Result<(), Failure> {
    let moved = run::head(transaction.connection, run).await?;
    if moved.status.is_final() {
        let again = if moved.status == RunStatus::Failed { ": retry it first" } else { "" };
        let status = moved.status.as_str();
        let message = format!("{run} is {status}: it has no steps left for which a priority has an effect{again}");
        return Err(Failure::refused("run.over", message));
    }
    transaction
        .connection
        .execute("UPDATE run SET priority = $2 WHERE id = $1", values![moved.id, i64::from(priority)])
        .await?;
    if moved.status != RunStatus::Running {
        return Ok(());
    }
    let wanted = LoadRequest { run_ids: vec![moved.id], open_steps: true, ..LoadRequest::default() };
    let mut held = LockedRows::load(transaction, wanted).await?;
    for id in in_place(&held.set, |place| matches!(place, Place::Ready { .. })) {
        admit::admit(&mut held.set, id, at)?;
    }
    held.write(transaction, at).await?;
    Ok(())
}

/// Returns the internal key of a requested run.
pub(crate) fn locked_run_id(set: &WorkingSet, run: &RunId) -> Result<i64, Failure> {
    set.run_ids.get(run.as_str()).copied().ok_or_else(|| Failure::not_found("run", run.as_str()))
}
