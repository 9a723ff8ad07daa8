//! Arguments of the commands that keep, rebuild and delete.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::reward::ExportRollouts;
use crate::limits::duration_ms;

/// What `export` writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// A campaign as one compressed file that `import` rebuilds.
    Archive,
    /// A campaign or a run as JSON for people and other programs; it cannot be imported.
    Json,
}

/// A form in which the program of an attempt is taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgramForm {
    /// A folder that builds, checks and times it by itself.
    Cmake,
    /// A file of Python with the class `ModelNew`.
    ModelNew,
}

/// What `export` writes besides campaigns.
#[derive(Debug, Subcommand)]
pub(crate) enum ExportCommand {
    /// Write training rows of both skills, as verl and TRL read them
    Rollouts(ExportRollouts),
}

/// `export`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Export {
    /// What else can be written
    #[command(subcommand)]
    pub(crate) command: Option<ExportCommand>,
    /// Campaign; with `--format json` also a run; with `--as` an attempt, RUN/NUMBER
    #[arg(value_name = "ID", required = true)]
    pub(crate) id: Option<String>,
    /// The file to write; with `--as cmake` the folder
    #[arg(long, value_name = "FILE", required = true)]
    pub(crate) out: Option<PathBuf>,
    /// The program of an attempt, in this form
    #[arg(long = "as", value_enum, value_name = "FORM", conflicts_with = "format")]
    pub(crate) form: Option<ProgramForm>,
    /// What to write
    #[arg(long, value_enum, default_value = "archive")]
    pub(crate) format: ExportFormat,
    /// Replace an existing file
    #[arg(long)]
    pub(crate) force: bool,
}

/// `import`.
#[derive(Debug, Args)]
pub(crate) struct Import {
    /// A file that `export` wrote
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

/// `prune`.
#[derive(Debug, Args)]
pub(crate) struct Prune {
    /// How long ago the last run of a campaign has to have ended, for example 30d; an hour at least
    #[arg(long, value_name = "TIME", value_parser = duration_ms)]
    pub(crate) older_than: u64,
    /// Only say which campaigns it would be
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
}
