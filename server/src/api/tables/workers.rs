//! Workers as a table.

use nightshift_protocol::api::WorkerView;

use super::unknown;
use crate::api::attempts::Pairs;
use crate::api::workers::worker_views;
use crate::dispatch::Dispatch;
use crate::error::ApiFailure;
use crate::table::{Column, Row};

pub(super) const COLUMNS: &[Column] = &[
    Column::text("worker"),
    Column::text("name"),
    Column::flag("embedded"),
    Column::text("version"),
    Column::time("last_seen_at"),
    Column::flag("silent"),
    Column::flag("draining"),
    Column::integer("steps"),
    Column::text("labels"),
    Column::text("targets"),
    Column::integer("cpu_slots"),
    Column::integer("gpus"),
    Column::text("gpu_names"),
    Column::text("host"),
    Column::text("os"),
    Column::text("processor"),
    Column::integer("cores"),
    Column::integer("memory_bytes"),
];

pub(super) async fn rows(dispatch: &Dispatch, query: &Pairs) -> Result<Vec<Row>, ApiFailure> {
    let mut silent = None;
    for (name, value) in query {
        silent = match (name.as_str(), value.as_str()) {
            ("show", "") => silent,
            ("show", "silent") => Some(true),
            ("show", "alive") => Some(false),
            ("show", _) => {
                let message = format!("`show`: `{value}` is not known: expected one of alive, silent");
                return Err(ApiFailure::bad("request.invalid_query", message));
            }
            _ => return Err(unknown(name, &["show"])),
        };
    }
    let found =
        worker_views(dispatch).await?.into_iter().filter(|worker| silent.is_none_or(|wanted| worker.silent == wanted));
    Ok(found.map(row).collect())
}

fn row(worker: WorkerView) -> Row {
    let (offers, machine) = (worker.offers.clone(), worker.offers.machine);
    let joined = |words: Vec<String>| Some(words.join(", ")).filter(|words| !words.is_empty());
    let labels = offers.labels.into_iter().map(String::from).collect();
    let targets = offers.targets.iter().map(|target| target.as_str().to_owned()).collect();
    let gpus = u64::try_from(machine.gpus.len()).unwrap_or(u64::MAX);
    let gpu_names = machine.gpus.into_iter().map(|gpu| gpu.name).collect();
    vec![
        worker.id.to_string().into(),
        worker.name.into(),
        worker.embedded.into(),
        worker.version.into(),
        worker.last_seen_at.into(),
        worker.silent.into(),
        worker.draining.into(),
        worker.leases.into(),
        joined(labels).into(),
        joined(targets).into(),
        offers.cpu_slots.into(),
        gpus.into(),
        joined(gpu_names).into(),
        machine.host.into(),
        machine.os.into(),
        machine.processor.into(),
        machine.cores.into(),
        machine.memory_bytes.into(),
    ]
}
