//! Receives notices of commits here and in other servers on the same database, and forwards them.

use std::sync::Arc;

use futures::StreamExt;
use nightshift_engine::store::{ChangedRun, Notice};

use crate::attempt_index::Index;
use crate::backoff::Backoff;
use crate::driving::Driving;

/// Runs the loop until the server ends.
pub(crate) async fn run(driving: Arc<Driving>, index: Arc<Index>) {
    let shared = &driving.shared;
    let mut backoff = Backoff::default();
    loop {
        let mut notices = shared.store.database.notices();
        // Earlier notices were missed.
        driving.wake.everything();
        loop {
            let notice = tokio::select! {
                biased;
                () = shared.shutdown.cancelled() => return,
                notice = notices.next() => notice,
            };
            let Some(notice) = notice else { break };
            backoff.succeeded();
            pass_on(&driving, &index, notice);
        }
        tokio::select! {
            biased;
            () = shared.shutdown.cancelled() => return,
            () = tokio::time::sleep(backoff.failed()) => {}
        }
    }
}

fn pass_on(driving: &Driving, index: &Index, notice: Notice) {
    let Driving { shared, dispatch, .. } = driving;
    if shared.config.drives && index.indexer.is_some() {
        match &notice {
            // Its owner writes it. If that server is dead, the next scan finds the run.
            Notice::RunChanged(run) if is_foreign(driving, run) => {}
            Notice::RunChanged(run) => index.inbox.run_changed(&run.id),
            Notice::Unknown => index.inbox.look(),
            Notice::Ready(_) | Notice::TimerSet(_) => {}
        }
    }
    match notice {
        // If the owner of a foreign run is dead, the heartbeat finds the run.
        Notice::RunChanged(run) if !shared.config.drives || !run.to_drive || is_foreign(driving, &run) => {
            driving.wake.ring(&run.id);
        }
        Notice::RunChanged(run) => driving.wake.run_changed(&run.id),
        Notice::Ready(route) => dispatch.dispatcher.ready(&route),
        Notice::TimerSet(at) => dispatch.sweeper_schedule.timer_set(at),
        Notice::Unknown => {
            driving.wake.everything();
            dispatch.sweeper_schedule.leases_ran_out();
            dispatch.sweeper_schedule.timers_changed();
            dispatch.dispatcher.probe();
        }
    }
}

/// Returns whether the run has another owner than this server.
fn is_foreign(driving: &Driving, run: &ChangedRun) -> bool {
    run.owner.as_ref().is_some_and(|owner| driving.server_lease.current().as_ref() != Some(owner))
}
