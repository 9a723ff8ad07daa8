//! Implements the ports for [`SqlStore`]: a file for each port, and a line for each method where there is no more to it.

// Before the modules that use its macros.
#[macro_use]
mod macros;

mod archive;
mod artifact;
mod attempt;
mod budget;
mod campaign;
mod change;
mod creation;
mod database;
mod device;
mod handover;
mod knowledge;
mod lease;
mod model_call;
mod objects;
mod ownership;
mod queue;
mod request;
mod retention;
mod run;
mod run_control;
mod server;
mod session;
mod team;
mod token;
mod watch;
mod webhook;
mod worker;

use std::sync::Arc;

use nightshift_engine::store::Store;

use crate::store::SqlStore;

impl SqlStore {
    /// Returns all ports of this database.
    #[must_use]
    pub fn ports(self: &Arc<Self>) -> Store {
        Store {
            archives: self.clone(),
            artifacts: self.clone(),
            budgets: self.clone(),
            campaigns: self.clone(),
            changes: self.clone(),
            creations: self.clone(),
            database: self.clone(),
            devices: self.clone(),
            handovers: self.clone(),
            knowledge: self.clone(),
            leases: self.clone(),
            model_calls: self.clone(),
            ownership: self.clone(),
            queue: self.clone(),
            requests: self.clone(),
            retention: self.clone(),
            run_control: self.clone(),
            runs: self.clone(),
            servers: self.clone(),
            sessions: self.clone(),
            team: self.clone(),
            tokens: self.clone(),
            watch: self.clone(),
            webhooks: self.clone(),
            workers: self.clone(),
        }
    }
}
