//! Deletes old data: campaigns, unreferenced artifacts, and workers that were not seen for long.

use std::sync::Arc;
use std::time::Duration;

use nightshift_engine::store::StoreError;
use nightshift_protocol::api::PruneDone;
use nightshift_protocol::time::TimestampMs;
use tokio::time::{Instant, MissedTickBehavior};

use crate::shared::Shared;

/// Time between two rounds.
const EVERY: Duration = Duration::from_hours(1);
/// Maximum duration of a round. The next one continues.
const LONGEST_ROUND: Duration = Duration::from_mins(10);
/// Maximum number of rows deleted per transaction.
const CHUNK_ROWS: u32 = 2_000;
/// Maximum number of artifacts deleted per transaction, which is smaller because of their bytes.
const CHUNK_ARTIFACTS: u32 = 200;
/// Pause between two transactions, in which others write.
const PAUSE: Duration = Duration::from_millis(50);
/// Maximum number of campaigns deleted per round.
pub(crate) const MAX_PRUNED_CAMPAIGNS: u32 = 500;
/// Minimum age of deleted data, in milliseconds: an artifact is unreferenced between its upload and the call that
/// references it.
pub(crate) const MIN_OLDER_THAN_MS: u64 = 3_600_000;
/// Time without contact after which a worker is deleted, in milliseconds.
const FORGET_WORKERS_MS: u64 = 7 * 24 * 3_600_000;

/// Store error for a campaign with an unfinished run.
const NOT_FINISHED: &str = "campaign.not_finished";

/// Name of this loop in error logs.
const DOING: &str = "deleting old data";

/// Runs the loop until the server ends. It deletes old workers even if everything else is kept.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = shared.shutdown.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let outcome = tokio::select! {
            biased;
            // Each chunk is a transaction of its own, so a round can be aborted between any two.
            () = shared.shutdown.cancelled() => return,
            outcome = round(&shared) => outcome,
        };
        shared.store_health.note_error(&outcome);
        match outcome {
            Ok(()) => shared.error_log.worked(DOING),
            Err(error) => shared.error_log.failed(DOING, &error),
        }
    }
}

async fn round(shared: &Shared) -> Result<(), StoreError> {
    let now = shared.clock.now();
    let forgotten = shared.store.workers.forget_workers(Prunes::before(now, FORGET_WORKERS_MS)).await?;
    if forgotten > 0 {
        tracing::info!(workers = forgotten, "workers that were not seen for a week were deleted");
    }
    // Of pruned artifacts, and of uploads whose server died.
    let before = Prunes::before(now, MIN_OLDER_THAN_MS);
    let collected = collect(shared, before).await;
    let Some(keep_for) = shared.config.retention else { return collected };
    let keep_for_ms = u64::try_from(keep_for.as_millis()).unwrap_or(u64::MAX);
    let done = Prunes::new(shared, Prunes::before(now, keep_for_ms)).until(Instant::now() + LONGEST_ROUND).await?;
    if done.rows > 0 || done.artifacts > 0 {
        tracing::info!(
            campaigns = done.campaigns.len(),
            rows = done.rows,
            artifacts = done.artifacts,
            more = done.more,
            "old data was deleted"
        );
    }
    collected
}

/// Deletes objects that no artifact has. An object store that deletes nothing does not keep the database from being pruned.
async fn collect(shared: &Shared, before: TimestampMs) -> Result<(), StoreError> {
    while shared.store.retention.collect_objects(before, CHUNK_ARTIFACTS).await? >= u64::from(CHUNK_ARTIFACTS) {
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

/// A deletion in chunks.
pub(crate) struct Prunes<'a> {
    shared: &'a Shared,
    before: TimestampMs,
    done: PruneDone,
}

impl<'a> Prunes<'a> {
    pub(crate) fn new(shared: &'a Shared, before: TimestampMs) -> Self {
        Self { shared, before, done: PruneDone { campaigns: Vec::new(), rows: 0, artifacts: 0, more: false } }
    }

    /// Returns the time `older_than_ms` ago.
    pub(crate) fn before(now: TimestampMs, older_than_ms: u64) -> TimestampMs {
        TimestampMs(now.0.saturating_sub(i64::try_from(older_than_ms).unwrap_or(i64::MAX)))
    }

    /// Deletes until nothing is left or the time is over.
    pub(crate) async fn until(mut self, until: Instant) -> Result<PruneDone, StoreError> {
        let campaigns = self.shared.store.retention.campaigns_to_prune(self.before, MAX_PRUNED_CAMPAIGNS).await?;
        self.done.more = campaigns.len() >= usize::try_from(MAX_PRUNED_CAMPAIGNS).unwrap_or(usize::MAX);
        for campaign in campaigns {
            let deleted = loop {
                if Instant::now() >= until {
                    self.done.more = true;
                    return Ok(self.done);
                }
                let pruned = match self.shared.store.retention.prune_campaign(&campaign, CHUNK_ROWS).await {
                    // Another call or server deleted it meanwhile, or one of its runs was retried.
                    Err(StoreError::NotFound { .. } | StoreError::Refused { code: NOT_FINISHED, .. }) => {
                        break false;
                    }
                    pruned => pruned?,
                };
                self.done.rows += pruned.rows;
                self.done.artifacts += pruned.artifacts;
                if !pruned.more {
                    break pruned.campaigns > 0;
                }
                tokio::time::sleep(PAUSE).await;
            };
            if deleted {
                self.done.campaigns.push(campaign);
            }
        }
        loop {
            if Instant::now() >= until {
                self.done.more = true;
                return Ok(self.done);
            }
            let pruned = self.shared.store.retention.prune_artifacts(self.before, CHUNK_ARTIFACTS).await?;
            self.done.artifacts += pruned.artifacts;
            if !pruned.more {
                return Ok(self.done);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}
