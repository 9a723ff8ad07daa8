//! Ends expired leases and fires due timers. It sleeps until its schedule has work.

use std::sync::Arc;
use std::time::Duration;

use nightshift_engine::store::{Store, StoreError};
use nightshift_engine::sweeper::Sweeper;

use crate::app::App;
use crate::backoff::Backoff;
use crate::sweeper_schedule::Due;

/// Minimum pause between two rounds, which batches near events. It also keeps a due timer that cannot fire from causing
/// a busy loop.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);

/// Name of this loop in error logs.
const DOING: &str = "sweeping leases and timers";

/// Runs the loop until the server ends.
pub(crate) async fn run(app: Arc<App>) {
    let Store { servers, leases, queue, .. } = app.store.clone();
    let sweeper = Sweeper::new(servers, leases, queue, app.clock.clone(), app.random.clone());
    let mut backoff = Backoff::default();
    // Check the leases of earlier servers once at the start.
    app.sweeper_schedule.leases_ran_out();
    app.sweeper_schedule.timers_changed();
    loop {
        let due = app.sweeper_schedule.take(app.clock.now());
        let pause = match round(&app, &sweeper, due).await {
            Ok(Some(pause)) => {
                backoff.succeeded();
                app.error_log.worked(DOING);
                pause
            }
            Ok(None) => pause_until(&app, due),
            Err(error) => {
                app.store_health.note_error::<()>(&Err(error.clone()));
                app.error_log.failed(DOING, &error);
                app.sweeper_schedule.leases_ran_out();
                app.sweeper_schedule.timers_changed();
                let pause = backoff.failed();
                tokio::select! {
                    biased;
                    () = app.shutdown.cancelled() => return,
                    () = tokio::time::sleep(pause) => continue,
                }
            }
        };
        tokio::select! {
            biased;
            () = app.shutdown.cancelled() => return,
            () = tokio::time::sleep(SHORTEST_PAUSE) => {}
        }
        tokio::select! {
            biased;
            () = app.shutdown.cancelled() => return,
            () = app.sweeper_schedule.changed() => {}
            () = tokio::time::sleep(pause.saturating_sub(SHORTEST_PAUSE)) => {}
        }
    }
}

/// Runs one round if work is due. Returns the pause after it.
async fn round(app: &App, sweeper: &Sweeper, due: Due) -> Result<Option<Duration>, StoreError> {
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
        app.store_health.note(&Ok(()));
    }
    if swept.expired > 0 {
        app.wake.look_for_runs();
    }
    app.sweeper_schedule.next_timer(swept.next_timer);
    if swept.more {
        app.sweeper_schedule.leases_ran_out();
        app.sweeper_schedule.timers_changed();
        return Ok(Some(Duration::ZERO));
    }
    let next = due.next.into_iter().chain(swept.next_timer).min();
    Ok(Some(pause_until(app, Due { next, ..due })))
}

/// Pauses for at most one heartbeat interval, because the wall clock may be changed during the sleep.
fn pause_until(app: &App, due: Due) -> Duration {
    due.next.map_or(app.config.pulse(), |next| {
        Duration::from_millis(next.since_ms(app.clock.now())).clamp(SHORTEST_PAUSE, app.config.pulse())
    })
}
