//! Adds this MCP server to the configuration of a coding agent.
//!
//! All functions convert texts. The entry named [`ENTRY`] is replaced; everything else in the file, including comments,
//! stays unchanged. A file that cannot be parsed is refused and stays unchanged.

mod json;
mod toml;
mod yaml;

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

/// The name of the entry.
pub const ENTRY: &str = "nightshift";

/// The environment variable with the token of the server.
pub const TOKEN_VARIABLE: &str = "NIGHTSHIFT_SERVER__TOKEN";

/// Timeout of a call, in seconds. Waits of tools are shorter.
const CALL_TIMEOUT_S: u32 = 120;

/// A coding agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Client {
    /// Claude Code.
    ClaudeCode,
    /// Codex.
    Codex,
    /// Cursor.
    Cursor,
    /// Visual Studio Code.
    VsCode,
    /// Goose.
    Goose,
}

impl Client {
    /// All clients.
    pub const ALL: [Self; 5] = [Self::ClaudeCode, Self::Codex, Self::Cursor, Self::VsCode, Self::Goose];

    /// Returns its name for people.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::ClaudeCode => "Claude Code",
            Self::Codex => "Codex",
            Self::Cursor => "Cursor",
            Self::VsCode => "VS Code",
            Self::Goose => "Goose",
        }
    }
}

/// Folders that contain the configuration files.
#[derive(Debug, Clone)]
pub struct Places {
    /// The folder of the project.
    pub project: PathBuf,
    /// The folder of Codex; `CODEX_HOME`, or `.codex` in the home folder.
    pub codex: Option<PathBuf>,
    /// The configuration folder; `XDG_CONFIG_HOME`, or `.config` in the home folder.
    pub config: Option<PathBuf>,
}

/// The command with which the client starts this program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// The program.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Whether it needs the token of a server from the client's environment.
    pub needs_token: bool,
}

/// Why a configuration is not written.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The file does not have the client's format.
    #[error("the file is not understood: {reason}")]
    NotUnderstood {
        /// The problem, with its position.
        reason: String,
    },
    /// The folder of the file is unknown.
    #[error("the folder of {client}'s configuration is not known: HOME is not set")]
    NoPlace {
        /// The client.
        client: &'static str,
    },
}

/// Returns the client's configuration file.
pub fn file(client: Client, places: &Places) -> Result<PathBuf, InstallError> {
    let below = |folder: &Option<PathBuf>, name: &str| {
        let folder = folder.as_deref().ok_or(InstallError::NoPlace { client: client.label() })?;
        Ok(Path::join(folder, name))
    };
    match client {
        Client::ClaudeCode => Ok(places.project.join(".mcp.json")),
        Client::Cursor => Ok(places.project.join(".cursor/mcp.json")),
        Client::VsCode => Ok(places.project.join(".vscode/mcp.json")),
        Client::Codex => below(&places.codex, "config.toml"),
        Client::Goose => below(&places.config, "goose/config.yaml"),
    }
}

/// Returns the text of the file with the entry. `before` is empty if the file does not exist.
pub fn with_entry(client: Client, before: &str, launch: &Launch) -> Result<String, InstallError> {
    match client {
        Client::ClaudeCode => {
            json::with_entry(before, "mcpServers", &json_entry(launch, "${NIGHTSHIFT_SERVER__TOKEN:-}", true))
        }
        Client::Cursor => {
            json::with_entry(before, "mcpServers", &json_entry(launch, "${env:NIGHTSHIFT_SERVER__TOKEN}", false))
        }
        Client::VsCode => {
            json::with_entry(before, "servers", &json_entry(launch, "${env:NIGHTSHIFT_SERVER__TOKEN}", true))
        }
        Client::Codex => toml::with_entry(before, launch),
        Client::Goose => yaml::with_entry(before, launch),
    }
}

/// Returns the entry for clients with JSON files. No file contains the token itself.
fn json_entry(launch: &Launch, token: &str, has_type: bool) -> Map<String, Value> {
    let mut entry = Map::new();
    if has_type {
        entry.insert("type".to_owned(), json!("stdio"));
    }
    entry.insert("command".to_owned(), json!(launch.command));
    entry.insert("args".to_owned(), json!(launch.args));
    if launch.needs_token {
        entry.insert("env".to_owned(), json!({ TOKEN_VARIABLE: token }));
    }
    entry
}

/// Returns the error for a file that does not have the client's format.
#[expect(clippy::needless_pass_by_value, reason = "it is the function of `map_err`")]
fn not_understood(reason: impl ToString) -> InstallError {
    InstallError::NotUnderstood { reason: reason.to_string() }
}

#[cfg(test)]
mod tests;
