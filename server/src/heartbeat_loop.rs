//! Sends the heartbeat of the server. One query extends the server lease and returns where work is due. All other loops
//! sleep until they are woken.

use std::sync::Arc;

use nightshift_engine::store::{Pulse, ServerRecord, StoreError};
use nightshift_protocol::id::ServerId;
use tokio::time::Instant;

use crate::app::App;
use crate::backoff::Backoff;

/// Name of this loop in error logs.
const SENDING: &str = "sending the heartbeat of the server";
const READING_ROUTES: &str = "reading the routes of ready steps";

/// Runs the loop until the server ends.
pub(crate) async fn run(app: Arc<App>) {
    let mut backoff = Backoff::default();
    let mut next = Instant::now();
    loop {
        tokio::select! {
            biased;
            () = app.shutdown.cancelled() => return,
            () = app.wake.pulse() => {}
            () = tokio::time::sleep_until(next) => {}
        }
        let result = match app.server_lease.current() {
            Some(server) => send_heartbeat(&app, &server).await,
            None => begin(&app).await,
        };
        next = Instant::now()
            + match result {
                Ok(()) => {
                    backoff.succeeded();
                    app.store_health.note_answer();
                    app.error_log.worked(SENDING);
                    app.config.pulse()
                }
                Err(error) => {
                    app.store_health.note_error::<()>(&Err(error.clone()));
                    app.error_log.failed(SENDING, &error);
                    backoff.failed().min(app.config.pulse())
                }
            };
        // The lease may expire between two failed heartbeats.
        if app.server_lease.current().is_none() {
            end_lease(&app);
        }
    }
}

/// Registers a new server lease, which owns no runs yet.
pub(crate) async fn begin(app: &App) -> Result<(), StoreError> {
    let server = ServerId::from_uuid(app.new_uuid());
    app.clock.synchronize(&*app.store.database).await?;
    let (now, at) = (Instant::now(), app.clock.now());
    let record = ServerRecord {
        id: server.clone(),
        name: app.config.name.clone(),
        version: app.config.version.clone(),
        state_format: app.state_format,
        address: app.address.clone(),
        started_at: at,
        expires_at: at.plus_ms(app.config.server_lease_ms()),
    };
    app.store.servers.register_server(record, app.config.sole).await?;
    for worker in app.worker_registry.embedded(&server) {
        app.store.workers.register_worker(worker).await?;
    }
    app.dispatcher.refresh_routes(&*app.store.queue).await?;
    let newer = app.store.ownership.count_newer_runs(app.state_format).await?;
    if newer > 0 {
        tracing::warn!(
            runs = newer,
            state_format = app.state_format,
            "unfinished runs were decided by a newer release and wait for a server of that release"
        );
    }
    tracing::info!(server.id = %server, server.sole = app.config.sole, "a server lease was registered");
    app.server_lease.begin(server, now + app.config.server_lease());
    app.wake.everything();
    Ok(())
}

async fn send_heartbeat(app: &App, server: &ServerId) -> Result<(), StoreError> {
    app.clock.synchronize(&*app.store.database).await?;
    let (now, at) = (Instant::now(), app.clock.now());
    let pulse = app.store.servers.pulse(server, at, at.plus_ms(app.config.server_lease_ms())).await?;
    if !pulse.alive {
        tracing::warn!(server.id = %server, "this server was declared dead; it decides nothing until it has registered again");
        end_lease(app);
        return begin(app).await;
    }
    // Counted from before the call, because the store may have been slow.
    app.server_lease.extend(server, now + app.config.server_lease());
    look_where(app, pulse).await;
    Ok(())
}

/// Ends the server lease. The server decides nothing until a new one begins.
fn end_lease(app: &App) {
    app.server_lease.end();
    for run in app.fences.clear() {
        app.driver.forget(&run);
    }
}

async fn look_where(app: &App, pulse: Pulse) {
    if pulse.runs_to_drive {
        app.wake.look_for_runs();
    }
    if pulse.expired {
        app.sweeper_schedule.leases_ran_out();
    }
    app.sweeper_schedule.next_timer(pulse.next_timer);
    if pulse.ready {
        match app.dispatcher.refresh_routes(&*app.store.queue).await {
            Ok(()) => app.error_log.worked(READING_ROUTES),
            Err(error) => app.error_log.failed(READING_ROUTES, &error),
        }
        app.dispatcher.probe();
    }
}
