//! Transitions of runs: pause, resume and cancel a loaded run with its open steps.

use nightshift_engine::event::Event;
use nightshift_protocol::run::{IllegalTransition, RunStatus, RunTransition, StepStatus};
use nightshift_protocol::time::TimestampMs;

use crate::failure::Failure;
use crate::json;
use crate::scheduling::admit;
use crate::scheduling::cancel_open;
use crate::scheduling::event_text::EventText;
use crate::scheduling::rows::Place;
use crate::scheduling::working_set::WorkingSet;

/// Pauses, resumes or cancels a loaded run with its open steps. Returns its new status.
pub(crate) fn apply(
    set: &mut WorkingSet,
    run_id: i64,
    transition: RunTransition,
    by: Option<&str>,
    at: TimestampMs,
) -> Result<RunStatus, Failure> {
    let before = set.run(run_id)?.status;
    let by = by.map(|by| json::clean(by).into_owned());
    let event = match transition {
        RunTransition::Pause => Event::RunPaused { by },
        RunTransition::Resume => Event::RunResumed { by },
        RunTransition::Cancel => Event::RunCancelRequested { by },
        RunTransition::CancelFinished | RunTransition::Complete | RunTransition::Fail | RunTransition::Retry => {
            return Err(IllegalTransition { from: before, transition }.into());
        }
    };
    let status = before.next(transition)?;
    if status == before {
        return Ok(status);
    }
    set_status(set, run_id, status)?;
    set.append(run_id, at.0, EventText::of(&event)?)?;
    match status {
        RunStatus::Paused => take_out(set, run_id)?,
        RunStatus::Running => ask_again(set, run_id, at)?,
        // Workers stop the leased steps first.
        _ => drop(cancel_open(set, run_id, |status| status == StepStatus::Scheduled, at)?),
    }
    Ok(status)
}

/// Returns the loaded steps in such a place, oldest first.
pub(crate) fn in_place(set: &WorkingSet, wanted: impl Fn(&Place) -> bool) -> Vec<i64> {
    let mut ids: Vec<i64> = set.steps.values().filter(|step| wanted(&step.place)).map(|step| step.id).collect();
    ids.sort_unstable();
    ids
}

pub(crate) fn set_status(set: &mut WorkingSet, run_id: i64, status: RunStatus) -> Result<(), Failure> {
    let run = set.run_mut(run_id)?;
    run.status = status;
    run.revision += 1;
    run.changed = true;
    Ok(())
}

/// Removes ready steps from the list and releases their reservations.
///
/// Timers continue. Blocked steps are not reconsidered while the run is paused.
fn take_out(set: &mut WorkingSet, run_id: i64) -> Result<(), Failure> {
    for id in in_place(set, |place| matches!(place, Place::Ready { .. })) {
        if set.step(id)?.run_id == run_id {
            admit::release(set, id)?;
            set.put(id, Place::Nowhere)?;
        }
    }
    Ok(())
}

/// Admits every scheduled step of a run that waits for no timer.
fn ask_again(set: &mut WorkingSet, run_id: i64, at: TimestampMs) -> Result<(), Failure> {
    for id in in_place(set, |place| matches!(place, Place::Nowhere | Place::Blocked { .. })) {
        let step = set.step(id)?;
        if step.run_id == run_id && step.status == StepStatus::Scheduled {
            admit::admit(set, id, at)?;
        }
    }
    Ok(())
}
