//! Arguments of `agent`.

use std::path::PathBuf;

use clap::Args;

/// Default time that an agent may let a turn wait, in seconds: as long as a command may take for an answer.
pub(crate) const DEFAULT_TURN_TIMEOUT_S: u32 = 1_200;
/// Default number of sessions at once.
pub(crate) const DEFAULT_AT_ONCE: u32 = 4;

/// Text below the options of `agent`.
const AFTER_HELP: &str = "\
With --of it ends when the sessions are over, without it when it is interrupted.

Examples:
  nightshift run row_softmax --strategy agent --model openai/MODEL_NAME --coder-model external
  nightshift agent claude
  nightshift agent './my-agent --config \"$NIGHTSHIFT_MCP_CONFIG\"' --of RUN";

/// `agent`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Agent {
    /// The coding agent: `claude` (Claude Code), `codex`, or a command line that reads its instructions from standard input and
    /// starts the MCP server that the file in `NIGHTSHIFT_MCP_CONFIG` describes
    #[arg(value_name = "AGENT")]
    pub(crate) command: String,
    /// Only sessions of this campaign or run: an id, the beginning of one, or the last digits of one
    #[arg(long, value_name = "ID")]
    pub(crate) of: Option<String>,
    /// Only sessions of this model, for example `external/night-shift`
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Maximum number of sessions at the same time
    #[arg(long, value_name = "N", default_value_t = DEFAULT_AT_ONCE, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) at_once: u32,
    /// Seconds that a turn may wait for the agent before it is started again
    #[arg(long, value_name = "SECONDS", default_value_t = DEFAULT_TURN_TIMEOUT_S, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(crate) turn_timeout: u32,
    /// Keep the workspaces below this folder, instead of removing each with its session
    #[arg(long, value_name = "DIR")]
    pub(crate) workspaces: Option<PathBuf>,
}
