//! Steps that workers lease and report over HTTP: the worker's own loop of leases, its client, and trivial work.

use std::net::SocketAddr;
use std::sync::Arc;

use nightshift_protocol::capability::Label;
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
    /// Steps of each server fit its own workers only: the most that claims could gain which prefer a server's own runs
    #[arg(long)]
    apart: bool,
}

pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let Options { place, load, workers, replicas, apart } = options;
    let measured = Measured::begin(place, load, replicas).await?;
    let servers = measured
        .serve(0, |server| {
            let mut needs = worker_needs();
            needs.labels.extend(apart.then(|| label(server)).transpose()?);
            Ok(needs)
        })
        .await?;
    let addresses: Vec<SocketAddr> = servers.iter().map(Running::addr).collect();
    let stop = CancellationToken::new();
    let mut serving = serve(&addresses, apart, workers.min(load.in_flight), load.in_flight, &stop)?;
    let timing = tokio::select! {
        timing = measured.drive() => timing,
        Some(ended) = serving.join_next() => Err(anyhow::anyhow!("a worker ended: {ended:?}")),
    };
    stop.cancel();
    while serving.join_next().await.is_some() {}
    measured.end("nightshift-http", servers, timing).await
}

type Serving = JoinSet<Result<(), lease::WorkerError>>;

/// The label of the workers at the server of this number.
fn label(server: usize) -> anyhow::Result<Label> {
    Ok(format!("server={server}").parse()?)
}

fn serve(
    addresses: &[SocketAddr],
    apart: bool,
    workers: u32,
    slots: u32,
    stop: &CancellationToken,
) -> anyhow::Result<Serving> {
    let mut serving = JoinSet::new();
    for (number, (server, &addr)) in (0..workers).zip(addresses.iter().enumerate().cycle()) {
        let own = slots / workers + u32::from(number < slots % workers);
        let client = Arc::new(worker_client(addr)?);
        let stop = stop.clone();
        let mut introduction = introduction(&format!("worker{number}"), own);
        introduction.offers.labels.extend(apart.then(|| label(server)).transpose()?);
        serving.spawn(lease::serve(client, Arc::new(AddOne), introduction, stop));
    }
    Ok(serving)
}
