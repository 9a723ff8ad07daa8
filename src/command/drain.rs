//! `nightshift drain`: a worker takes nothing new and ends.

use nightshift_client::Client;
use nightshift_protocol::api::WorkerView;
use nightshift_protocol::error::ExitCode;
use nightshift_protocol::id::WorkerId;
use serde_json::json;

use crate::args::Drain;
use crate::connect::{Purpose, Session};
use crate::context::Context;
use crate::failure::Result;
use crate::output::printable;
use crate::resolve;

pub(super) async fn run(context: &Context, args: Drain) -> Result<ExitCode> {
    let draining = !args.undo;
    Session::with(context, Purpose::Ask, async |session| {
        let worker = meant(&session.client, &args.worker).await?;
        session.client.drain_worker(&worker.id, draining).await?;
        let output = context.output;
        if output.is_json() {
            output.json(&json!({ "worker": worker.id, "name": worker.name, "draining": draining }))?;
        } else {
            let what = match (draining, worker.leases) {
                (false, _) => "may take new steps again".to_owned(),
                (true, 0) => "takes nothing new and ends".to_owned(),
                (true, leases) => format!("takes nothing new and ends; steps in its hands: {leases}"),
            };
            output.text(&printable(&format!("{}  {}: {what}", worker.id, worker.name)))?;
        }
        Ok(ExitCode::Ok)
    })
    .await
}

/// The worker of this id, or the only one of this name. Earlier lives of a machine carry its name too: then the id tells.
async fn meant(client: &Client, text: &str) -> Result<WorkerView> {
    let workers = client.workers().await?;
    let has_id = |worker: &WorkerView| resolve::fits(worker.id.as_str(), WorkerId::PREFIX, text);
    let by_id = workers.iter().any(has_id);
    let found = workers.into_iter().filter(|worker| if by_id { has_id(worker) } else { worker.name == text }).collect();
    resolve::only(text, found, |worker| worker.id.to_string(), "worker.not_found", "worker", "nightshift list workers")
}
