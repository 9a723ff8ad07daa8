//! The processes that the orchestrator starts, stops and kills.

mod control;
mod racer;
mod server;
mod worker;

use std::io::{Read as _, Write as _};

use clap::Subcommand;
use nightshift_engine::clock::Clock as _;
use nightshift_server::SystemClock;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

pub(crate) use control::Control;
pub(crate) use racer::{Contest, Order, Prize};
pub(crate) use server::{BUCKET, OBJECT_KEY, OBJECT_SECRET, PREFIX, TOKEN, WORKER_TOKEN, open};

/// What a process is.
#[derive(Subcommand)]
pub(crate) enum Role {
    /// A server with a toy workflow and toy agents.
    Server(server::Options),
    /// A worker with simulated work.
    Worker(worker::Options),
    /// A process that competes for a prize with another one.
    Racer(racer::Options),
    /// Prints its wall clock, in milliseconds since 1970.
    Clock,
}

/// Runs until it is told to end.
pub(crate) fn run(role: Role) -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing::Level::INFO).with_ansi(false).init();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let outcome = match role {
        Role::Server(options) => runtime.block_on(async { server::run(options, told_to_end()?).await }),
        Role::Worker(options) => runtime.block_on(async { worker::run(options, told_to_end()?).await }),
        Role::Racer(options) => runtime.block_on(racer::run(options)),
        Role::Clock => writeln!(std::io::stdout(), "{}", SystemClock.now().0).map_err(Into::into),
    };
    runtime.shutdown_background();
    outcome
}

/// Ends with SIGTERM. When the orchestrator is gone, which holds the other end of the standard input, the process goes
/// with it at once.
fn told_to_end() -> anyhow::Result<CancellationToken> {
    let end = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let told = end.clone();
    tokio::spawn(async move {
        terminate.recv().await;
        told.cancel();
    });
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(3);
    });
    Ok(end)
}
