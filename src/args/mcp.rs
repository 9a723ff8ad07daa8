//! Arguments of `mcp`.

use clap::{Args, Subcommand, ValueEnum};
use nightshift_mcp::install::Client;

/// The text below the options of `mcp`.
const AFTER_HELP: &str = "\
Without a command, it serves one client over standard input and output, and ends with its input.
Clients start it themselves; `nightshift mcp install CLIENT` tells them how.

Examples:
  nightshift mcp install claude-code
  nightshift mcp install codex --print
  nightshift mcp --run RUN
  nightshift --server https://nightshift.example mcp install cursor";

/// `mcp`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP, args_conflicts_with_subcommands = true)]
pub(crate) struct Mcp {
    /// The command; by default serve a client
    #[command(subcommand)]
    pub(crate) command: Option<McpCommand>,
    /// Options of serving
    #[command(flatten)]
    pub(crate) serve: McpServe,
}

/// Options of serving.
#[derive(Debug, Clone, Args)]
pub(crate) struct McpServe {
    /// Offer only the agent session of this run, and refuse every other run; without programs judged on this machine
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
    /// Offer only tools that change nothing on the server, whatever the token allows
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Run programs even if this machine has no file and network sandbox
    #[arg(long)]
    pub(crate) allow_unsandboxed: bool,
}

/// Commands of `mcp`.
#[derive(Debug, Subcommand)]
pub(crate) enum McpCommand {
    /// Add Nightshift to the configuration of a coding agent
    Install(McpInstall),
}

/// `mcp install`.
#[derive(Debug, Args)]
pub(crate) struct McpInstall {
    /// The coding agent
    #[arg(value_name = "CLIENT", value_enum)]
    pub(crate) client: ClientName,
    /// Print the configuration and the name of its file instead of writing it
    #[arg(long)]
    pub(crate) print: bool,
    /// The configuration file, instead of the client's usual one
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<std::path::PathBuf>,
    /// Offer only tools that change nothing on the server
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Run programs without a file and network sandbox, where this machine has none
    #[arg(long)]
    pub(crate) allow_unsandboxed: bool,
}

/// Coding agents by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClientName {
    /// `.mcp.json` of this folder
    ClaudeCode,
    /// `~/.codex/config.toml`
    Codex,
    /// `.cursor/mcp.json` of this folder
    Cursor,
    /// `.vscode/mcp.json` of this folder
    Vscode,
    /// `~/.config/goose/config.yaml`
    Goose,
}

impl From<ClientName> for Client {
    fn from(name: ClientName) -> Self {
        match name {
            ClientName::ClaudeCode => Self::ClaudeCode,
            ClientName::Codex => Self::Codex,
            ClientName::Cursor => Self::Cursor,
            ClientName::Vscode => Self::VsCode,
            ClientName::Goose => Self::Goose,
        }
    }
}
