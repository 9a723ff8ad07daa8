//! Receives notices of commits here and in other servers on the same database, and forwards them.

use std::sync::Arc;

use futures::StreamExt;
use nightshift_engine::store::{ChangedRun, Notice};

use crate::app::App;
use crate::backoff::Backoff;

/// Runs the loop until the server ends.
pub(crate) async fn run(app: Arc<App>) {
    let mut backoff = Backoff::default();
    loop {
        let mut notices = app.store.database.notices();
        // Earlier notices were missed.
        app.wake.everything();
        loop {
            let notice = tokio::select! {
                biased;
                () = app.shutdown.cancelled() => return,
                notice = notices.next() => notice,
            };
            let Some(notice) = notice else { break };
            backoff.succeeded();
            pass_on(&app, notice);
        }
        tokio::select! {
            biased;
            () = app.shutdown.cancelled() => return,
            () = tokio::time::sleep(backoff.failed()) => {}
        }
    }
}

fn pass_on(app: &App, notice: Notice) {
    if app.config.drives && app.attempts.is_some() {
        match &notice {
            Notice::RunChanged(run) => app.indexing.run_changed(&run.id),
            Notice::Unknown => app.indexing.look(),
            Notice::Ready(_) | Notice::TimerSet => {}
        }
    }
    match notice {
        // If its owner is dead, the heartbeat finds the run.
        Notice::RunChanged(run) if !app.config.drives || is_foreign(app, &run) => app.wake.ring(&run.id),
        Notice::RunChanged(run) if run.elsewhere => app.wake.run_changed(&run.id),
        Notice::RunChanged(run) => app.wake.noticed(&run.id),
        Notice::Ready(route) => app.dispatcher.ready(&route),
        Notice::TimerSet => app.sweeper_schedule.timers_changed(),
        Notice::Unknown => {
            app.wake.everything();
            app.sweeper_schedule.leases_ran_out();
            app.sweeper_schedule.timers_changed();
            app.dispatcher.probe();
        }
    }
}

/// Returns whether the run has another owner than this server.
fn is_foreign(app: &App, run: &ChangedRun) -> bool {
    run.owner.as_ref().is_some_and(|owner| app.server_lease.current().as_ref() != Some(owner))
}
