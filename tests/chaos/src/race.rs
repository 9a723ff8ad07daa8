//! Races: two processes want the same thing at the same moment, round after round. Exactly one may get it, each time.
//!
//! On Postgres the two speak to two servers, or to the database directly; on `SQLite` both speak to the one server that
//! can have it.

mod direct;
mod racers;
mod through_servers;

use std::fmt::Debug;
use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use clap::Args;
use serde_json::json;

use self::racers::Racers;
use crate::storm::fleet::{Fleet, Size};
use crate::storm::{Kind, name};

/// What is asked for.
#[derive(Args)]
pub(crate) struct Options {
    /// Which database.
    #[arg(long, value_enum)]
    database: Kind,
    /// Rounds of each race.
    #[arg(long, default_value_t = 50)]
    rounds: u32,
}

/// What races came to.
#[derive(Debug, Default)]
struct Score {
    rounds: std::collections::BTreeMap<&'static str, u32>,
    wrong: Vec<String>,
}

impl Score {
    /// Counts a round; `held` says whether exactly one won.
    fn round(&mut self, race: &'static str, held: bool, told: impl Debug) {
        *self.rounds.entry(race).or_default() += 1;
        if !held {
            self.wrong.push(format!("{race}, round {}: {told:?}", self.rounds[race]));
        }
    }
}

/// Runs the races. Returns whether exactly one won each time.
pub(crate) fn run(options: &Options) -> anyhow::Result<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let score = runtime.block_on(races(options))?;
    runtime.shutdown_background();
    let summary = json!({ "database": name(options.database), "rounds": score.rounds, "wrong": score.wrong });
    writeln!(std::io::stdout(), "{summary}")?;
    for wrong in &score.wrong {
        eprintln!("{wrong}");
    }
    Ok(score.wrong.is_empty())
}

async fn races(options: &Options) -> anyhow::Result<Score> {
    let scratch = tempfile::Builder::new().prefix("nightshift-races-").tempdir()?;
    let mut score = Score::default();
    servers(options, scratch.path(), &mut score).await?;
    match options.database {
        Kind::Sqlite => direct::on_sqlite(options.rounds.min(10), scratch.path(), &mut score).await?,
        Kind::Postgres => direct::on_postgres(options.rounds, scratch.path(), &mut score).await?,
    }
    Ok(score)
}

/// Races through servers whose agents and workers do nothing: the racers are the workers.
async fn servers(options: &Options, folder: &Path, score: &mut Score) -> anyhow::Result<()> {
    // Racers send no heartbeats.
    let idle = ["--agent-slots", "0", "--lease-ms", "600000"].map(str::to_owned);
    let fleet =
        Fleet::start(options.database, folder, Size { replicas: 2, workers: 0 }, &idle).await.context("no servers")?;
    let addresses: Vec<String> =
        fleet.servers.iter().filter_map(|seat| seat.direct).map(|addr| format!("http://{addr}")).collect();
    let racers = Racers::start(folder, |n| {
        // One server each, as far as there are so many.
        vec!["--server".to_owned(), addresses[n % addresses.len()].clone()]
    })?;
    through_servers::races(&addresses, racers, options.rounds, score).await?;
    let ended = fleet.stop().await;
    anyhow::ensure!(ended.is_empty(), "servers did not end in peace: {ended:?}");
    Ok(())
}
