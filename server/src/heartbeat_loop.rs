//! Sends the heartbeat of the server. One query extends the server lease and returns where work is due. All other loops
//! sleep until they are woken.

use std::sync::Arc;

use nightshift_engine::store::{Pulse, ServerRecord, StoreError};
use nightshift_protocol::id::ServerId;
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::driving::Driving;

/// Name of this loop in error logs.
const SENDING: &str = "sending the heartbeat of the server";
const READING_ROUTES: &str = "reading the routes of ready steps";

/// Runs the loop until the server ends.
pub(crate) async fn run(driving: Arc<Driving>) {
    let shared = &driving.shared;
    let mut backoff = Backoff::default();
    let mut next = Instant::now();
    loop {
        tokio::select! {
            biased;
            () = shared.shutdown.cancelled() => return,
            () = driving.wake.pulse() => {}
            () = tokio::time::sleep_until(next) => {}
        }
        let result = match driving.server_lease.current() {
            Some(server) => send_heartbeat(&driving, &server).await,
            None => begin(&driving).await,
        };
        next = Instant::now()
            + match result {
                Ok(()) => {
                    backoff.succeeded();
                    shared.store_health.note_answer();
                    shared.error_log.worked(SENDING);
                    shared.config.pulse()
                }
                Err(error) => {
                    shared.store_health.note_error::<()>(&Err(error.clone()));
                    shared.error_log.failed(SENDING, &error);
                    backoff.failed().min(shared.config.pulse())
                }
            };
        // The lease may expire between two failed heartbeats.
        if driving.server_lease.current().is_none() {
            end_lease(&driving);
        }
    }
}

/// Registers a new server lease, which owns no runs yet.
pub(crate) async fn begin(driving: &Driving) -> Result<(), StoreError> {
    let Driving { shared, dispatch, .. } = driving;
    let server = ServerId::from_uuid(shared.new_uuid());
    shared.clock.synchronize(&*shared.store.database).await?;
    let (now, at) = (Instant::now(), shared.clock.now());
    let record = ServerRecord {
        id: server.clone(),
        name: shared.config.name.clone(),
        version: shared.config.version.clone(),
        state_format: shared.state_format,
        address: driving.address.clone(),
        started_at: at,
        expires_at: at.plus_ms(shared.config.server_lease_ms()),
    };
    shared.store.servers.register_server(record, shared.config.sole).await?;
    for worker in dispatch.worker_registry.embedded(&server) {
        shared.store.workers.register_worker(worker).await?;
    }
    dispatch.dispatcher.refresh_routes(&*shared.store.queue).await?;
    let newer = shared.store.ownership.count_newer_runs(shared.state_format).await?;
    if newer > 0 {
        tracing::warn!(
            runs = newer,
            state_format = shared.state_format,
            "unfinished runs were decided by a newer release and wait for a server of that release"
        );
    }
    tracing::info!(server.id = %server, server.sole = shared.config.sole, "a server lease was registered");
    driving.server_lease.begin(server, now + shared.config.server_lease());
    driving.wake.everything();
    Ok(())
}

async fn send_heartbeat(driving: &Driving, server: &ServerId) -> Result<(), StoreError> {
    let shared = &driving.shared;
    let (now, at) = (Instant::now(), shared.clock.now());
    let pulse = shared.store.servers.pulse(server, at, at.plus_ms(shared.config.server_lease_ms())).await?;
    if !pulse.alive {
        tracing::warn!(server.id = %server, "this server was declared dead; it decides nothing until it has registered again");
        end_lease(driving);
        return begin(driving).await;
    }
    if let Some(read) = pulse.database_now {
        shared.clock.set(read, now, Instant::now());
    }
    // Counted from before the call, because the store may have been slow.
    driving.server_lease.extend(server, now + shared.config.server_lease());
    look_where(driving, pulse).await;
    Ok(())
}

/// Ends the server lease. The server decides nothing until a new one begins.
fn end_lease(driving: &Driving) {
    driving.server_lease.end();
    for run in driving.fences.clear() {
        driving.driver.forget(&run);
    }
}

async fn look_where(driving: &Driving, pulse: Pulse) {
    let Driving { shared, dispatch, .. } = driving;
    if pulse.runs_to_drive {
        driving.wake.look_for_runs();
    }
    if pulse.expired {
        dispatch.sweeper_schedule.leases_ran_out();
    }
    dispatch.sweeper_schedule.next_timer(pulse.next_timer);
    if pulse.ready {
        match dispatch.dispatcher.refresh_routes(&*shared.store.queue).await {
            Ok(()) => shared.error_log.worked(READING_ROUTES),
            Err(error) => shared.error_log.failed(READING_ROUTES, &error),
        }
        dispatch.dispatcher.probe();
    }
}
