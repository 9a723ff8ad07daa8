//! Writes down which workers were heard of, all in one call, and learns which of them were asked to end by way of another
//! server.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;

use crate::api::MAX_LISTED_WORKERS;
use crate::app::App;

/// How often. Less than the time after which a worker that waits counts as gone.
pub(crate) const WRITE_EVERY: Duration = Duration::from_secs(10);

/// This loop in complaints.
const DOING: &str = "noting which workers were heard of";
/// A part of it.
const READING: &str = "noting how devices are";

/// The loop. Ends with the server.
pub(crate) async fn run(app: Arc<App>) {
    let mut ticks = tokio::time::interval(WRITE_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = app.shutdown.cancelled() => return,
            _ = ticks.tick() => write_down(&app).await,
        }
    }
}

async fn write_down(app: &App) {
    write_readings(app).await;
    let mut workers = app.roster.take_heard_of();
    workers.extend(app.dispatcher.waiting());
    if workers.is_empty() {
        return;
    }
    let workers: Vec<_> = workers.into_iter().collect();
    if let Err(error) = app.store.workers_seen(&workers, app.clock.now()).await {
        app.trouble.note_error::<()>(&Err(error.clone()));
        app.complaints.failed(DOING, &error);
        for worker in &workers {
            app.roster.heard_of(worker);
        }
        return;
    }
    match app.store.list_workers(MAX_LISTED_WORKERS).await {
        Ok(records) => {
            app.complaints.worked(DOING);
            for worker in app.roster.refresh(&records) {
                app.dispatcher.wake_worker(&worker);
            }
        }
        Err(error) => app.complaints.failed(DOING, &error),
    }
}

/// Writes down how devices are. What cannot be written is tried again with the next round.
async fn write_readings(app: &App) {
    let Some(watch) = app.store.watch() else { return };
    let readings = app.roster.unwritten_readings();
    if readings.is_empty() {
        return;
    }
    match watch.put_readings(readings.clone()).await {
        Ok(()) => {
            app.complaints.worked(READING);
            app.roster.readings_written(&readings);
        }
        Err(error) => {
            app.trouble.note_error::<()>(&Err(error.clone()));
            app.complaints.failed(READING, &error);
        }
    }
}
