//! SIGINT, SIGTERM and SIGHUP: the first one requests a clean end, the second one ends at once.

use nightshift_protocol::error::ExitCode;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::failure::{Failure, Result};
use crate::output::Output;

/// What signals ask for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Signals {
    /// Cancelled by the first one.
    pub(crate) first: CancellationToken,
    /// Cancelled by the second one, where a command ends by itself at it.
    pub(crate) second: CancellationToken,
}

/// How a command takes signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manners {
    /// The first ends it cleanly, the second ends the process.
    Ends,
    /// The first lets it finish what it holds, the second ends it cleanly, the third ends the process.
    Drains,
}

impl Manners {
    /// Signals that the command is told of; one more ends the process.
    fn told(self) -> u32 {
        match self {
            Self::Ends => 1,
            Self::Drains => 2,
        }
    }
}

/// Watches for signals from now on.
pub(crate) fn on_signal(output: Output, manners: Manners) -> Result<Signals> {
    let failed =
        |error: std::io::Error| Failure::new("internal.signal", format!("signals cannot be received: {error}"));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(failed)?;
    let signals = Signals::default();
    let told = signals.clone();
    tokio::spawn(async move {
        let mut count = 0_u32;
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
            }
            count += 1;
            if count > manners.told() {
                // What is committed is safe without a clean end; that is what the store is for.
                std::process::exit(ExitCode::Interrupted as i32);
            }
            output.note(match (manners, count) {
                (Manners::Ends, _) => "stopping (a second signal ends at once)",
                (Manners::Drains, 1) => "draining: what is held comes to its end (a second signal ends at once)",
                (Manners::Drains, _) => "ending: what is held is given back",
            });
            if count == 1 { told.first.cancel() } else { told.second.cancel() }
        }
    });
    Ok(signals)
}
