//! Steps that workers lease and report over HTTP: the worker's own loop of leases, its client, and trivial work.

use std::net::SocketAddr;
use std::sync::Arc;

use nightshift_server::Running;
use nightshift_worker::lease;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::measured::Measured;
use crate::place::Place;
use crate::setup::{AddOne, introduction, worker_client, worker_needs};
use crate::workload::Load;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    load: Load,
    /// Workers that share the slots; together they have as many slots as workflows are in flight
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    workers: u32,
    /// Servers on the database, with the workers spread over them; more than one needs Postgres
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    replicas: u32,
}

pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let Options { place, load, workers, replicas } = options;
    let measured = Measured::begin(place, load, replicas).await?;
    let servers = measured.serve(0, worker_needs()).await?;
    let addresses: Vec<SocketAddr> = servers.iter().map(Running::addr).collect();
    let stop = CancellationToken::new();
    let mut serving = serve(&addresses, workers.min(load.in_flight), load.in_flight, &stop)?;
    let timing = tokio::select! {
        timing = measured.drive() => timing,
        Some(ended) = serving.join_next() => Err(anyhow::anyhow!("a worker ended: {ended:?}")),
    };
    stop.cancel();
    while serving.join_next().await.is_some() {}
    measured.end("nightshift-http", servers, timing).await
}

type Serving = JoinSet<Result<(), lease::WorkerError>>;

fn serve(addresses: &[SocketAddr], workers: u32, slots: u32, stop: &CancellationToken) -> anyhow::Result<Serving> {
    let mut serving = JoinSet::new();
    for (number, &addr) in (0..workers).zip(addresses.iter().cycle()) {
        let own = slots / workers + u32::from(number < slots % workers);
        let client = Arc::new(worker_client(addr)?);
        let stop = stop.clone();
        serving.spawn(lease::serve(client, Arc::new(AddOne), introduction(&format!("worker{number}"), own), stop));
    }
    Ok(serving)
}
