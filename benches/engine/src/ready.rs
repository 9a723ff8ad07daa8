//! From the decision that makes a step ready to its start at a worker, with many workers that wait for one.
//!
//! The clock runs from the decision, before it is committed, to the moment at which a worker has read the answer to its
//! claim: the commit that makes the step ready, the wake-up, the claim's own commit and HTTP are all in it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use nightshift_client::Client;
use nightshift_protocol::api::{Claim, FreeSlots, Report, TryOutcome};
use nightshift_protocol::id::WorkerId;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::figure::{Durations, print};
use crate::place::Place;
use crate::setup::{AddOne, Settings, introduction, start, worker_client, worker_needs};
use crate::trivial::{self, Decided, Trivial};
use crate::workload::Loop;

/// How long a worker lets the server hold its claim.
const WAIT_MS: u64 = 10_000;
/// Workers that register at once.
const REGISTER_AT_ONCE: usize = 32;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    place: Place,
    /// Workers that wait for a step, each with a connection of its own
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(2..=4_000))]
    idle_workers: u32,
    /// Workflows, one after the other
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    workflows: u64,
}

#[derive(Debug, Serialize)]
struct ReadyFigure {
    system: &'static str,
    version: &'static str,
    store: String,
    durability: String,
    idle_workers: u32,
    steps: usize,
    ready_to_start_p50_ms: f64,
    ready_to_start_p99_ms: f64,
    ready_to_start_max_ms: f64,
}

pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let Options { place, idle_workers, workflows } = options;
    place.prepare().await?;
    let store = place.open().await?;
    let description = place.describe(&store).await?;
    let decided = Arc::new(Decided::default());
    let workflow =
        Trivial { steps: trivial::STEPS_PER_WORKFLOW, needs: worker_needs(), decided: Some(Arc::clone(&decided)) };
    let server = start(&Settings::new(0, place.is_embedded()), store.ports(), workflow, Arc::new(AddOne)).await?;
    let client = worker_client(server.addr())?;
    let (started, mut starts) = mpsc::unbounded_channel();
    let mut crowd = JoinSet::new();
    for worker in register(&client, idle_workers).await? {
        crowd.spawn(wait_for_steps(client.clone(), worker, started.clone()));
    }
    let all_wait = async {
        // The claims are on their way; the first workflows are not counted, and by then every client waits.
        let mut workflows_before = Loop::new(store.ports(), None, 1, trivial::STEPS_PER_WORKFLOW).await?;
        workflows_before.run(20).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        while let Ok(start) = starts.try_recv() {
            decided.take(start.first, start.place);
        }
        workflows_before.run(workflows).await?;
        Ok::<(), anyhow::Error>(())
    };
    tokio::select! {
        done = all_wait => done?,
        Some(ended) = crowd.join_next() => anyhow::bail!("a worker ended: {ended:?}"),
    }
    let mut waits = Vec::new();
    while let Ok(start) = starts.try_recv() {
        let from = decided.take(start.first, start.place).context("a step began without a decision")?;
        waits.push(start.at.duration_since(from));
    }
    crowd.shutdown().await;
    server.stop().await?;
    store.close().await?;
    let waits = Durations::new(waits);
    print(&ReadyFigure {
        system: "nightshift-ready",
        version: env!("CARGO_PKG_VERSION"),
        store: description.store,
        durability: description.durability,
        idle_workers,
        steps: waits.len(),
        ready_to_start_p50_ms: waits.percentile_ms(50),
        ready_to_start_p99_ms: waits.percentile_ms(99),
        ready_to_start_max_ms: waits.max_ms(),
    })
}

/// A step that came to a worker.
struct Start {
    first: u64,
    place: u64,
    at: Instant,
}

async fn register(client: &Client, workers: u32) -> anyhow::Result<Vec<WorkerId>> {
    let mut ids = Vec::new();
    let mut calls = JoinSet::new();
    for number in 0..workers {
        let client = client.clone();
        calls.spawn(async move { client.register_worker(&introduction(&format!("idle{number}"), 1)).await });
        if calls.len() >= REGISTER_AT_ONCE
            && let Some(registered) = calls.join_next().await
        {
            ids.push(registered??.worker);
        }
    }
    while let Some(registered) = calls.join_next().await {
        ids.push(registered??.worker);
    }
    Ok(ids)
}

/// Waits for steps, one at a time, without end. The report requests none: the next step is for a waiting client.
async fn wait_for_steps(client: Client, worker: WorkerId, started: mpsc::UnboundedSender<Start>) -> anyhow::Result<()> {
    let claim = Claim { free: FreeSlots { cpu: 1, devices: Vec::new() }, wait_ms: WAIT_MS };
    loop {
        for step in client.claim(&worker, &claim).await?.steps {
            let at = Instant::now();
            let output = trivial::carry_out(&step.input).map_err(|failure| anyhow::anyhow!("{failure:?}"))?;
            let place = trivial::place(&step.key).context("a step with another key")?;
            let sum: u64 = match &output {
                nightshift_protocol::step::StepOutput::TaskRejected { message, .. } => message.parse()?,
                _ => anyhow::bail!("another output"),
            };
            // The receiver is gone when the measurement has failed.
            let _ = started.send(Start { first: sum - place, place, at });
            let result = TryOutcome::Completed { output: Box::new(output) };
            client
                .report(&step.step, &Report { worker: worker.clone(), epoch: step.epoch, result, free: None })
                .await?;
        }
    }
}
