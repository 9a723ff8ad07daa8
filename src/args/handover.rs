//! Arguments of `handover`: a campaign goes to a machine without a network and comes back.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use nightshift_protocol::api::MAX_HANDOVER_WAIT_S;

use crate::limits::duration_ms;

const AFTER_HELP: &str = "\
Examples:
  nightshift handover create cmp_0198 --out night.out            # check out: it is paused here
  nightshift handover run night.out --out night.back --for 25m   # on the other machine
  nightshift handover finish night.back                          # take the results in, once
  nightshift handover cancel cmp_0198                            # take it back without results

The file night.out contains a key: anyone who has it can write a result that `finish` accepts.";

/// `handover`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Handover {
    /// What to do
    #[command(subcommand)]
    pub(crate) command: HandoverCommand,
}

/// What `handover` does.
#[derive(Debug, Subcommand)]
pub(crate) enum HandoverCommand {
    /// Check a campaign out into a file: it is paused here until its results are back
    Create(HandoverCreate),
    /// Carry out all steps of such a file that need no agent, with a server of its own, and write the results to another file
    Run(HandoverRun),
    /// Take the results in; the same file again is fine
    Finish {
        /// The file that `handover run` wrote
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Take a campaign back without results: it goes on here, and its results are refused
    Cancel {
        /// Campaign: an id, the beginning of one, or the last digits of one
        #[arg(value_name = "CAMPAIGN")]
        campaign: String,
    },
}

/// `handover create`.
#[derive(Debug, Args)]
pub(crate) struct HandoverCreate {
    /// Campaign: an id, the beginning of one, or the last digits of one
    #[arg(value_name = "CAMPAIGN")]
    pub(crate) campaign: String,
    /// The file to write
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Write the file of a campaign that is handed over already once more
    #[arg(long)]
    pub(crate) again: bool,
    /// Leave out artifacts that the other machine has since it wrote this result
    #[arg(long, value_name = "RESULT")]
    pub(crate) since: Option<PathBuf>,
    /// Seconds for steps in flight to end; those that have not ended are given back, and begin again on the other machine
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 60,
        value_parser = clap::value_parser!(u32).range(0..=i64::from(MAX_HANDOVER_WAIT_S))
    )]
    pub(crate) wait: u32,
    /// Replace the file if it exists
    #[arg(long)]
    pub(crate) force: bool,
}

/// `handover run`.
#[derive(Debug, Args)]
pub(crate) struct HandoverRun {
    /// The file that `handover create` wrote
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The file to write the results to; an earlier result of the same hand-over is replaced
    #[arg(long, value_name = "RESULT")]
    pub(crate) out: PathBuf,
    /// End after this time at the latest, for example 25m; the same command again goes on
    #[arg(long = "for", value_name = "TIME", value_parser = duration_ms)]
    pub(crate) limit_ms: Option<u64>,
}
