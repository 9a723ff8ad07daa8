//! What every command is given.

use tokio_util::sync::CancellationToken;

use crate::config::{Config, Loaded};
use crate::environment::Environment;
use crate::output::Output;

/// Configuration, environment, output, and the wish to stop.
#[derive(Clone)]
pub(crate) struct Context {
    /// The configuration with its origins.
    pub(crate) loaded: Loaded,
    /// The environment.
    pub(crate) environment: Environment,
    /// Where and how to write.
    pub(crate) output: Output,
    /// Cancelled by the first signal.
    pub(crate) interrupt: CancellationToken,
    /// Cancelled by the second signal, for commands that drain at the first.
    pub(crate) insist: CancellationToken,
}

impl Context {
    /// The configuration.
    pub(crate) fn config(&self) -> &Config {
        &self.loaded.config
    }
}
