//! Ends leases that ran out and fires timers that are due. It sleeps until the agenda says otherwise.

use std::sync::Arc;
use std::time::Duration;

use nightshift_engine::store::StoreError;
use nightshift_engine::sweeper::Sweeper;

use crate::agenda::Due;
use crate::app::App;
use crate::backoff::Backoff;

/// Shortest time between two rounds: what comes close together is done together, and a timer that is due but cannot be
/// fired must not spin.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);

/// This loop in complaints.
const DOING: &str = "sweeping leases and timers";

/// The loop. Ends with the server.
pub(crate) async fn run(app: Arc<App>) {
    let sweeper = Sweeper::new(app.store.clone(), app.clock.clone(), app.random.clone());
    let mut backoff = Backoff::default();
    // What an earlier life left is looked at once, at the start.
    app.agenda.leases_ran_out();
    app.agenda.timers_changed();
    loop {
        let due = app.agenda.take(app.clock.now());
        let pause = match round(&app, &sweeper, due).await {
            Ok(Some(pause)) => {
                backoff.succeeded();
                app.complaints.worked(DOING);
                pause
            }
            Ok(None) => pause_until(&app, due),
            Err(error) => {
                app.trouble.note_error::<()>(&Err(error.clone()));
                app.complaints.failed(DOING, &error);
                app.agenda.leases_ran_out();
                app.agenda.timers_changed();
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
            () = app.agenda.changed() => {}
            () = tokio::time::sleep(pause.saturating_sub(SHORTEST_PAUSE)) => {}
        }
    }
}

/// One round, when something is due. How long to pause then.
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
        app.trouble.note(&Ok(()));
    }
    if swept.expired > 0 {
        app.wake.look_for_runs();
    }
    app.agenda.next_timer(swept.next_timer);
    if swept.more {
        app.agenda.leases_ran_out();
        app.agenda.timers_changed();
        return Ok(Some(Duration::ZERO));
    }
    let next = due.next.into_iter().chain(swept.next_timer).min();
    Ok(Some(pause_until(app, Due { next, ..due })))
}

/// At most one pulse: the wall clock may be set while we sleep.
fn pause_until(app: &App, due: Due) -> Duration {
    due.next.map_or(app.config.pulse(), |next| {
        Duration::from_millis(next.since_ms(app.clock.now())).clamp(SHORTEST_PAUSE, app.config.pulse())
    })
}
