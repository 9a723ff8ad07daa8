//! Steps in process: the server's own agents lease each step, carry it out and commit it.

use std::sync::Arc;

use nightshift_protocol::machine::Needs;

use crate::figure::{Asked, StepsFigure, Timing, print};
use crate::place::Place;
use crate::setup::{AddOne, Settings, start};
use crate::trivial::Trivial;
use crate::workload::{Load, Loop};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    load: Load,
}

pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let Options { place, load } = options;
    place.prepare().await?;
    let before = place.counters().await?;
    let store = place.open().await?;
    let description = place.describe(&store).await?;
    let workflow = Trivial { steps: load.steps, needs: Needs::agent(), decided: None };
    let settings = Settings::new(usize::try_from(load.in_flight)?, place.is_embedded());
    let server = start(&settings, Place::port(&store), workflow, Arc::new(AddOne)).await?;
    let timing = drive(&store, load).await;
    server.stop().await?;
    store.close().await?;
    let cost = match (before, place.counters().await?) {
        (Some(before), Some(after)) => Some(before.until(after)?),
        _ => None,
    };
    let asked = Asked {
        system: "nightshift",
        in_flight: load.in_flight,
        workflows: load.workflows,
        steps: load.workflows * load.steps,
        all_steps: (load.workflows + load.warm_up) * load.steps,
    };
    print(&StepsFigure::new(asked, description, &timing?, cost))
}

async fn drive(store: &Arc<nightshift_store::SqlStore>, load: Load) -> anyhow::Result<Timing> {
    let mut workflows = Loop::new(Place::port(store), load.in_flight, load.steps).await?;
    workflows.run(load.warm_up).await?;
    Ok(workflows.run(load.workflows).await?.0)
}
