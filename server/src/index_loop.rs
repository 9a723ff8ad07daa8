//! The loop that maintains the index of attempts.

use std::sync::Arc;
use std::time::Duration;

use nightshift_engine::store::StoreError;
use nightshift_protocol::api::AttemptQuery;
use nightshift_protocol::id::RunId;
use nightshift_store::AttemptIndex;
use tokio::time::Instant;

use crate::app::App;
use crate::attempt_index::FORM;
use crate::backoff::Backoff;

/// Time between two scans of all runs.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// Minimum time between two scans, because each reads every run.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// Pause between two rounds, which collects changes of the same run.
const ROUND_PAUSE: Duration = Duration::from_millis(20);
/// Runs per scan result.
const RUNS_AT_ONCE: u32 = 200;
/// Maximum time for a server without loops to catch up before it answers with an incomplete index.
const LONGEST_CATCH_UP: Duration = Duration::from_secs(20);
/// Runs of a scan that are read and written together.
const RUNS_PER_UPDATE: usize = 20;

/// Name of this loop in error logs.
const DOING: &str = "updating the index of attempts";

/// Runs the loop until the server ends.
pub(crate) async fn run(app: Arc<App>) {
    let (Some(index), Some(indexer)) = (app.attempts.clone(), &app.indexer) else {
        app.shutdown.cancelled().await;
        return;
    };
    let mut backoff = Backoff::default();
    let mut look_at = Instant::now();
    let mut looked_at: Option<Instant> = None;
    loop {
        tokio::select! {
            biased;
            () = app.shutdown.cancelled() => return,
            // Before the inbox, which may never be empty.
            () = tokio::time::sleep_until(look_at) => app.indexing.look(),
            () = app.indexing.news.notified() => {}
        }
        let mut told = app.indexing.take();
        if let Some(next) = looked_at.map(|at| at + LOOK_PAUSE).filter(|next| told.look && Instant::now() < *next) {
            look_at = look_at.min(next);
            told.look = false;
        }
        let round = async {
            let runs: Vec<RunId> = told.runs.into_iter().filter(|run| !app.fences.is_foreign(run)).collect();
            indexer.update(&runs).await?;
            if !told.look {
                return Ok(());
            }
            app.index_all(&*index, None).await?;
            if looked_at.is_none() {
                // Load the columns before the first list needs them.
                index.list_attempts(&AttemptQuery { limit: Some(1), ..AttemptQuery::default() }).await?;
            }
            Ok::<(), StoreError>(())
        };
        let done = tokio::select! {
            biased;
            // Each write is a transaction of its own, so a round can be aborted between any two.
            () = app.shutdown.cancelled() => return,
            done = round => done,
        };
        match done {
            Ok(()) => {
                app.error_log.worked(DOING);
                backoff.succeeded();
                if told.look {
                    looked_at = Some(Instant::now());
                    look_at = Instant::now() + LOOK_EVERY;
                }
                tokio::time::sleep(ROUND_PAUSE).await;
            }
            Err(error) => {
                app.error_log.failed(DOING, &error);
                // The next scan finds the runs that were not written.
                look_at = Instant::now() + backoff.failed();
            }
        }
    }
}

impl App {
    /// Brings the index up to date once if no loop does, so that a command that only reads sees everything.
    pub(crate) async fn catch_up(&self, index: &dyn AttemptIndex) -> Result<(), StoreError> {
        if self.config.drives {
            return Ok(());
        }
        let until = Instant::now() + LONGEST_CATCH_UP;
        self.indexing.caught_up.get_or_try_init(|| self.index_all(index, Some(until))).await?;
        Ok(())
    }

    /// Writes every run that is missing or outdated in the index.
    async fn index_all(&self, index: &dyn AttemptIndex, until: Option<Instant>) -> Result<(), StoreError> {
        let Some(indexer) = &self.indexer else { return Ok(()) };
        let mut before = Vec::new();
        loop {
            let behind = index.runs_behind(FORM, RUNS_AT_ONCE).await?;
            for runs in behind.chunks(RUNS_PER_UPDATE) {
                if until.is_some_and(|until| Instant::now() >= until) {
                    tracing::warn!("the index of attempts is not up to date yet: lists may be incomplete");
                    return Ok(());
                }
                for run in runs {
                    indexer.forget(run);
                }
                indexer.update(runs).await?;
            }
            // The next scan finds runs that are outdated again.
            if behind.len() < usize::try_from(RUNS_AT_ONCE).unwrap_or(usize::MAX) || behind == before {
                return Ok(());
            }
            before = behind;
        }
    }
}
