//! The loop that maintains the index of attempts.

use std::sync::Arc;
use std::time::Duration;

use nightshift_engine::store::StoreError;
use nightshift_protocol::api::AttemptQuery;
use nightshift_protocol::id::RunId;
use tokio::time::Instant;

use crate::attempt_index::Index;
use crate::backoff::Backoff;
use crate::driving::Driving;

/// Time between two scans of unfinished runs.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// Minimum time between two scans of all runs.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// Pause between two rounds, which collects changes of the same run.
const ROUND_PAUSE: Duration = Duration::from_millis(20);

/// Name of this loop in error logs.
const DOING: &str = "updating the index of attempts";

/// Runs the loop until the server ends.
pub(crate) async fn run(index: Arc<Index>, driving: Arc<Driving>) {
    let shared = &driving.shared;
    let Some(indexer) = &index.indexer else { return shared.shutdown.cancelled().await };
    let mut backoff = Backoff::default();
    let mut look_at = Instant::now();
    let mut looked_at: Option<Instant> = None;
    // The first scan reads all runs, and so does the one after an unknown change.
    let mut looks_at_all = true;
    loop {
        tokio::select! {
            biased;
            () = shared.shutdown.cancelled() => return,
            // Before the inbox, which may never be empty.
            () = tokio::time::sleep_until(look_at) => {}
            () = index.inbox.news.notified() => {}
        }
        let told = index.inbox.take();
        if told.look {
            looks_at_all = true;
            look_at = looked_at.map_or_else(Instant::now, |at| at + LOOK_PAUSE).min(look_at);
        }
        let looks = look_at <= Instant::now();
        let runs: Vec<RunId> = told.runs.into_iter().collect();
        let round = async {
            let updated = indexer.update(&runs).await;
            if !looks {
                return updated.map(|()| None);
            }
            // A scan of all runs finds those that were not updated, wherever they are.
            let unwritten = if looks_at_all || updated.is_err() {
                indexer.update_all(None).await?
            } else {
                indexer.update_unfinished().await?
            };
            if looked_at.is_none() {
                // Load the columns before the first list needs them.
                indexer.index.list_attempts(&AttemptQuery { limit: Some(1), ..AttemptQuery::default() }).await?;
            }
            Ok::<Option<StoreError>, StoreError>(unwritten)
        };
        let done = tokio::select! {
            biased;
            // Each write is a transaction of its own, so a round can be aborted between any two.
            () = shared.shutdown.cancelled() => return,
            done = round => done,
        };
        match done {
            Ok(unwritten) if looks => {
                looks_at_all = false;
                looked_at = Some(Instant::now());
                look_at = Instant::now() + LOOK_EVERY;
                if let Some(error) = unwritten {
                    // The next scan begins at this run again. The delay stays, because further changes of the run fail, too.
                    shared.error_log.failed(DOING, &error);
                } else {
                    shared.error_log.worked(DOING);
                    backoff.succeeded();
                }
            }
            Ok(_) => {}
            Err(error) => {
                shared.error_log.failed(DOING, &error);
                // The next scan finds the runs that were not written, wherever they are.
                looks_at_all |= !runs.is_empty();
                let next = Instant::now() + backoff.failed();
                look_at = if looks { next } else { next.min(look_at) };
            }
        }
        tokio::time::sleep(ROUND_PAUSE).await;
    }
}
