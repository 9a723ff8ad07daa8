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

/// Without those that were not heard of for long, where others are left.
fn those_that_live(found: Vec<WorkerView>) -> Vec<WorkerView> {
    if found.iter().all(|worker| worker.silent) {
        return found;
    }
    found.into_iter().filter(|worker| !worker.silent).collect()
}

/// The worker of this id, or the only one of this name. Earlier lives of a machine carry its name too, and stay known for
/// a while: they are meant only when no other is left.
async fn meant(client: &Client, text: &str) -> Result<WorkerView> {
    let workers = client.workers().await?;
    let has_id = |worker: &WorkerView| resolve::fits(worker.id.as_str(), WorkerId::PREFIX, text);
    let by_id = workers.iter().any(has_id);
    let found: Vec<WorkerView> =
        workers.into_iter().filter(|worker| if by_id { has_id(worker) } else { worker.name == text }).collect();
    resolve::only(
        text,
        those_that_live(found),
        |worker| worker.id.to_string(),
        "worker.not_found",
        "worker",
        "nightshift list workers",
    )
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use nightshift_protocol::machine::{MachineFacts, Offers, SandboxReport};
    use nightshift_protocol::time::TimestampMs;

    use super::*;

    fn worker(id: &str, silent: bool) -> WorkerView {
        let machine = MachineFacts {
            host: "host".to_owned(),
            os: "os".to_owned(),
            processor: "cpu".to_owned(),
            cores: 1,
            features: Vec::new(),
            memory_bytes: 1,
            last_level_cache_bytes: None,
            core: None,
            cpp_toolchain: None,
            cuda_toolchain: None,
            gpus: Vec::new(),
            sandbox: SandboxReport::default(),
        };
        WorkerView {
            id: format!("wrk_{id:0>32}").parse().unwrap(),
            name: "box".to_owned(),
            embedded: false,
            last_seen_at: TimestampMs(0),
            leases: 0,
            offers: Offers {
                targets: Vec::new(),
                cpu_slots: 1,
                devices: Vec::new(),
                tools: std::collections::BTreeSet::new(),
                labels: std::collections::BTreeSet::new(),
                machine,
            },
            version: "0".to_owned(),
            draining: false,
            silent,
            readings: Vec::new(),
            read_at: None,
        }
    }

    #[test]
    fn a_name_means_the_worker_that_lives_and_not_its_earlier_lives() {
        let ids = |workers: Vec<WorkerView>| workers.into_iter().map(|worker| worker.id).collect::<Vec<_>>();
        let (dead, alive, other) = (worker("1", true), worker("2", false), worker("3", false));
        assert_eq!(ids(those_that_live(vec![dead.clone(), alive.clone()])), vec![alive.id.clone()]);
        assert_eq!(ids(those_that_live(vec![dead.clone()])), [dead.id], "the only one there is");
        assert_eq!(ids(those_that_live(vec![alive.clone(), other.clone()])), [alive.id, other.id], "it stays unclear");
    }
}
