//! Ends a try: after the report of its worker, or by the sweeper when the lease expired.

use nightshift_engine::event::Event;
use nightshift_engine::store::{Reported, TryEnd};
use nightshift_protocol::budget::{Amount, Resource};
use nightshift_protocol::id::StepId;
use nightshift_protocol::run::{RunStatus, StepStatus};
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::time::TimestampMs;

use super::admit;
use super::event_text::EventText;
use super::rows::{Place, Step};
use super::working_set::WorkingSet;
use crate::failure::Failure;
use crate::json;

/// The source of a report about the end of a try.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ReportSource<'a> {
    /// The worker, with the amounts that the try used. A late report is accepted until the step is leased again.
    Worker(&'a [Amount]),
    /// The sweeper, which must not end an extended lease.
    Sweeper,
}

/// Commits how a try ended, if the fence holds. Step, lease, reservations, run and campaign must be loaded.
pub(crate) fn end(
    set: &mut WorkingSet,
    step: &StepId,
    epoch: u64,
    end: &TryEnd,
    source: ReportSource<'_>,
    at: TimestampMs,
) -> Result<Reported, Failure> {
    let held = set.step_of(step).ok_or_else(|| Failure::not_found("step", step.as_str()))?;
    let (id, key) = (held.id, held.key.clone());
    let told = ReportPayload::of(end)?;
    let stored_epoch = i64::try_from(epoch).ok();
    let expires_at = match held.place {
        Place::Leased { epoch, expires_at, .. } if epoch == held.epoch => Some(expires_at),
        _ => None,
    };
    let fence_holds = held.status == StepStatus::Leased && stored_epoch == Some(held.epoch);
    let in_time = match (source, expires_at) {
        (_, None) => false,
        (ReportSource::Worker(_), Some(_)) => true,
        (ReportSource::Sweeper, Some(expires_at)) => expires_at <= at.0,
    };
    if !(fence_holds && in_time) {
        // The first answer to the same report may have been lost.
        let again = stored_epoch.is_some()
            && held.reported_epoch == stored_epoch
            && held.reported_digest.as_deref() == Some(told.digest.as_slice());
        return Ok(if again { Reported::Committed } else { Reported::LeaseLost });
    }
    let started_at = held.started_at.unwrap_or(at.0);
    let step = set.step_mut(id)?;
    step.changed = true;
    step.reported_epoch = stored_epoch;
    step.reported_digest = Some(told.digest.to_vec());
    set.put(id, Place::Nowhere)?;
    match source {
        ReportSource::Worker(used) => settle_reported(set, id, used)?,
        ReportSource::Sweeper => settle_lost(set, id, started_at, at)?,
    }
    match end {
        TryEnd::Completed { .. } => complete(set, id, &told.text, &key, at)?,
        TryEnd::Failed { failure } => fail(set, id, failure, told.text, at)?,
        TryEnd::Retry { failure, at: not_before } => {
            give_back(set, id, Some((failure, told.text)), *not_before, at)?;
        }
        TryEnd::Wait { failure, at: not_before } => {
            let step = set.step_mut(id)?;
            step.tries = (step.tries - 1).max(0);
            if last_code(step).as_ref() == Some(&failure.code) {
                // The log contains the wait already.
                step.failure = Some(told.text);
                give_back(set, id, None, *not_before, at)?;
            } else {
                give_back(set, id, Some((failure, told.text)), *not_before, at)?;
            }
        }
        // Stopped without a request to cancel, for example because the worker shuts down. The step has to run again.
        TryEnd::Cancelled => give_back(set, id, None, at, at)?,
    }
    Ok(Reported::Committed)
}

/// Ends the reservations of a try by its report.
///
/// Money and tokens beyond the step's own reserve belong to a model call that is still open. Unless the report says what it used, they
/// count as used, because its provider may charge for it.
fn settle_reported(set: &mut WorkingSet, step_id: i64, used: &[Amount]) -> Result<(), Failure> {
    let reserve = set.step(step_id)?.reserve.clone();
    admit::settle(set, step_id, |amount| {
        let is_of_calls = matches!(amount.resource, Resource::CostMicrousd | Resource::Tokens);
        let is_reported = used.iter().any(|used| used.resource == amount.resource);
        if is_of_calls && !is_reported {
            return amount.amount.saturating_sub(sum(&reserve, amount.resource));
        }
        sum(used, amount.resource)
    })
}

fn sum(amounts: &[Amount], resource: Resource) -> u64 {
    let of_resource = amounts.iter().filter(|amount| amount.resource == resource);
    of_resource.fold(0, |sum: u64, amount| sum.saturating_add(amount.amount))
}

/// Ends the reservations of a try without a report.
///
/// Device time counts for as long as the lease was held. An incomplete attempt does not count. All other reserved
/// amounts count as used, because they may have been.
pub(crate) fn settle_lost(set: &mut WorkingSet, step_id: i64, started_at: i64, at: TimestampMs) -> Result<(), Failure> {
    let held_ms = at.since_ms(TimestampMs(started_at));
    admit::settle(set, step_id, |amount| match amount.resource {
        Resource::DeviceMs => held_ms,
        Resource::Attempts | Resource::WallMs => 0,
        Resource::CostMicrousd | Resource::Tokens => amount.amount,
    })
}

/// Schedules a step again whose try was lost with its server. The try does not count.
pub(crate) fn free(set: &mut WorkingSet, step_id: i64, at: TimestampMs) -> Result<(), Failure> {
    let step = set.step_mut(step_id)?;
    let started_at = step.started_at.unwrap_or(at.0);
    step.tries = (step.tries - 1).max(0);
    step.changed = true;
    set.put(step_id, Place::Nowhere)?;
    settle_lost(set, step_id, started_at, at)?;
    give_back(set, step_id, None, at, at)
}

fn complete(set: &mut WorkingSet, step_id: i64, output: &str, key: &str, at: TimestampMs) -> Result<(), Failure> {
    let run_id = set.step(step_id)?.run_id;
    let seq = set.append(run_id, at.0, EventText::step_completed(key, output)?)?;
    let step = set.step_mut(step_id)?;
    step.status = StepStatus::Completed;
    step.output_seq = Some(seq);
    step.failure = None;
    step.finished_at = Some(at.0);
    Ok(())
}

fn fail(
    set: &mut WorkingSet,
    step_id: i64,
    failure: &StepFailure,
    text: String,
    at: TimestampMs,
) -> Result<(), Failure> {
    let step = set.step_mut(step_id)?;
    step.status = StepStatus::Failed;
    step.failure = Some(text);
    step.finished_at = Some(at.0);
    let (run_id, key) = (step.run_id, step.key.clone());
    set.append(run_id, at.0, EventText::of(&Event::StepFailed { key, failure: failure.clone() })?)?;
    Ok(())
}

/// Returns the code of the last failure of a step.
fn last_code(step: &Step) -> Option<String> {
    json::read::<StepFailure>(step.failure.as_deref()?).ok().map(|failure| failure.code)
}

/// Schedules the step again, now or later. If its run is being cancelled, the step ends as cancelled instead.
///
/// A failure is stored and appended to the log.
fn give_back(
    set: &mut WorkingSet,
    step_id: i64,
    failure: Option<(&StepFailure, String)>,
    not_before: TimestampMs,
    at: TimestampMs,
) -> Result<(), Failure> {
    let run_id = set.step(step_id)?.run_id;
    let cancelled = set.run(run_id)?.status == RunStatus::Cancelling;
    let step = set.step_mut(step_id)?;
    step.status = if cancelled { StepStatus::Cancelled } else { StepStatus::Scheduled };
    step.finished_at = cancelled.then_some(at.0);
    let key = step.key.clone();
    let mut retried = None;
    if let Some((failure, text)) = failure {
        step.failure = Some(text);
        retried = Some(failure);
    }
    if cancelled {
        set.append(run_id, at.0, EventText::of(&Event::StepCancelled { key })?)?;
        return Ok(());
    }
    if let Some(failure) = retried {
        let event = Event::StepRetried { key, failure: failure.clone(), at: not_before };
        set.append(run_id, at.0, EventText::of(&event)?)?;
    }
    if not_before > at {
        set.put(step_id, Place::Timer { not_before: not_before.0, for_window: false })
    } else {
        admit::admit(set, step_id, at)
    }
}

/// The payload of a report as text, with its digest.
struct ReportPayload {
    text: String,
    digest: [u8; 32],
}

impl ReportPayload {
    /// Omits the time of the next try, because each copy chooses it again with new jitter.
    fn of(end: &TryEnd) -> Result<Self, Failure> {
        let (kind, text) = match end {
            TryEnd::Completed { output } => ("completed", json::write(output)?),
            TryEnd::Retry { failure, .. } => ("retry", json::write(failure)?),
            TryEnd::Wait { failure, .. } => ("wait", json::write(failure)?),
            TryEnd::Failed { failure } => ("failed", json::write(failure)?),
            TryEnd::Cancelled => ("cancelled", String::new()),
        };
        let mut hasher = blake3::Hasher::new();
        hasher.update(kind.as_bytes()).update(b"\n").update(text.as_bytes());
        Ok(Self { digest: *hasher.finalize().as_bytes(), text })
    }
}
