//! `prompts`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `prompts`.
#[derive(Debug, Args)]
pub(crate) struct Prompts {
    /// The command
    #[command(subcommand)]
    pub(crate) command: PromptsCommand,
}

/// Commands of `prompts`.
#[derive(Debug, Subcommand)]
pub(crate) enum PromptsCommand {
    /// Render every prompt on recorded steps, and name unknown variables by file and line
    Check {
        /// Templates that replace those of the same name, as in `prompts/` of the sources: `AGENT/STAGE/user.md`
        #[arg(value_name = "DIR")]
        folder: Option<PathBuf>,
    },
}
