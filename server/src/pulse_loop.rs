//! Keeps this server's life going. One query says that it lives and where to look: everything else sleeps until it is
//! told.

use std::sync::Arc;

use nightshift_engine::store::{Pulse, ServerRecord, StoreError};
use nightshift_protocol::id::ServerId;
use tokio::time::Instant;

use crate::app::App;
use crate::backoff::Backoff;

/// This loop in complaints.
const BEATING: &str = "keeping this server's life going";
const LEARNING: &str = "learning what steps need";

/// The loop. Ends with the server.
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
        let result = match app.life.current() {
            Some(server) => beat(&app, &server).await,
            None => begin(&app).await,
        };
        next = Instant::now()
            + match result {
                Ok(()) => {
                    backoff.succeeded();
                    app.trouble.note_answer();
                    app.complaints.worked(BEATING);
                    app.config.pulse()
                }
                Err(error) => {
                    app.trouble.note_error::<()>(&Err(error.clone()));
                    app.complaints.failed(BEATING, &error);
                    backoff.failed().min(app.config.pulse())
                }
            };
        // A life may end between two pulses that fail.
        if app.life.current().is_none() {
            over(&app);
        }
    }
}

/// Makes a new life known, which nobody decided for before.
pub(crate) async fn begin(app: &App) -> Result<(), StoreError> {
    let server = ServerId::from_uuid(app.new_uuid());
    app.clock.synchronize(&*app.store).await?;
    let (now, at) = (Instant::now(), app.clock.now());
    let record = ServerRecord {
        id: server.clone(),
        name: app.config.name.clone(),
        version: app.config.version.clone(),
        state_format: app.state_format,
        address: app.address.clone(),
        started_at: at,
        expires_at: at.plus_ms(app.config.life_ms()),
    };
    app.store.register_server(record, app.config.sole).await?;
    for worker in app.roster.embedded(&server) {
        app.store.register_worker(worker).await?;
    }
    app.dispatcher.refresh_routes(&*app.store).await?;
    let newer = app.store.count_newer_runs(app.state_format).await?;
    if newer > 0 {
        tracing::warn!(
            runs = newer,
            state_format = app.state_format,
            "unfinished runs were decided by a newer release and wait for a server of that release"
        );
    }
    tracing::info!(server.id = %server, server.sole = app.config.sole, "a life of this server begins");
    app.life.begin(server, now + app.config.life());
    app.wake.everything();
    Ok(())
}

async fn beat(app: &App, server: &ServerId) -> Result<(), StoreError> {
    app.clock.synchronize(&*app.store).await?;
    let (now, at) = (Instant::now(), app.clock.now());
    let pulse = app.store.pulse(server, at, at.plus_ms(app.config.life_ms())).await?;
    if !pulse.alive {
        tracing::warn!(server.id = %server, "this server was declared dead: it decides nothing until it begins anew");
        over(app);
        return begin(app).await;
    }
    // Counted from before the call: the store may have been slow to answer.
    app.life.extend(server, now + app.config.life());
    look_where(app, pulse).await;
    Ok(())
}

/// Nothing is decided any more until a new life begins.
fn over(app: &App) {
    app.life.end();
    for run in app.fences.clear() {
        app.driver.forget(&run);
    }
}

async fn look_where(app: &App, pulse: Pulse) {
    if pulse.runs_to_drive {
        app.wake.look_for_runs();
    }
    if pulse.expired {
        app.agenda.leases_ran_out();
    }
    app.agenda.next_timer(pulse.next_timer);
    if pulse.ready {
        match app.dispatcher.refresh_routes(&*app.store).await {
            Ok(()) => app.complaints.worked(LEARNING),
            Err(error) => app.complaints.failed(LEARNING, &error),
        }
        app.dispatcher.probe();
    }
}
