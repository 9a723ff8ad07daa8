//! Measures the durable engine as a whole: server, driver, event log, claims, leases and store, on either database.
//!
//! Each subcommand prints exactly one line of JSON; `steps` and `leased` print it in the form of `benches/peers`. What
//! each figure means is in `docs/evidence/engine.md`.

mod campaign;
mod child;
mod cost;
mod figure;
mod index;
mod leased;
mod measured;
mod million;
mod place;
mod ready;
mod restart;
mod setup;
mod steps;
mod trivial;
mod watch;
mod worker_lost;
mod workload;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// As in `nightshift` itself.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures the durable engine, and prints one line of JSON.
#[derive(Debug, Parser)]
struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Steps that the server's own agents carry out, in process
    Steps(steps::Options),
    /// Steps that workers lease and report over HTTP
    Leased(leased::Options),
    /// From a decision to the start of its step at a worker
    Ready(ready::Options),
    /// The server killed with many open runs; its memory and its idle load before
    Restart(restart::Options),
    /// A worker killed with a step in its hands
    WorkerLost(worker_lost::Options),
    /// The first tenth of many steps against the last one
    Million(million::Options),
    /// What a step costs as one run grows to its last attempt
    Campaign(campaign::Options),
    /// Several servers that write into the index of attempts
    Index(index::Options),
    /// A server to be killed by `restart`
    #[command(hide = true)]
    ServerChild(child::ServerOptions),
    /// A worker to be killed by `worker-lost`
    #[command(hide = true)]
    WorkerChild(child::WorkerOptions),
}

fn main() -> ExitCode {
    let options = Options::parse();
    match measure(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:?}");
            ExitCode::FAILURE
        }
    }
}

fn measure(options: Options) -> anyhow::Result<()> {
    setup::log();
    setup::raise_file_limit()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match options.what {
            What::Steps(options) => steps::run(options).await,
            What::Leased(options) => leased::run(options).await,
            What::Ready(options) => ready::run(options).await,
            What::Restart(options) => restart::run(options).await,
            What::WorkerLost(options) => worker_lost::run(options).await,
            What::Million(options) => million::run(options).await,
            What::Campaign(options) => campaign::run(options).await,
            What::Index(options) => index::run(options).await,
            What::ServerChild(options) => child::serve(options).await,
            What::WorkerChild(options) => child::work(options).await,
        }
    })
}
