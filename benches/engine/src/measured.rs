//! A measurement of steps, from the fresh database to the printed line.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
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
    /// A store for each server.
    stores: Vec<Arc<SqlStore>>,
    description: Description,
    before: Option<Counters>,
}

impl Measured {
    /// Creates the schema, reads the counters and opens a store for each of so many servers.
    pub(crate) async fn begin(place: Place, load: Load, replicas: u32) -> anyhow::Result<Self> {
        ensure!(replicas <= 1 || !place.is_embedded(), "several servers need Postgres: name a --database-url");
        place.prepare().await?;
        let before = place.counters().await?;
        let mut stores = Vec::new();
        for _ in 0..replicas {
            stores.push(place.open().await?);
        }
        let description = place.describe(stores.first().context("at least one server")?).await?;
        Ok(Self { place, load, stores, description, before })
    }

    /// Starts a server on each store. `needs` returns what the steps of the server of this number need; each server
    /// carries out so many steps itself.
    pub(crate) async fn serve(
        &self,
        agent_slots: usize,
        needs: impl Fn(usize) -> anyhow::Result<Needs>,
    ) -> anyhow::Result<Vec<Running>> {
        let settings = Settings::new(agent_slots, self.place.is_embedded());
        let mut servers = Vec::new();
        for (number, store) in self.stores.iter().enumerate() {
            let workflow = Trivial { steps: self.load.steps, needs: needs(number)?, decided: None };
            servers.push(start(&settings, store.ports(), workflow, Arc::new(AddOne)).await?);
        }
        Ok(servers)
    }

    /// Warms up, and times what was asked for.
    pub(crate) async fn drive(&self) -> anyhow::Result<Timing> {
        let store = self.stores.first().context("at least one server")?;
        let several = self.place.database_url.clone().filter(|_| self.stores.len() > 1);
        let mut workflows = Loop::new(store.ports(), several, self.load.in_flight, self.load.steps).await?;
        workflows.run(self.load.warm_up).await?;
        Ok(workflows.run(self.load.workflows).await?.0)
    }

    /// Stops the servers, closes the stores, and prints the figure.
    pub(crate) async fn end(
        self,
        system: &'static str,
        servers: Vec<Running>,
        timing: anyhow::Result<Timing>,
    ) -> anyhow::Result<()> {
        let Self { place, load, stores, description, before } = self;
        let replicas = servers.len();
        for server in servers {
            server.stop().await?;
        }
        for store in stores {
            store.close().await?;
        }
        let cost = match (before, place.counters().await?) {
            (Some(before), Some(after)) => Some(before.until(after)?),
            _ => None,
        };
        let asked = Asked {
            system,
            replicas,
            in_flight: load.in_flight,
            workflows: load.workflows,
            steps: load.workflows * load.steps,
            all_steps: (load.workflows + load.warm_up) * load.steps,
        };
        print(&StepsFigure::new(asked, description, &timing?, cost))
    }
}
