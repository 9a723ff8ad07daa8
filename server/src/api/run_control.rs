//! Control of a run: status, retry, signals, priority.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use nightshift_protocol::api::{Control, ControlAction, Controlled, Retry, SetPriority};
use nightshift_protocol::campaign::{MAX_PRIORITY, MIN_PRIORITY};
use nightshift_protocol::id::RunId;
use nightshift_protocol::run::{RunStatus, RunTransition};
use nightshift_protocol::signal::{MAX_HINT_CHARS, Signal};
use tracing::Instrument as _;

use crate::actor::Actor;
use crate::api::idempotency::{digest, idempotency_key};
use crate::driving::Driving;
use crate::error::ApiFailure;
use crate::extract::{Body, IdPath};
use crate::shared::Shared;

/// Maximum length of the step key of a retry.
const MAX_STEP_KEY_CHARS: usize = 200;

/// Pauses, resumes or cancels a run.
pub(crate) async fn control(
    State(driving): State<Arc<Driving>>,
    IdPath(id): IdPath<RunId>,
    actor: Actor,
    Body(control): Body<Control>,
) -> Result<Json<Controlled>, ApiFailure> {
    let status = driving.control(&id, transition(control.action), actor.name()).await?;
    Ok(Json(Controlled { runs: vec![(id, status)] }))
}

/// Schedules failed steps again.
pub(crate) async fn retry(
    State(shared): State<Arc<Shared>>,
    State(driving): State<Arc<Driving>>,
    IdPath(id): IdPath<RunId>,
    actor: Actor,
    Body(retry): Body<Retry>,
) -> Result<Json<Controlled>, ApiFailure> {
    let key = retry.step_key.as_deref();
    if key.is_some_and(|key| key.chars().count() > MAX_STEP_KEY_CHARS) {
        return Err(ApiFailure::bad(
            "request.invalid",
            format!("`step_key` has at most {MAX_STEP_KEY_CHARS} characters"),
        ));
    }
    let result = shared.store.run_control.retry_run(&id, key, Some(actor.name()), shared.clock.now()).await;
    shared.store_health.note(&result);
    let keys = result?;
    tracing::info!(run.id = %id, steps = keys.len(), "failed steps of a run were scheduled again");
    driving.wake.run_changed(&id);
    Ok(Json(Controlled { runs: vec![(id, RunStatus::Running)] }))
}

/// Sends a signal to a run: a hint, or the approval of a gate.
pub(crate) async fn signal(
    State(shared): State<Arc<Shared>>,
    State(driving): State<Arc<Driving>>,
    IdPath(id): IdPath<RunId>,
    actor: Actor,
    headers: HeaderMap,
    Body(signal): Body<Signal>,
) -> Result<StatusCode, ApiFailure> {
    examine_signal(&signal)?;
    let key = match idempotency_key(&headers)? {
        // The same key for another run is another request.
        Some(key) => Some((key, digest(&(&id, &signal))?)),
        None => None,
    };
    let result = shared.store.run_control.signal_run(&id, signal, Some(actor.name()), key, shared.clock.now()).await;
    shared.store_health.note_error(&result);
    result?;
    tracing::info!(run.id = %id, by = actor.name(), "a signal was sent to a run");
    driving.wake.run_changed(&id);
    Ok(StatusCode::NO_CONTENT)
}

/// Refuses a signal that no prompt could contain.
pub(crate) fn examine_signal(signal: &Signal) -> Result<(), ApiFailure> {
    let text = match signal {
        Signal::Hint { text } => text,
        Signal::Rejected { reason, .. } => reason,
        Signal::Approved { .. } => return Ok(()),
    };
    if text.trim().is_empty() || text.chars().count() > MAX_HINT_CHARS {
        return Err(ApiFailure::bad(
            "signal.invalid_text",
            format!("a hint or a reason has 1 to {MAX_HINT_CHARS} characters, not {}", text.trim().chars().count()),
        ));
    }
    Ok(())
}

/// Changes the priority of a run's steps.
pub(crate) async fn prioritize(
    State(shared): State<Arc<Shared>>,
    IdPath(id): IdPath<RunId>,
    Body(SetPriority { priority }): Body<SetPriority>,
) -> Result<StatusCode, ApiFailure> {
    examine_priority(priority)?;
    let result = shared.store.run_control.set_priority(&id, priority, shared.clock.now()).await;
    shared.store_health.note_error(&result);
    result?;
    Ok(StatusCode::NO_CONTENT)
}

/// Returns the transition of an action.
pub(crate) fn transition(action: ControlAction) -> RunTransition {
    match action {
        ControlAction::Pause => RunTransition::Pause,
        ControlAction::Resume => RunTransition::Resume,
        ControlAction::Cancel => RunTransition::Cancel,
    }
}

/// Carries out a call that changes many runs, to its end even if the call times out or its client disconnects.
pub(crate) async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, ApiFailure>> + Send + 'static,
) -> Result<T, ApiFailure> {
    let done = tokio::spawn(work.in_current_span()).await;
    done.unwrap_or_else(|error| Err(ApiFailure::internal("internal.task", error.to_string())))
}

/// Refuses a priority out of bounds.
pub(crate) fn examine_priority(priority: i32) -> Result<(), ApiFailure> {
    if !(MIN_PRIORITY..=MAX_PRIORITY).contains(&priority) {
        return Err(ApiFailure::bad(
            "campaign.invalid_priority",
            format!("a priority is from {MIN_PRIORITY} to {MAX_PRIORITY}, not {priority}"),
        ));
    }
    Ok(())
}
