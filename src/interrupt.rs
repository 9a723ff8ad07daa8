//! SIGINT and SIGTERM: the first asks for a clean end, the second does not wait for it.

use nightshift_protocol::error::ExitCode;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::failure::{Failure, Result};
use crate::output::Output;

/// A token that is cancelled by the first signal.
pub(crate) fn on_signal(output: Output) -> Result<CancellationToken> {
    let failed =
        |error: std::io::Error| Failure::new("internal.signal", format!("signals cannot be received: {error}"));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let token = CancellationToken::new();
    let cancelled = token.clone();
    tokio::spawn(async move {
        let mut signals = 0_u32;
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            signals += 1;
            if signals > 1 {
                // What is committed is safe without a clean end; that is what the store is for.
                std::process::exit(ExitCode::Interrupted as i32);
            }
            output.note("stopping (everything done so far is stored; a second signal ends at once)");
            cancelled.cancel();
        }
    });
    Ok(token)
}
