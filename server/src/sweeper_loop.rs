//! Ends leases that ran out and fires timers that are due.

use std::sync::Arc;
use std::time::Duration;

use nightshift_engine::sweeper::{MAX_PER_ROUND, Sweeper};

use crate::app::App;
use crate::backoff::Backoff;

/// Longest time between two rounds.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// Shortest time between two rounds: a timer that is due but cannot be fired must not spin.
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);

/// This loop in complaints.
const DOING: &str = "sweeping leases and timers";

/// The loop. Ends with the server.
pub(crate) async fn run(app: Arc<App>) {
    let sweeper = Sweeper::new(app.store.clone(), app.clock.clone(), app.random.clone());
    let mut backoff = Backoff::default();
    loop {
        let result = sweeper.sweep().await;
        let pause = match result {
            Ok(swept) => {
                backoff.succeeded();
                app.complaints.worked(DOING);
                if swept.expired > 0 {
                    app.wake.some_runs_changed();
                }
                if swept.expired > 0 || swept.fired > 0 {
                    app.trouble.note(&Ok(()));
                    app.wake.work_ready();
                }
                let full_round = u64::from(MAX_PER_ROUND);
                if swept.expired >= full_round || swept.fired >= full_round {
                    SHORTEST_PAUSE
                } else {
                    swept.next_timer.map_or(SWEEP_EVERY, |due| {
                        Duration::from_millis(due.since_ms(app.clock.now())).clamp(SHORTEST_PAUSE, SWEEP_EVERY)
                    })
                }
            }
            Err(error) => {
                app.trouble.note_error::<()>(&Err(error.clone()));
                app.complaints.failed(DOING, &error);
                backoff.failed()
            }
        };
        tokio::select! {
            biased;
            () = app.shutdown.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
            () = app.wake.timer() => {}
        }
    }
}
