//! Stores which workers were seen, in one call, and learns which of them another server asked to drain.

use std::sync::Arc;

use tokio::time::MissedTickBehavior;

use crate::app::App;
use crate::worker_registry::{MAX_LISTED_WORKERS, WRITE_EVERY};

/// Name of this loop in error logs.
const DOING: &str = "recording which workers were seen";
/// Name of the device readings in error logs.
const READING: &str = "storing device readings";

/// Runs the loop until the server ends.
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
    let mut workers = app.worker_registry.take_seen();
    workers.extend(app.dispatcher.waiting());
    if workers.is_empty() {
        return;
    }
    let workers: Vec<_> = workers.into_iter().collect();
    if let Err(error) = app.store.workers.workers_seen(&workers, app.clock.now()).await {
        app.store_health.note_error::<()>(&Err(error.clone()));
        app.error_log.failed(DOING, &error);
        for worker in &workers {
            app.worker_registry.mark_seen(worker);
        }
        return;
    }
    match app.store.workers.list_workers(MAX_LISTED_WORKERS).await {
        Ok(records) => {
            app.error_log.worked(DOING);
            for worker in app.worker_registry.refresh(&records) {
                app.dispatcher.wake_worker(&worker);
            }
        }
        Err(error) => app.error_log.failed(DOING, &error),
    }
}

/// Stores device readings. The next round retries a failed write.
async fn write_readings(app: &App) {
    let readings = app.worker_registry.unwritten_readings();
    if readings.is_empty() {
        return;
    }
    match app.store.watch.put_readings(readings.clone()).await {
        Ok(()) => {
            app.error_log.worked(READING);
            app.worker_registry.readings_written(&readings);
        }
        Err(error) => {
            app.store_health.note_error::<()>(&Err(error.clone()));
            app.error_log.failed(READING, &error);
        }
    }
}
