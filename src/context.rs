//! What every command is given.

use nightshift_sandbox::process::CancelFlag;
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

    /// Returns a flag for work that blocks. The first signal cancels it.
    pub(crate) fn cancel_on_interrupt(&self) -> CancelFlag {
        let (cancel, interrupt) = (CancelFlag::default(), self.interrupt.clone());
        let stop = cancel.clone();
        tokio::spawn(async move {
            interrupt.cancelled().await;
            stop.cancel();
        });
        cancel
    }
}
