//! `nightshift __generate`: plausible campaigns for measurements, and for trying pages out.

mod campaign;
mod complete;
mod dice;
mod hostile;
mod material;
mod profile;
mod run;
mod source;

use std::sync::Arc;
use std::time::Instant;

use futures::StreamExt;
use nightshift_engine::store::{ArchiveStore, ArtifactStore, CampaignArchive};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::error::ExitCode;
use nightshift_protocol::time::TimestampMs;
use nightshift_store::{AttemptIndex, IndexedRun, SqlStore};
use secrecy::ExposeSecret;
use serde_json::json;

use self::campaign::{Generated, Plan};
use self::material::World;
use crate::args::Generate;
use crate::compose::open_store;
use crate::context::Context;
use crate::failure::{Failure, INTERRUPTED, Result};

/// Attempts of a run.
pub(super) const ATTEMPTS_PER_RUN: u64 = 20;
/// Runs of a campaign: what one transaction writes stays small.
pub(super) const RUNS_PER_CAMPAIGN: u64 = 50;
/// Artifacts that are written at the same time: they share transactions.
const ARTIFACTS_AT_ONCE: usize = 64;

pub(super) async fn run(context: &Context, args: Generate) -> Result<ExitCode> {
    let began = Instant::now();
    let config = context.config();
    let url = args.database.clone().or_else(|| config.database.url.as_ref().map(|url| url.expose_secret().to_owned()));
    let store = Arc::new(open_store(context, url.as_deref(), &config.data_dir).await?);
    let filled =
        if args.hostile { fill_with_harm(&store, args.seed).await } else { fill(context, &store, &args).await };
    let closed = store.close().await;
    let written = filled?;
    closed?;
    let seconds = began.elapsed().as_secs_f64();
    if context.output.is_json() {
        context.output.json(&json!({
            "campaigns": written.campaigns, "runs": written.runs, "attempts": written.attempts, "seconds": seconds
        }))?;
    } else {
        context.output.text(&format!(
            "{} attempts of {} runs in {} campaigns, {seconds:.1} s",
            written.attempts, written.runs, written.campaigns
        ))?;
    }
    Ok(ExitCode::Ok)
}

#[derive(Default)]
struct Written {
    campaigns: u64,
    runs: u64,
    attempts: u64,
}

async fn fill(context: &Context, store: &Arc<SqlStore>, args: &Generate) -> Result<Written> {
    let world = Arc::new(World::new()?);
    put_artifacts(store, world.artifacts()).await?;
    let runs = args.attempts.div_ceil(ATTEMPTS_PER_RUN);
    let campaigns = runs.div_ceil(RUNS_PER_CAMPAIGN);
    let mut written = Written::default();
    // The next campaigns are made while one is written.
    let mut made = futures::stream::iter((0..campaigns).map(|number| {
        let world = Arc::clone(&world);
        let runs = RUNS_PER_CAMPAIGN.min(runs - number * RUNS_PER_CAMPAIGN);
        let complete = args.complete.saturating_sub(number * RUNS_PER_CAMPAIGN).min(runs);
        let plan = Plan { seed: args.seed, number, of: campaigns, runs, complete };
        tokio::task::spawn_blocking(move || campaign::make(&world, &plan))
    }))
    .buffered(2);
    while let Some(generated) = made.next().await {
        if context.interrupt.is_cancelled() {
            return Err(Failure::new(INTERRUPTED, "stopped before everything was written; what is written stays"));
        }
        let generated = generated.map_err(|error| run::unreadable(&error))??;
        let Generated { rows, artifacts, indexed, at } = generated;
        store.import_campaign(CampaignArchive { rows, artifacts }, at).await?;
        written.campaigns += 1;
        written.runs += count(indexed.len());
        written.attempts += indexed.iter().map(|run: &IndexedRun| count(run.attempts.len())).sum::<u64>();
        store.put_index(indexed).await?;
        if written.campaigns.is_multiple_of(50) {
            context.output.note(&format!("{} attempts", written.attempts));
        }
    }
    Ok(written)
}

async fn fill_with_harm(store: &Arc<SqlStore>, seed: u64) -> Result<Written> {
    let world = World::new()?;
    put_artifacts(store, world.artifacts()).await?;
    let hostile = hostile::make(&world, seed)?;
    put_artifacts(store, hostile.artifacts.into_iter()).await?;
    store.import_campaign(hostile.archive, hostile.at).await?;
    Ok(Written { campaigns: 1, runs: hostile.runs, attempts: hostile.attempts })
}

async fn put_artifacts(store: &Arc<SqlStore>, artifacts: impl Iterator<Item = Vec<u8>>) -> Result<()> {
    let puts = artifacts.map(|bytes| {
        let store = Arc::clone(store);
        async move { store.put_artifact(&ArtifactHash::of(&bytes), &bytes, TimestampMs(material::EPOCH_MS)).await }
    });
    let mut puts = futures::stream::iter(puts).buffer_unordered(ARTIFACTS_AT_ONCE);
    while let Some(put) = puts.next().await {
        put?;
    }
    Ok(())
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
