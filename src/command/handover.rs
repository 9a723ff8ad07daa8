//! `nightshift handover`: a campaign goes to a machine without a network, and its results come back once.

mod carry;
mod create;
mod earlier;
mod finish;
mod result;

use nightshift_protocol::error::ExitCode;

use crate::args::HandoverCommand;
use crate::context::Context;
use crate::failure::{Failure, Result};

pub(super) async fn run(context: &Context, command: HandoverCommand) -> Result<ExitCode> {
    match command {
        HandoverCommand::Create(args) => create::run(context, args).await,
        HandoverCommand::Run(args) => carry::run(context, args).await,
        HandoverCommand::Finish { file } => finish::run(context, file).await,
        HandoverCommand::Cancel { campaign } => finish::cancel(context, &campaign).await,
    }
}

/// Reads and writes files off the runtime's threads.
async fn off_the_runtime<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| Failure::new("internal.archive", format!("a file of a hand-over broke down: {error}")))?
}
