//! Asking before something that is hard to take back, or that is about many runs.

use std::io::{BufRead, IsTerminal};

use crate::context::Context;
use crate::failure::{Failure, Result};

/// Asks for confirmation and fails without it. `what` is a verb phrase, for example `cancel 12 runs`. Without a
/// terminal, only `--yes` confirms.
pub(crate) async fn confirm(context: &Context, what: &str, yes: bool) -> Result<()> {
    if yes {
        return Ok(());
    }
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        let message = format!("this would {what}, and there is no terminal to confirm it");
        return Err(Failure::new("usage.not_confirmed", message)
            .hint("run it with --dry-run to see what it is about, then with --yes"));
    }
    context.output.note(&format!("{what}? [y/N]"));
    let answer = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line).map(|_| line)
    });
    let answer = tokio::select! {
        answer = answer => answer.ok().and_then(std::result::Result::ok).unwrap_or_default(),
        () = context.interrupt.cancelled() => String::new(),
    };
    if matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
        return Ok(());
    }
    Err(Failure::new("usage.not_confirmed", "nothing was done: it was not confirmed"))
}
