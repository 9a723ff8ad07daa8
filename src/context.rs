//! What every command is given.

use tokio_util::sync::CancellationToken;

use crate::config::{Config, Loaded};
use crate::environment::Environment;
use crate::output::Output;

/// Configuration, environment, output, and the wish to stop.
pub struct Context {
    /// The configuration with its origins.
    pub loaded: Loaded,
    /// The environment.
    pub environment: Environment,
    /// Where and how to write.
    pub output: Output,
    /// Cancelled by the first signal.
    pub interrupt: CancellationToken,
}

impl Context {
    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.loaded.config
    }
}
