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
    /// Hand a campaign over to a file; it is paused here until its results return
    Create(HandoverCreate),
    /// Carry out all steps of a file that need no agent, with a local server, and write the results to another file
    Run(HandoverRun),
    /// Import the results; importing a file twice is safe
    Finish {
        /// The file that `handover run` wrote
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Take back a campaign without results: it continues here, and later results are refused
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
    /// Write the file of a handed-over campaign again
    #[arg(long)]
    pub(crate) again: bool,
    /// Omit artifacts that the other machine has, according to this result of it
    #[arg(long, value_name = "RESULT")]
    pub(crate) since: Option<PathBuf>,
    /// Seconds to wait for running steps; steps that do not end are returned, and begin again on the other machine
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
    /// End after this time, for example 25m; the same command continues
    #[arg(long = "for", value_name = "TIME", value_parser = duration_ms)]
    pub(crate) limit_ms: Option<u64>,
}
