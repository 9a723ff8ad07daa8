//! Steps in process: the server's own agents lease each step, carry it out and commit it.

use nightshift_protocol::machine::Needs;

use crate::measured::Measured;
use crate::place::Place;
use crate::workload::Load;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    load: Load,
}

pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let Options { place, load } = options;
    let measured = Measured::begin(place, load, 1).await?;
    let servers = measured.serve(usize::try_from(load.in_flight)?, |_| Ok(Needs::agent())).await?;
    let timing = measured.drive().await;
    measured.end("nightshift", servers, timing).await
}
