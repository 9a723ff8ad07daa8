//! A measurement of steps, from the fresh database to the printed line.

use std::sync::Arc;

use nightshift_protocol::machine::Needs;
use nightshift_server::Running;
use nightshift_store::SqlStore;

use crate::cost::Counters;
use crate::figure::{Asked, StepsFigure, Timing, print};
use crate::place::{Description, Place};
use crate::setup::{AddOne, Settings, start};
use crate::trivial::Trivial;
use crate::workload::{Load, Loop};

/// A database in which nothing ran yet, and what is to run in it.
pub(crate) struct Measured {
    place: Place,
    load: Load,
    store: Arc<SqlStore>,
    description: Description,
    before: Option<Counters>,
}

impl Measured {
    /// Lays the schema, reads the counters and opens the store.
    pub(crate) async fn begin(place: Place, load: Load) -> anyhow::Result<Self> {
        place.prepare().await?;
        let before = place.counters().await?;
        let store = place.open().await?;
        let description = place.describe(&store).await?;
        Ok(Self { place, load, store, description, before })
    }

    /// A server whose steps need this, and that carries out so many of them itself.
    pub(crate) async fn serve(&self, agent_slots: usize, needs: Needs) -> anyhow::Result<Running> {
        let workflow = Trivial { steps: self.load.steps, needs, decided: None };
        let settings = Settings::new(agent_slots, self.place.is_embedded());
        start(&settings, Place::port(&self.store), workflow, Arc::new(AddOne)).await
    }

    /// Warms up, and times what was asked for.
    pub(crate) async fn drive(&self) -> anyhow::Result<Timing> {
        let mut workflows = Loop::new(Place::port(&self.store), self.load.in_flight, self.load.steps).await?;
        workflows.run(self.load.warm_up).await?;
        Ok(workflows.run(self.load.workflows).await?.0)
    }

    /// Stops the server, closes the store, and prints the figure.
    pub(crate) async fn end(
        self,
        system: &'static str,
        server: Running,
        timing: anyhow::Result<Timing>,
    ) -> anyhow::Result<()> {
        let Self { place, load, store, description, before } = self;
        server.stop().await?;
        store.close().await?;
        let cost = match (before, place.counters().await?) {
            (Some(before), Some(after)) => Some(before.until(after)?),
            _ => None,
        };
        let asked = Asked {
            system,
            in_flight: load.in_flight,
            workflows: load.workflows,
            steps: load.workflows * load.steps,
            all_steps: (load.workflows + load.warm_up) * load.steps,
        };
        print(&StepsFigure::new(asked, description, &timing?, cost))
    }
}
