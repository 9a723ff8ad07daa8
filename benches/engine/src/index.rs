//! Writes into the index of attempts by several servers at once, as fast as each can.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use nightshift_engine::store::CampaignStore as _;
use nightshift_protocol::attempt::{AttemptOutcome, Stage};
use nightshift_protocol::id::RunId;
use nightshift_protocol::task::Target;
use nightshift_protocol::time::TimestampMs;
use nightshift_store::{AttemptIndex as _, IndexedAttempt, IndexedRun, SqlStore};
use serde::Serialize;
use tokio::task::JoinSet;

use crate::figure::{Durations, print};
use crate::place::Place;
use crate::workload;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    place: Place,
    /// Servers on the database; more than one needs Postgres
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    replicas: u32,
    /// Runs of each server that change before each of its writes
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// Seconds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
}

#[derive(Debug, Serialize)]
struct IndexFigure {
    system: &'static str,
    version: &'static str,
    store: String,
    durability: String,
    replicas: u32,
    /// Runs per transaction.
    runs: u32,
    transactions_per_s: f64,
    runs_per_s: f64,
    ms_median: f64,
    ms_p95: f64,
}

pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let Options { place, replicas, runs, seconds } = options;
    ensure!(replicas <= 1 || !place.is_embedded(), "several servers need Postgres: name a --database-url");
    place.prepare().await?;
    let mut servers = Vec::new();
    for _ in 0..replicas {
        let store = place.open().await?;
        let runs = create(&store, runs).await?;
        servers.push((store, runs));
    }
    let (first, _) = servers.first().context("there is a server")?;
    let description = place.describe(first).await?;
    let began = Instant::now();
    let mut writers = JoinSet::new();
    for (store, runs) in servers {
        writers.spawn(async move { write(&store, &runs, Duration::from_secs(seconds)).await });
    }
    let mut times = Vec::new();
    while let Some(wrote) = writers.join_next().await {
        times.extend(wrote??);
    }
    let elapsed_s = began.elapsed().as_secs_f64();
    let times = Durations::new(times);
    let count = f64::from(u32::try_from(times.len())?);
    print(&IndexFigure {
        system: "nightshift-index",
        version: env!("CARGO_PKG_VERSION"),
        store: description.store,
        durability: description.durability,
        replicas,
        runs,
        transactions_per_s: count / elapsed_s,
        runs_per_s: count * f64::from(runs) / elapsed_s,
        ms_median: times.percentile_ms(50),
        ms_p95: times.percentile_ms(95),
    })
}

async fn create(store: &SqlStore, runs: u32) -> anyhow::Result<Vec<RunId>> {
    let campaign = workload::campaign(0..u64::from(runs), None)?;
    let runs = campaign.runs.iter().map(|run| run.id.clone()).collect();
    store.create_campaign(campaign).await?;
    Ok(runs)
}

/// Writes one changed attempt of each run, again and again. Returns how long each transaction took.
async fn write(store: &SqlStore, runs: &[RunId], duration: Duration) -> anyhow::Result<Vec<Duration>> {
    let began = Instant::now();
    let mut times = Vec::new();
    for seq in 1.. {
        let indexed = runs.iter().map(|run| indexed(run, seq)).collect();
        let before = Instant::now();
        store.put_index(indexed).await?;
        times.push(before.elapsed());
        if began.elapsed() >= duration {
            break;
        }
    }
    store.close().await?;
    Ok(times)
}

fn indexed(run: &RunId, seq: u64) -> IndexedRun {
    let attempt = IndexedAttempt {
        number: 1 + u32::try_from(seq / 7 % 200).unwrap_or(0),
        stage: Stage::Optimize,
        parent: None,
        outcome: AttemptOutcome::Pending,
        is_best: false,
        is_confirmed: false,
        speedup: None,
        speedup_over_fastest: None,
        candidate_median_ns: None,
        reward: None,
        rubric_total: None,
        bound: None,
        issue: Some("a thread waits for a single running sum".to_owned()),
        tokens: seq,
        cost_microusd: Some(1),
        model: "model".to_owned(),
        device: None,
        device_ms: 0,
        source: None,
        created_at: TimestampMs(1),
        finished_at: None,
    };
    IndexedRun {
        run: run.clone(),
        seq,
        form: 1,
        task: "task".to_owned(),
        target: Target::Cuda,
        strategy: "stitch".to_owned(),
        attempts: vec![attempt],
        documents: Vec::new(),
    }
}
