//! Steps that workers lease and report over HTTP: the worker's own loop of leases, its client, and trivial work.

use std::net::SocketAddr;
use std::sync::Arc;

use nightshift_worker::lease;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::figure::{Asked, StepsFigure, print};
use crate::place::Place;
use crate::setup::{AddOne, Settings, introduction, start, worker_client, worker_needs};
use crate::trivial::Trivial;
use crate::workload::{Load, Loop};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    load: Load,
    /// Workers that share the slots; together they have as many slots as workflows are in flight
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    workers: u32,
}

pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let Options { place, load, workers } = options;
    place.prepare().await?;
    let before = place.counters().await?;
    let store = place.open().await?;
    let description = place.describe(&store).await?;
    let workflow = Trivial { steps: load.steps, needs: worker_needs(), decided: None };
    let server = start(&Settings::new(0, place.is_embedded()), Place::port(&store), workflow, Arc::new(AddOne)).await?;
    let stop = CancellationToken::new();
    let mut serving = serve(server.addr(), workers.min(load.in_flight), load.in_flight, &stop)?;
    let timed = async {
        let mut workflows = Loop::new(Place::port(&store), load.in_flight, load.steps).await?;
        workflows.run(load.warm_up).await?;
        Ok(workflows.run(load.workflows).await?.0)
    };
    let timing = tokio::select! {
        timing = timed => timing,
        Some(ended) = serving.join_next() => Err(anyhow::anyhow!("a worker ended: {ended:?}")),
    };
    stop.cancel();
    while serving.join_next().await.is_some() {}
    server.stop().await?;
    store.close().await?;
    let cost = match (before, place.counters().await?) {
        (Some(before), Some(after)) => Some(before.until(after)?),
        _ => None,
    };
    let asked = Asked {
        system: "nightshift-http",
        in_flight: load.in_flight,
        workflows: load.workflows,
        steps: load.workflows * load.steps,
        all_steps: (load.workflows + load.warm_up) * load.steps,
    };
    print(&StepsFigure::new(asked, description, &timing?, cost))
}

type Serving = JoinSet<Result<(), lease::WorkerError>>;

fn serve(addr: SocketAddr, workers: u32, slots: u32, stop: &CancellationToken) -> anyhow::Result<Serving> {
    let mut serving = JoinSet::new();
    for number in 0..workers {
        let own = slots / workers + u32::from(number < slots % workers);
        let client = Arc::new(worker_client(addr)?);
        let stop = stop.clone();
        serving.spawn(lease::serve(client, Arc::new(AddOne), introduction(&format!("worker{number}"), own), stop));
    }
    Ok(serving)
}
