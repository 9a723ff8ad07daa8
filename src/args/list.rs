//! Arguments of `list`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use nightshift_protocol::api::TableFormat;
use nightshift_protocol::run::RunStatus;

use super::AttemptFlags;

/// What `list` lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Noun {
    /// Campaigns.
    Campaigns,
    /// Runs.
    Runs,
    /// Attempts, over all runs.
    Attempts,
    /// Workers.
    Workers,
    /// Servers that share the database.
    Servers,
}

/// `list`.
#[derive(Debug, Args)]
pub(crate) struct List {
    /// What to list
    #[arg(value_enum, default_value = "campaigns")]
    pub(crate) noun: Noun,
    /// Only runs or attempts of this campaign
    #[arg(long, value_name = "ID")]
    pub(crate) campaign: Option<String>,
    /// Only runs of this status
    #[arg(long, value_parser = status)]
    pub(crate) status: Option<RunStatus>,
    /// Maximum number of rows
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500))]
    pub(crate) limit: u32,
    /// Only rows before this position, which the end of the previous page shows
    #[arg(long, value_name = "CURSOR")]
    pub(crate) before: Option<String>,
    /// Write the whole list as a table: csv, json or parquet
    #[arg(long, value_name = "FORMAT", value_parser = table_format, conflicts_with_all = ["limit", "before"])]
    pub(crate) format: Option<TableFormat>,
    /// The file for the whole list; its extension, .csv, .json or .parquet, is the format
    #[arg(long, value_name = "FILE", conflicts_with_all = ["limit", "before"])]
    pub(crate) out: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long, requires = "out")]
    pub(crate) force: bool,
    /// Which attempts
    #[command(flatten)]
    pub(crate) attempts: AttemptFlags,
}

fn table_format(text: &str) -> Result<TableFormat, String> {
    TableFormat::parse(text)
        .ok_or_else(|| format!("expected one of {}", TableFormat::ALL.map(TableFormat::as_str).join(", ")))
}

pub(super) fn status(text: &str) -> Result<RunStatus, String> {
    RunStatus::parse(text).ok_or_else(|| {
        let names: Vec<&str> = RunStatus::ALL.iter().map(|status| status.as_str()).collect();
        format!("expected one of {}", names.join(", "))
    })
}
