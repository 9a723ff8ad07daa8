//! Entering this MCP server into the configuration of a coding agent.
//!
//! Everything here turns a text into a text. An entry of the name [`ENTRY`] is written anew; everything else in the file,
//! comments included, stays as it is. A file that is not understood is refused and stays as it is, too.

mod json;
mod toml;
mod yaml;

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

/// The name of the entry.
pub const ENTRY: &str = "nightshift";

/// The variable with the token of the server.
pub const TOKEN_VARIABLE: &str = "NIGHTSHIFT_SERVER__TOKEN";

/// Longest time that a call may take, in seconds: waits of tools are shorter.
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
    /// Every one.
    pub const ALL: [Self; 5] = [Self::ClaudeCode, Self::Codex, Self::Cursor, Self::VsCode, Self::Goose];

    /// Its name for people.
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

/// Folders that configuration files are found below.
#[derive(Debug, Clone)]
pub struct Places {
    /// The folder of the project.
    pub project: PathBuf,
    /// The folder of Codex; `CODEX_HOME`, or `.codex` in the home folder.
    pub codex: Option<PathBuf>,
    /// The folder of configurations; `XDG_CONFIG_HOME`, or `.config` in the home folder.
    pub config: Option<PathBuf>,
}

/// How the client starts this program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// The program.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Whether it needs the token of a server, from the environment of the client.
    pub needs_token: bool,
}

/// Why a configuration is not written.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The file is not what the client reads.
    #[error("the file is not understood: {reason}")]
    NotUnderstood {
        /// What is wrong, with the place.
        reason: String,
    },
    /// The folder of the file is not known.
    #[error("the folder of {client}'s configuration is not known: HOME is not set")]
    NoPlace {
        /// The client.
        client: &'static str,
    },
}

/// Returns the file that the client reads.
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

/// Returns the text of the file with the entry in it; `before` is empty where there is no file yet.
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

/// The entry for clients whose files are JSON. The token itself is in no file.
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

/// A file that is not what the client reads.
#[expect(clippy::needless_pass_by_value, reason = "it is the function of `map_err`")]
fn not_understood(reason: impl ToString) -> InstallError {
    InstallError::NotUnderstood { reason: reason.to_string() }
}

#[cfg(test)]
mod tests;
