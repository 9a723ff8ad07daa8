//! Receives notices of commits here and in other servers on the same database, and forwards them.

use std::sync::Arc;

use futures::StreamExt;
use nightshift_engine::store::Notice;

use crate::app::App;
use crate::backoff::Backoff;

/// Runs the loop until the server ends.
pub(crate) async fn run(app: Arc<App>) {
    let mut backoff = Backoff::default();
    loop {
        let mut notices = app.store.notices();
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
            Notice::RunChanged(run) => app.indexing.run_changed(run),
            Notice::Unknown => app.indexing.look(),
            Notice::Ready(_) | Notice::TimerSet => {}
        }
    }
    match notice {
        Notice::RunChanged(run) if app.config.drives => app.wake.noticed(&run),
        Notice::RunChanged(run) => app.wake.ring(&run),
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
