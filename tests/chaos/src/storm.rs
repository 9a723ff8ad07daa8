//! The storm: everything runs, one thing after the other breaks, everything is healed, and the books are checked.

mod artifacts;
pub(crate) mod check;
mod clock;
pub(crate) mod database;
mod fault;
pub(crate) mod fleet;
mod inject;
pub(crate) mod load;
mod objects;
pub(crate) mod process;
mod proxy;

mod settle;
mod summary;
mod violation;

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use serde::Serialize;

use self::artifacts::Artifacts;
use self::fault::Plan;
use self::fleet::Fleet;
use self::inject::Injector;
use self::load::Load;
use self::summary::Summary;
use self::violation::Violation;

/// How long the storm may go on beyond its faults' own times before it is given up.
const PATIENCE_PER_FAULT: Duration = Duration::from_secs(6);

/// Which database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// A file, with one server.
    Sqlite,
    /// A cluster of its own, with several servers.
    Postgres,
}

/// What is asked for.
#[derive(Args)]
pub(crate) struct Options {
    /// Which database.
    #[arg(long, value_enum)]
    database: Kind,
    /// How many faults.
    #[arg(long, default_value_t = 1_000)]
    faults: u32,
    /// Where all choices come from; drawn, and printed, without it.
    #[arg(long)]
    seed: Option<u64>,
    /// Ends the faults after so many minutes, however many there were: then the storm counts as failed.
    #[arg(long, default_value_t = 60)]
    minutes: u64,
    /// Keeps the folder with database and logs, also when all went well.
    #[arg(long)]
    keep: bool,
    /// Prints only the summary's JSON, without lines for people.
    #[arg(long)]
    json: bool,
}

/// Runs a storm. Returns whether everything held.
pub(crate) fn run(options: &Options) -> anyhow::Result<bool> {
    let seed = options.seed.unwrap_or_else(rand::random);
    eprintln!(
        "seed {seed}: `nightshift-chaos storm --database {} --faults {} --seed {seed}` draws the same faults again",
        name(options.database),
        options.faults
    );
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let summary = runtime.block_on(storm(options, seed))?;
    runtime.shutdown_background();
    let mut out = std::io::stdout();
    if !options.json {
        writeln!(out, "{summary}")?;
    }
    writeln!(out, "{}", serde_json::to_string(&summary)?)?;
    for violation in &summary.violations {
        eprintln!("seed {seed}: {violation}");
    }
    Ok(summary.violations.is_empty())
}

pub(crate) fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Sqlite => "sqlite",
        Kind::Postgres => "postgres",
    }
}

async fn storm(options: &Options, seed: u64) -> anyhow::Result<Summary> {
    let scratch = tempfile::Builder::new().prefix("nightshift-chaos-").tempdir()?;
    let folder = scratch.path().to_owned();
    let began = Instant::now();
    let outcome = in_folder(options, seed, &folder, began).await;
    let went_well = outcome.as_ref().is_ok_and(|summary| summary.violations.is_empty());
    if options.keep || !went_well {
        let kept: PathBuf = scratch.keep();
        eprintln!("database and logs are kept in {}", kept.display());
    }
    outcome
}

async fn in_folder(options: &Options, seed: u64, folder: &std::path::Path, began: Instant) -> anyhow::Result<Summary> {
    let fleet = Arc::new(
        Fleet::start(options.database, folder, fleet::OF_STORM, &[]).await.context("the fleet does not start")?,
    );
    let supervisor = tokio::spawn(fleet.clone().supervise());
    let load = Arc::new(Load::prepare(&fleet, seed).await.context("the load cannot be prepared")?);
    let loading = tokio::spawn(load.clone().run());
    let artifacts = Arc::new(Artifacts::new(fleet.client()?, seed));
    let storing = tokio::spawn(artifacts.clone().run());

    let plan = Plan::new(seed, options.database, fleet.servers.len(), fleet.workers.len());
    let injector = Injector::new(fleet.clone());
    let deadline = Duration::from_secs(options.minutes.saturating_mul(60));
    let limit = deadline.min(Duration::from_mins(1) + PATIENCE_PER_FAULT * options.faults);
    let mut violations: Vec<Violation> = Vec::new();
    if tokio::time::timeout(limit, injector.inject(plan, options.faults)).await.is_err() {
        violations.push(Violation::new("the storm", format!("only {} faults were injected in time", injector.count())));
    }
    injector.heal().await;
    let storm = began.elapsed();
    load.stop();
    artifacts.stop();
    loading.await?;
    storing.await?;
    let settled = settle::settle(&fleet, &load, &mut violations).await;
    supervisor.abort();
    violations.extend(fleet.stop().await);
    let facts = check::check(&fleet, &load, &artifacts, &mut violations).await.context("the books cannot be read")?;
    Ok(Summary::new(options.database, seed, injector.done(), facts, storm, settled, fleet.restarts(), violations))
}
