//! Arguments of the commands that score and that make training rows.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use nightshift_protocol::score::RewardFormula;

/// `reward`.
#[derive(Debug, Args)]
pub(crate) struct Reward {
    /// What to do
    #[command(subcommand)]
    pub(crate) command: RewardCommand,
}

/// What `reward` does.
#[derive(Debug, Subcommand)]
pub(crate) enum RewardCommand {
    /// Recompute the rewards of stored attempts, from their stored evidence and judge ratings
    Recompute(Recompute),
    /// Answer reward calls of a trainer: build, check, time and score programs of a model
    Serve(ServeRewards),
}

/// `reward recompute`.
#[derive(Debug, Args)]
pub(crate) struct Recompute {
    /// Campaigns and runs; everything that is stored without them
    #[arg(value_name = "ID")]
    pub(crate) ids: Vec<String>,
    /// Only this formula; may be given several times
    #[arg(long = "formula", value_name = "NAME", value_parser = formula)]
    pub(crate) formulas: Vec<RewardFormula>,
}

/// `reward serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeRewards {
    /// Tasks of the programs: folders with a task.toml, or names of bundled examples
    #[arg(required = true, value_name = "TASK")]
    pub(crate) tasks: Vec<String>,
    /// Where to listen for reward calls; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7780", value_parser = super::address)]
    pub(crate) bind: SocketAddr,
    /// Formula of the rewards
    #[arg(long, value_name = "NAME", value_parser = formula, default_value = "published.1")]
    pub(crate) formula: RewardFormula,
    /// PROVIDER/NAME of the judge, then fallbacks after commas; by default programs are scored by the rules alone
    #[arg(long, value_name = "MODEL")]
    pub(crate) judge_model: Option<String>,
    /// Maximum number of programs that are scored in parallel, over all calls; workers limit the load of GPUs
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) parallel: u32,
    /// Maximum number of programs of a call
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) max_batch: u32,
    /// Time limit for scoring a program, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 900, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout_s: u64,
    /// Run programs even if this machine has no file and network sandbox
    #[arg(long)]
    pub(crate) allow_unsandboxed: bool,
}

/// What `export rollouts` writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RolloutLayout {
    /// Columns as verl reads them.
    Verl,
    /// Columns as TRL reads them.
    Trl,
}

/// How `export rollouts` writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RolloutFormat {
    /// Parquet files.
    Parquet,
    /// Files with one JSON object in each line.
    Jsonl,
}

/// `export rollouts`.
#[derive(Debug, Args)]
pub(crate) struct ExportRollouts {
    /// Campaigns and runs; everything that is stored without them
    #[arg(value_name = "ID")]
    pub(crate) ids: Vec<String>,
    /// The folder to write
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Only this layout; may be given twice
    #[arg(long, value_enum)]
    pub(crate) layout: Vec<RolloutLayout>,
    /// Only this kind of file; may be given twice
    #[arg(long = "file-format", value_enum)]
    pub(crate) format: Vec<RolloutFormat>,
    /// Formula of the rewards
    #[arg(long, value_name = "NAME", value_parser = formula, default_value = "published.1")]
    pub(crate) formula: RewardFormula,
    /// Share of the tasks that are kept for testing
    #[arg(long, value_name = "SHARE", default_value_t = 0.1, value_parser = share)]
    pub(crate) test_share: f64,
    /// Share of the tasks that are kept for validation
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    pub(crate) validation_share: f64,
    /// A task that is always in the test split; may be given several times
    #[arg(long = "held-out", value_name = "NAME")]
    pub(crate) held_out: Vec<String>,
    /// Seed of the assignment of tasks to splits
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) salt: String,
    /// Include scripted replies, which are marked
    #[arg(long)]
    pub(crate) with_scripted: bool,
    /// Write into a folder that exists already, and remove the files of an earlier export there
    #[arg(long)]
    pub(crate) force: bool,
}

fn formula(text: &str) -> Result<RewardFormula, String> {
    RewardFormula::parse(text).ok_or_else(|| {
        let names: Vec<&str> = RewardFormula::ALL.iter().map(|formula| formula.as_str()).collect();
        format!("expected one of {}", names.join(", "))
    })
}

fn share(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("`{text}` is no number"))?;
    if (0.0..=1.0).contains(&number) { Ok(number) } else { Err("a share is from 0 to 1".to_owned()) }
}
