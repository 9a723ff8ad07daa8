//! Stores which workers were seen, in one call, and learns which of them another server asked to drain.

use std::sync::Arc;

use tokio::time::MissedTickBehavior;

use crate::dispatch::Dispatch;
use crate::worker_registry::{MAX_LISTED_WORKERS, WRITE_EVERY};

/// Name of this loop in error logs.
const DOING: &str = "recording which workers were seen";
/// Name of the device readings in error logs.
const READING: &str = "storing device readings";

/// Runs the loop until the server ends.
pub(crate) async fn run(dispatch: Arc<Dispatch>) {
    let shared = &dispatch.shared;
    let mut ticks = tokio::time::interval(WRITE_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = shared.shutdown.cancelled() => return,
            _ = ticks.tick() => write_down(&dispatch).await,
        }
    }
}

async fn write_down(dispatch: &Dispatch) {
    let shared = &dispatch.shared;
    write_readings(dispatch).await;
    let mut workers = dispatch.worker_registry.take_seen();
    workers.extend(dispatch.dispatcher.waiting());
    if workers.is_empty() {
        return;
    }
    let workers: Vec<_> = workers.into_iter().collect();
    if let Err(error) = shared.store.workers.workers_seen(&workers, shared.clock.now()).await {
        shared.store_health.note_error::<()>(&Err(error.clone()));
        shared.error_log.failed(DOING, &error);
        for worker in &workers {
            dispatch.worker_registry.mark_seen(worker);
        }
        return;
    }
    match shared.store.workers.list_workers(MAX_LISTED_WORKERS).await {
        Ok(records) => {
            shared.error_log.worked(DOING);
            for worker in dispatch.worker_registry.refresh(&records) {
                dispatch.dispatcher.wake_worker(&worker);
            }
        }
        Err(error) => shared.error_log.failed(DOING, &error),
    }
}

/// Stores device readings. The next round retries a failed write.
async fn write_readings(dispatch: &Dispatch) {
    let shared = &dispatch.shared;
    let readings = dispatch.worker_registry.unwritten_readings();
    if readings.is_empty() {
        return;
    }
    match shared.store.watch.put_readings(readings.clone()).await {
        Ok(()) => {
            shared.error_log.worked(READING);
            dispatch.worker_registry.readings_written(&readings);
        }
        Err(error) => {
            shared.store_health.note_error::<()>(&Err(error.clone()));
            shared.error_log.failed(READING, &error);
        }
    }
}
