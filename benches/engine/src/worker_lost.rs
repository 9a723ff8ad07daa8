//! A worker killed with `kill -9` while it holds a step: measures how long until another worker has it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nightshift_protocol::api::{Claim, FreeSlots};
use serde::Serialize;

use crate::child::Process;
use crate::figure::{ms, print};
use crate::place::Place;
use crate::setup::{AddOne, Settings, introduction, start, worker_client, worker_needs};
use crate::trivial::Trivial;
use crate::workload::campaign;

/// How long the second worker lets the server hold its claim.
const WAIT_MS: u64 = 10_000;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    place: Place,
    /// How long a lease lasts without a heartbeat, in milliseconds
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(1_000..=600_000))]
    lease_ms: u64,
    /// How often a worker is killed
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    kills: u32,
}

#[derive(Debug, Serialize)]
struct LostFigure {
    system: &'static str,
    version: &'static str,
    store: String,
    durability: String,
    lease_ms: u64,
    kills: u32,
    /// From each kill to the moment at which another worker has the step.
    leased_again_ms: Vec<f64>,
    /// The longest of them, beyond the time of the lease.
    worst_beyond_lease_ms: f64,
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds of a lease stay far below 2^52")]
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let Options { place, lease_ms, kills } = options;
    place.prepare().await?;
    let store = place.open().await?;
    let description = place.describe(&store).await?;
    let settings = Settings { lease_ms, heartbeat_ms: lease_ms / 6, ..Settings::new(0, place.is_embedded()) };
    let workflow = Trivial { steps: 1, needs: worker_needs(), decided: None };
    let port = store.ports();
    let server = start(&settings, port.clone(), workflow, Arc::new(AddOne)).await?;
    let mut leased_again_ms = Vec::new();
    for number in 0..u64::from(kills) {
        let arguments = ["worker-child".to_owned(), "--server".to_owned(), server.addr().to_string()];
        let mut lost = Process::start(&arguments)?;
        port.campaigns.create_campaign(campaign(number..number + 1, None)?).await?;
        let (lost, step) = tokio::task::spawn_blocking(move || {
            let step = lost.until("holds")?;
            // Some heartbeats later, at another moment of the lease each time.
            std::thread::sleep(Duration::from_millis(lease_ms / 2 + number * 100));
            Ok::<_, anyhow::Error>((lost, step))
        })
        .await??;
        let client = worker_client(server.addr())?;
        let other = client.register_worker(&introduction("other", 1)).await?.worker;
        let claim = Claim { free: FreeSlots { cpu: 1, devices: Vec::new() }, wait_ms: WAIT_MS };
        let killed = Instant::now();
        lost.kill()?;
        loop {
            let steps = client.claim(&other, &claim).await?.steps;
            let at = Instant::now();
            if let Some(again) = steps.into_iter().find(|leased| leased.step.as_str() == step) {
                leased_again_ms.push(ms(at.duration_since(killed)));
                let output =
                    crate::trivial::carry_out(&again.input).map_err(|failure| anyhow::anyhow!("{failure:?}"))?;
                let result = nightshift_protocol::api::TryOutcome::Completed { output: Box::new(output) };
                let report =
                    nightshift_protocol::api::Report { worker: other.clone(), epoch: again.epoch, result, free: None };
                client.report(&again.step, &report).await?;
                break;
            }
        }
    }
    server.stop().await?;
    store.close().await?;
    let worst = leased_again_ms.iter().copied().fold(0.0, f64::max);
    print(&LostFigure {
        system: "nightshift-worker-lost",
        version: env!("CARGO_PKG_VERSION"),
        store: description.store,
        durability: description.durability,
        lease_ms,
        kills,
        leased_again_ms,
        worst_beyond_lease_ms: worst - lease_ms as f64,
    })
}
