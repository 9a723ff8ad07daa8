//! Deletes what is over since long ago: campaigns, artifacts that nothing names, workers that nobody hears of.

use std::sync::Arc;
use std::time::Duration;

use nightshift_engine::store::StoreError;
use nightshift_protocol::api::PruneDone;
use nightshift_protocol::time::TimestampMs;
use tokio::time::{Instant, MissedTickBehavior};

use crate::app::App;

/// How often.
const EVERY: Duration = Duration::from_hours(1);
/// How long a round lasts at most; the next one goes on.
const LONGEST_ROUND: Duration = Duration::from_mins(10);
/// Rows that are deleted in one transaction.
const CHUNK_ROWS: u32 = 2_000;
/// Artifacts that are deleted in one transaction: their bytes are many.
const CHUNK_ARTIFACTS: u32 = 200;
/// Pause between two transactions, in which others write.
const PAUSE: Duration = Duration::from_millis(50);
/// Campaigns that are deleted in one round.
pub(crate) const MAX_PRUNED_CAMPAIGNS: u32 = 500;
/// Least age of what is deleted, in milliseconds: an artifact is named by nothing between its upload and the call that
/// names it.
pub(crate) const MIN_OLDER_THAN_MS: u64 = 3_600_000;
/// Workers that were not heard of for this long are forgotten, in milliseconds.
const FORGET_WORKERS_MS: u64 = 7 * 24 * 3_600_000;

/// This loop in complaints.
const DOING: &str = "deleting what is over since long ago";

/// The loop. Ends with the server. Workers are forgotten also when everything else is kept.
pub(crate) async fn run(app: Arc<App>) {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = app.shutdown.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let outcome = tokio::select! {
            biased;
            // Each chunk is a transaction of its own: a round can be broken off between any two.
            () = app.shutdown.cancelled() => return,
            outcome = round(&app) => outcome,
        };
        app.trouble.note_error(&outcome);
        match outcome {
            Ok(()) => app.complaints.worked(DOING),
            Err(error) => app.complaints.failed(DOING, &error),
        }
    }
}

async fn round(app: &App) -> Result<(), StoreError> {
    let now = app.clock.now();
    let forgotten = app.store.forget_workers(Prunes::before(now, FORGET_WORKERS_MS)).await?;
    if forgotten > 0 {
        tracing::info!(workers = forgotten, "workers that were not heard of for a week are forgotten");
    }
    let Some(keep_for) = app.config.retention else { return Ok(()) };
    let keep_for_ms = u64::try_from(keep_for.as_millis()).unwrap_or(u64::MAX);
    let done = Prunes::new(app, Prunes::before(now, keep_for_ms)).until(Instant::now() + LONGEST_ROUND).await?;
    if done.rows > 0 || done.artifacts > 0 {
        tracing::info!(
            campaigns = done.campaigns.len(),
            rows = done.rows,
            artifacts = done.artifacts,
            more = done.more,
            "what was kept long enough was deleted"
        );
    }
    Ok(())
}

/// A deletion, chunk by chunk.
pub(crate) struct Prunes<'a> {
    app: &'a App,
    before: TimestampMs,
    done: PruneDone,
}

impl<'a> Prunes<'a> {
    pub(crate) fn new(app: &'a App, before: TimestampMs) -> Self {
        Self { app, before, done: PruneDone { campaigns: Vec::new(), rows: 0, artifacts: 0, more: false } }
    }

    /// The moment that long ago.
    pub(crate) fn before(now: TimestampMs, older_than_ms: u64) -> TimestampMs {
        TimestampMs(now.0.saturating_sub(i64::try_from(older_than_ms).unwrap_or(i64::MAX)))
    }

    /// Deletes until nothing is left or the time is over.
    pub(crate) async fn until(mut self, until: Instant) -> Result<PruneDone, StoreError> {
        let campaigns = self.app.store.campaigns_to_prune(self.before, MAX_PRUNED_CAMPAIGNS).await?;
        self.done.more = campaigns.len() >= usize::try_from(MAX_PRUNED_CAMPAIGNS).unwrap_or(usize::MAX);
        for campaign in campaigns {
            loop {
                if Instant::now() >= until {
                    self.done.more = true;
                    return Ok(self.done);
                }
                let pruned = self.app.store.prune_campaign(&campaign, CHUNK_ROWS).await?;
                self.done.rows += pruned.rows;
                self.done.artifacts += pruned.artifacts;
                if !pruned.more {
                    break;
                }
                tokio::time::sleep(PAUSE).await;
            }
            self.done.campaigns.push(campaign);
        }
        loop {
            if Instant::now() >= until {
                self.done.more = true;
                return Ok(self.done);
            }
            let pruned = self.app.store.prune_artifacts(self.before, CHUNK_ARTIFACTS).await?;
            self.done.artifacts += pruned.artifacts;
            if !pruned.more {
                return Ok(self.done);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}
