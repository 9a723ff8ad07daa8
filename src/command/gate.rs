//! What `approve` and `reject` share: the gate that is meant.

use nightshift_client::Client;
use nightshift_protocol::id::RunId;
use nightshift_protocol::signal::Gate;

use crate::failure::{Failure, Result};
use crate::present;

/// The gate that was named, or the one that the run waits at.
pub(super) async fn meant(client: &Client, run: &RunId, named: Option<Gate>) -> Result<Gate> {
    if let Some(gate) = named {
        return Ok(gate);
    }
    let summary = client.run(run).await?.summary;
    let gates: Vec<Gate> = summary.awaits.iter().filter_map(|name| Gate::parse(name)).collect();
    match gates.as_slice() {
        [gate] => Ok(*gate),
        [] => {
            Err(Failure::new("usage.no_gate", format!("the run waits at no gate now: {}", present::status(&summary)))
                .hint("`nightshift watch RUN` shows when it does; --gate names one in any case"))
        }
        several => {
            let waiting: Vec<&str> = several.iter().map(|gate| gate.as_str()).collect();
            Err(Failure::new("usage.no_gate", format!("the run waits at several gates: {}", waiting.join(", ")))
                .hint("name one of them with --gate"))
        }
    }
}
