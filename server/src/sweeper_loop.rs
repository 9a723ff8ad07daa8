//! Ends expired leases and fires due timers. It sleeps until its schedule has work.

use std::sync::Arc;
use std::time::Duration;

use nightshift_engine::store::{Store, StoreError};
use nightshift_engine::sweeper::Sweeper;

use crate::backoff::Backoff;
use crate::driving::Driving;
use crate::shared::Shared;
use crate::sweeper_schedule::Due;

/// Minimum pause between two rounds, which batches near events. It also keeps a due timer that cannot fire from causing
/// a busy loop.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);

/// Name of this loop in error logs.
const DOING: &str = "sweeping leases and timers";
/// Name of the end of single leases in error logs.
const ENDING_LEASES: &str = "ending expired leases";

/// Runs the loop until the server ends.
pub(crate) async fn run(driving: Arc<Driving>) {
    let Driving { shared, dispatch, .. } = &*driving;
    let Store { servers, leases, queue, .. } = shared.store.clone();
    let sweeper = Sweeper::new(servers, leases, queue, shared.clock.clone(), shared.random.clone());
    let mut backoff = Backoff::default();
    // Check the leases of earlier servers once at the start.
    dispatch.sweeper_schedule.leases_ran_out();
    dispatch.sweeper_schedule.timers_changed();
    loop {
        let due = dispatch.sweeper_schedule.take(shared.clock.now());
        let pause = match round(&driving, &sweeper, due).await {
            Ok(Some(pause)) => {
                backoff.succeeded();
                shared.error_log.worked(DOING);
                pause
            }
            Ok(None) => pause_until(shared, due),
            Err(error) => {
                shared.store_health.note_error::<()>(&Err(error.clone()));
                shared.error_log.failed(DOING, &error);
                dispatch.sweeper_schedule.leases_ran_out();
                dispatch.sweeper_schedule.timers_changed();
                let pause = backoff.failed();
                tokio::select! {
                    biased;
                    () = shared.shutdown.cancelled() => return,
                    () = tokio::time::sleep(pause) => continue,
                }
            }
        };
        tokio::select! {
            biased;
            () = shared.shutdown.cancelled() => return,
            () = tokio::time::sleep(SHORTEST_PAUSE) => {}
        }
        tokio::select! {
            biased;
            () = shared.shutdown.cancelled() => return,
            () = dispatch.sweeper_schedule.changed() => {}
            () = tokio::time::sleep(pause.saturating_sub(SHORTEST_PAUSE)) => {}
        }
    }
}

/// Runs one round if work is due. Returns the pause after it.
async fn round(driving: &Driving, sweeper: &Sweeper, due: Due) -> Result<Option<Duration>, StoreError> {
    let Driving { shared, dispatch, .. } = driving;
    if !due.leases && !due.timers {
        return Ok(None);
    }
    let swept = sweeper.sweep().await?;
    if swept.reaped > 0 || swept.expired > 0 || swept.fired > 0 {
        tracing::info!(
            leases.reaped = swept.reaped,
            leases.expired = swept.expired,
            timers.fired = swept.fired,
            "steps are ready again"
        );
        shared.store_health.note(&Ok(()));
    }
    if swept.expired > 0 {
        driving.wake.look_for_runs();
    }
    dispatch.sweeper_schedule.next_timer(swept.next_timer);
    // The next heartbeat finds these leases again.
    match &swept.lease_error {
        Some(error) => {
            shared.store_health.note_error::<()>(&Err(error.clone()));
            shared.error_log.failed(ENDING_LEASES, error);
        }
        None => shared.error_log.worked(ENDING_LEASES),
    }
    if swept.more {
        dispatch.sweeper_schedule.leases_ran_out();
        dispatch.sweeper_schedule.timers_changed();
        return Ok(Some(Duration::ZERO));
    }
    let next = due.next.into_iter().chain(swept.next_timer).min();
    Ok(Some(pause_until(shared, Due { next, ..due })))
}

/// Pauses for at most one heartbeat interval, because the wall clock may be changed during the sleep.
fn pause_until(shared: &Shared, due: Due) -> Duration {
    due.next.map_or(shared.config.pulse(), |next| {
        Duration::from_millis(next.since_ms(shared.clock.now())).clamp(SHORTEST_PAUSE, shared.config.pulse())
    })
}
