//! A worker: the real lease loop over the real client, with work that is a toy.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use nightshift_client::Client;
use nightshift_protocol::api::RegisterWorker;
use nightshift_worker::lease;
use tokio_util::sync::CancellationToken;

use super::server::WORKER_TOKEN;
use crate::toy::{Log, ToyWork, offers};

#[derive(Args)]
pub(crate) struct Options {
    /// Addresses of the servers, with commas between them.
    #[arg(long)]
    servers: String,
    /// Where executions are written down.
    #[arg(long)]
    log: PathBuf,
    /// Name in lists.
    #[arg(long)]
    name: String,
}

pub(super) async fn run(options: Options, end: CancellationToken) -> anyhow::Result<()> {
    let client = Arc::new(Client::new(&options.servers, Some(WORKER_TOKEN.to_owned().into()))?);
    let work = Arc::new(ToyWork { log: Log::open(&options.log)? });
    let introduction =
        RegisterWorker { name: options.name, embedded: false, offers: offers(), version: "chaos".to_owned() };
    lease::serve(client, work, introduction, end).await?;
    Ok(())
}
