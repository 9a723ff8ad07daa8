//! Commits a decision of the driver.

use nightshift_engine::event::Event;
use nightshift_engine::store::{Advance, Advanced, StoreError};
use nightshift_engine::workflow::{StatePart, StepOrder, StoredState};
use nightshift_protocol::budget::Amount;
use nightshift_protocol::id::StepId;
use nightshift_protocol::run::{RunStatus, StepStatus};
use nightshift_protocol::time::TimestampMs;

use super::admit;
use super::event_text::EventText;
use super::rows::{Decided, DecidedPart, DecidedState, Details, Fresh, Input, Place, Step};
use super::try_end::settle_lost;
use super::working_set::WorkingSet;
use crate::failure::Failure;
use crate::json;
use crate::number::{from_stored, to_stored};

/// Maximum number of steps that one decision schedules.
pub const MAX_STEPS_PER_ADVANCE: usize = 1_000;

/// Checks the size of a decision.
pub(crate) fn check(advance: &Advance) -> Result<(), StoreError> {
    if advance.schedule.len() <= MAX_STEPS_PER_ADVANCE {
        return Ok(());
    }
    Err(StoreError::Other(format!("a decision schedules at most {MAX_STEPS_PER_ADVANCE} steps")))
}

/// Applies a decision: state, digest, new steps, the run's end and their events. It applies completely, or not at all
/// on a conflict.
///
/// The run, its campaign and the existing wanted keys must be loaded; for a decision that ends the run, also its open
/// steps. `place` is the position of the decision in the flush: group, and change in the group.
pub(crate) fn advance(set: &mut WorkingSet, advance: &Advance, place: (usize, usize)) -> Result<Advanced, Failure> {
    let run_id =
        *set.run_ids.get(advance.run.as_str()).ok_or_else(|| Failure::not_found("run", advance.run.as_str()))?;
    let head = set.run(run_id)?;
    if let Some(fence) = &advance.fence {
        let mine = head.owner.as_deref() == Some(fence.server.as_str()) && from_stored(head.owner_epoch) == fence.epoch;
        if !mine {
            return Ok(Advanced::NotOwner);
        }
    }
    let current = from_stored(head.revision) == advance.revision && !head.status.is_final();
    let folds_the_log = (from_stored(head.folded_seq)..=from_stored(head.last_seq)).contains(&advance.folded_seq);
    let is_the_log_meant = advance.expects_last_seq.is_none_or(|seq| seq == from_stored(head.last_seq));
    let begins_what_is_being_stopped = head.status == RunStatus::Cancelling && !advance.schedule.is_empty();
    if !current || !folds_the_log || !is_the_log_meant || begins_what_is_being_stopped {
        return Ok(Advanced::Conflict);
    }
    let status = match &advance.end {
        None => head.status,
        Some((transition, _)) => head.status.next(*transition)?,
    };
    let failure = match &advance.end {
        Some((_, Event::RunFailed { failure })) => Some(json::write(failure)?),
        _ => None,
    };
    let awaits =
        if advance.end.is_some() || advance.awaits.is_empty() { None } else { Some(json::write(&advance.awaits)?) };
    let state = advance.state.as_ref().map(texts).transpose()?;
    let decided = Decided { state, digest: json::write(&advance.digest)?, awaits };

    let run = set.run_mut(run_id)?;
    run.revision += 1;
    run.folded_seq = to_stored(advance.folded_seq);
    run.status = status;
    run.failure = failure;
    run.finished_at = status.is_final().then_some(advance.at.0);
    run.decided = Some(decided);
    run.changed = true;
    if let Some((_, ended)) = &advance.end {
        // An ended run has no open steps. Workers learn that their leases are lost.
        cancel_open(set, run_id, |_| true, advance.at)?;
        set.append(run_id, advance.at.0, EventText::of(ended)?)?;
    } else {
        let mut scheduled = Vec::with_capacity(advance.schedule.len());
        for (index, (id, order)) in advance.schedule.iter().enumerate() {
            let input = Input::Ordered(place.0, place.1, index);
            scheduled.extend(schedule(set, run_id, id, order, input, advance.at)?);
        }
        for step_id in scheduled {
            admit::admit(set, step_id, advance.at)?;
        }
    }
    let run = set.run(run_id)?;
    Ok(Advanced::Committed { revision: from_stored(run.revision), last_seq: from_stored(run.last_seq) })
}

/// Serializes a state.
fn texts(state: &StoredState) -> Result<DecidedState, Failure> {
    let part = |part: &StatePart| {
        Ok(DecidedPart { field: part.field.clone(), number: part.number, value: json::write_packed(&part.value)? })
    };
    let parts: Result<Vec<DecidedPart>, Failure> = state.parts.iter().map(part).collect();
    Ok(DecidedState { head: json::write(&state.head)?, parts: parts? })
}

/// Adds a step. Returns none if the key exists, and leaves that step unchanged.
fn schedule(
    set: &mut WorkingSet,
    run_id: i64,
    id: &StepId,
    order: &StepOrder,
    input: Input,
    at: TimestampMs,
) -> Result<Option<i64>, Failure> {
    let key = json::clean(&order.key).into_owned();
    if !set.taken_keys.insert((run_id, key.clone())) {
        return Ok(None);
    }
    let route = order.needs.route();
    let route_id =
        *set.route_ids.get(&route).ok_or_else(|| Failure::unreadable("a route", &"it was not made before its step"))?;
    let step_id =
        set.free_step_ids.pop().ok_or_else(|| Failure::unreadable("a step", &"no id was set aside for it"))?;
    let reserve = merged(&order.reserve);
    let stored_input = json::write_packed(&order.input)?;
    let stored_reserve = if reserve.is_empty() { None } else { Some(json::write(&reserve)?) };
    let seq = set.append(run_id, at.0, EventText::of(&Event::StepScheduled { key: key.clone() })?)?;
    let run = set.run(run_id)?;
    let step = Step {
        id: step_id,
        public_id: id.clone(),
        run_id,
        campaign_id: run.campaign_id,
        key,
        route_id,
        status: StepStatus::Scheduled,
        epoch: 0,
        tries: 0,
        timeout_ms: order.timeout_ms,
        cost_ms: order.cost_ms,
        reserve,
        worker: None,
        output_seq: None,
        failure: None,
        started_at: None,
        finished_at: None,
        reported_epoch: None,
        reported_digest: None,
        place_before: Place::Nowhere,
        place: Place::Nowhere,
        reserved_before: Vec::new(),
        reserved: Vec::new(),
        fresh: Some(Fresh { input: stored_input, reserve: stored_reserve, scheduled_seq: seq }),
        details: Some(Details {
            run: run.public_id.clone(),
            kind: json::clean(&order.kind).into_owned(),
            retry: order.retry,
            scheduled_at: at,
            input,
        }),
        changed: true,
    };
    set.add_step(step);
    Ok(Some(step_id))
}

/// Cancels the loaded open steps of a run that have the wanted status, each with an event, in the order of their
/// scheduling. Returns their keys.
pub(crate) fn cancel_open(
    set: &mut WorkingSet,
    run_id: i64,
    wanted: impl Fn(StepStatus) -> bool,
    at: TimestampMs,
) -> Result<Vec<String>, Failure> {
    let open =
        set.steps.values().filter(|step| step.run_id == run_id && !step.status.is_final() && wanted(step.status));
    let mut ids: Vec<i64> = open.map(|step| step.id).collect();
    ids.sort_unstable();
    let mut keys = Vec::with_capacity(ids.len());
    for id in ids {
        let step = set.step_mut(id)?;
        let began = (step.status == StepStatus::Leased).then_some(step.started_at.unwrap_or(at.0));
        step.status = StepStatus::Cancelled;
        step.finished_at = Some(at.0);
        step.changed = true;
        let key = step.key.clone();
        set.put(id, Place::Nowhere)?;
        match began {
            Some(started_at) => settle_lost(set, id, started_at, at)?,
            None => admit::release(set, id)?,
        }
        set.append(run_id, at.0, EventText::of(&Event::StepCancelled { key: key.clone() })?)?;
        keys.push(key);
    }
    Ok(keys)
}

/// Merges amounts to one per resource.
fn merged(wanted: &[Amount]) -> Vec<Amount> {
    let mut amounts: Vec<Amount> = Vec::with_capacity(wanted.len());
    for want in wanted {
        match amounts.iter_mut().find(|amount| amount.resource == want.resource) {
            Some(amount) => amount.amount = amount.amount.saturating_add(want.amount),
            None => amounts.push(*want),
        }
    }
    amounts
}
