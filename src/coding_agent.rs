//! Coding agents of this machine: they answer single prompts as a model does, or work on an agent session with the tools of
//! `nightshift mcp --run`.

mod collect;
mod current_server;
mod session;
mod watch;
mod workspace;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use nightshift_client::Client;
use nightshift_mcp::install::{ENTRY, Launch, TOKEN_VARIABLE};
use nightshift_optimizer::model::CommandConfig;
use nightshift_protocol::campaign::EXTERNAL;

pub(crate) use self::current_server::CurrentServer;
pub(crate) use self::watch::{work, work_during};
use crate::args::{DEFAULT_AT_ONCE, DEFAULT_TURN_TIMEOUT_S};
use crate::context::Context;

/// The provider of a command line.
const OWN_COMMAND: &str = "agent";
/// The folder of workspaces in the data folder.
const FOLDER: &str = "agents";
/// Timeout of a call of an MCP tool, in seconds. Waits of tools are shorter.
const CALL_TIMEOUT_S: u32 = 120;

/// A coding agent with a name of its own.
#[derive(Debug)]
struct KnownAgent {
    name: &'static str,
    /// Answers one prompt. Both read it from standard input and write their last message to standard output. Claude Code gets no
    /// tools; Codex may read files and run commands that change nothing, in its sandbox.
    answers: &'static [&'static str],
    /// Variables of its own that it sees when they are set: its key, its server, its model, and the folder of its settings and
    /// its stored sign-in.
    variables: &'static [&'static str],
}

/// Variables that every known agent sees when they are set: they lead its model calls out of a closed network.
const NETWORK_VARIABLES: [&str; 8] = [
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "https_proxy",
    "http_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
];

/// Takes the search of the web, which runs at the model's provider, out of the tools of Codex.
const NO_WEB_SEARCH: &str = "web_search=\"disabled\"";

const KNOWN: [KnownAgent; 2] = [
    KnownAgent {
        name: "claude",
        answers: &["claude", "--print", "--tools", "", "--strict-mcp-config"],
        variables: &[
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_AUTH_TOKEN",
            "CLAUDE_CODE_OAUTH_TOKEN",
            "ANTHROPIC_BASE_URL",
            "ANTHROPIC_MODEL",
            "CLAUDE_CONFIG_DIR",
        ],
    },
    KnownAgent {
        name: "codex",
        answers: &[
            "codex",
            "exec",
            "--ephemeral",
            "--skip-git-repo-check",
            "--sandbox",
            "read-only",
            "--color",
            "never",
            "-c",
            NO_WEB_SEARCH,
            "-",
        ],
        variables: &["CODEX_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL", "CODEX_HOME"],
    },
];

/// A coding agent of this machine.
#[derive(Debug, Clone)]
pub(crate) struct CodingAgent {
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    Known(&'static KnownAgent),
    /// A command line for a shell.
    Command(String),
}

impl CodingAgent {
    /// Returns the agent of a name, or else that of a command line.
    pub(crate) fn new(text: &str) -> Self {
        let known = KNOWN.iter().find(|known| known.name == text);
        Self { kind: known.map_or_else(|| Kind::Command(text.to_owned()), Kind::Known) }
    }

    /// Returns its name as a provider of models.
    pub(crate) fn name(&self) -> &'static str {
        match &self.kind {
            Kind::Known(known) => known.name,
            Kind::Command(_) => OWN_COMMAND,
        }
    }

    /// Returns whether it is a command line of the user.
    pub(crate) fn is_own_command(&self) -> bool {
        matches!(self.kind, Kind::Command(_))
    }

    /// Returns the name of the model whose agent sessions it works on.
    pub(crate) fn session_model(&self) -> String {
        format!("{EXTERNAL}/{}", self.name())
    }

    /// Returns the command that answers one prompt.
    pub(crate) fn answering(&self, context: &Context) -> CommandConfig {
        match &self.kind {
            Kind::Known(known) => {
                with_variables(context, known, known.answers.iter().map(|&part| part.to_owned()).collect())
            }
            Kind::Command(line) => shell(line),
        }
    }

    /// Returns the command that works on a session with an MCP server, which `file` describes, too.
    fn working(&self, context: &Context, server: &Launch, file: &Path) -> CommandConfig {
        match &self.kind {
            Kind::Known(known) if known.name == "codex" => with_variables(context, known, codex(server)),
            Kind::Known(known) => with_variables(context, known, claude(file)),
            Kind::Command(line) => shell(line),
        }
    }
}

fn shell(line: &str) -> CommandConfig {
    CommandConfig { shell: true, ..CommandConfig::new(vec![line.to_owned()]) }
}

fn with_variables(context: &Context, known: &KnownAgent, command: Vec<String>) -> CommandConfig {
    let is_set = |name: &&str| context.environment.get(name).is_some_and(|value| !value.is_empty());
    let all = known.variables.iter().copied().chain(NETWORK_VARIABLES);
    CommandConfig { env: all.filter(is_set).map(str::to_owned).collect(), ..CommandConfig::new(command) }
}

/// Claude Code: the tools of the session, and files of its folder. It runs no commands and asks for nothing.
fn claude(file: &Path) -> Vec<String> {
    let file = file.to_string_lossy().into_owned();
    let tools = format!("mcp__{ENTRY}");
    let parts = [
        "claude",
        "--print",
        "--mcp-config",
        &file,
        "--strict-mcp-config",
        "--tools",
        "Read,Glob,Grep,Edit,Write",
        "--permission-mode",
        "acceptEdits",
        "--allowedTools",
        &tools,
    ];
    parts.map(str::to_owned).to_vec()
}

/// Codex: the tools of the session, and its sandbox, which writes to its folder and to those of temporary files. It fails without
/// the MCP server.
fn codex(server: &Launch) -> Vec<String> {
    let parts = [
        "codex",
        "exec",
        "--ephemeral",
        "--skip-git-repo-check",
        "--sandbox",
        "workspace-write",
        "--color",
        "never",
        "-c",
        NO_WEB_SEARCH,
    ];
    let variables: &[&str] = if server.needs_token { &[TOKEN_VARIABLE] } else { &[] };
    // Texts and lists of texts look alike in JSON and in TOML.
    let settings = [
        ("command", serde_json::json!(server.command)),
        ("args", serde_json::json!(server.args)),
        ("env_vars", serde_json::json!(variables)),
        ("required", serde_json::json!(true)),
        ("tool_timeout_sec", serde_json::json!(CALL_TIMEOUT_S)),
        ("default_tools_approval_mode", serde_json::json!("approve")),
    ];
    let settings =
        settings.into_iter().flat_map(|(key, value)| ["-c".to_owned(), format!("mcp_servers.{ENTRY}.{key}={value}")]);
    parts.map(str::to_owned).into_iter().chain(settings).chain(["-".to_owned()]).collect()
}

/// What agents need to work on sessions.
pub(crate) struct Site<'a> {
    pub(crate) context: &'a Context,
    /// The server of the sessions.
    pub(crate) server: CurrentServer<'a>,
    pub(crate) agent: &'a CodingAgent,
    /// Maximum number of sessions at once.
    pub(crate) at_once: usize,
    /// Maximum time that an agent may let a turn wait.
    pub(crate) turn_timeout: Duration,
    /// The folder that keeps the workspaces; without one they are in the data folder, and are removed with their sessions.
    pub(crate) workspaces: Option<PathBuf>,
    /// Whether the agent took a turn of any session.
    pub(crate) is_known: AtomicBool,
}

impl<'a> Site<'a> {
    /// Returns a site with the defaults.
    pub(crate) fn new(context: &'a Context, client: &Client, agent: &'a CodingAgent) -> Self {
        Self {
            context,
            server: CurrentServer::new(context, client),
            agent,
            at_once: usize::try_from(DEFAULT_AT_ONCE).unwrap_or(1),
            turn_timeout: Duration::from_secs(DEFAULT_TURN_TIMEOUT_S.into()),
            workspaces: None,
            is_known: AtomicBool::new(false),
        }
    }

    fn root(&self) -> PathBuf {
        let root = self.workspaces.clone().unwrap_or_else(|| self.context.config().data_dir.join(FOLDER));
        std::path::absolute(&root).unwrap_or(root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claude_code_gets_the_server_of_the_session_and_no_shell() {
        let command = claude(Path::new("/w/.mcp.json"));
        let follows = |flag: &str| command.iter().skip_while(|part| *part != flag).nth(1).map(String::as_str);
        assert_eq!(follows("--mcp-config"), Some("/w/.mcp.json"));
        assert_eq!(follows("--allowedTools"), Some("mcp__nightshift"));
        assert!(command.contains(&"--strict-mcp-config".to_owned()), "{command:?}");
        assert!(!follows("--tools").unwrap_or("Bash").contains("Bash"), "{command:?}");
    }

    #[test]
    fn codex_gets_the_server_of_the_session_as_toml() {
        let args = ["--server", "https://a \"b\"", "mcp", "--run", "run_1"].map(str::to_owned).to_vec();
        let server = Launch { command: "/bin/night shift".to_owned(), args, needs_token: true };
        let command = codex(&server);
        let settings: Vec<&str> =
            command.iter().filter_map(|part| part.strip_prefix("mcp_servers.nightshift.")).collect();
        let read: toml::Table = toml::from_str(&settings.join("\n")).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(read["command"].as_str(), Some("/bin/night shift"));
        assert_eq!(read["args"].as_array().and_then(|args| args[1].as_str()), Some("https://a \"b\""));
        assert_eq!(read["env_vars"].as_array().and_then(|names| names[0].as_str()), Some(TOKEN_VARIABLE));
        assert_eq!(command.last().map(String::as_str), Some("-"));
        assert!(command.contains(&NO_WEB_SEARCH.to_owned()), "{command:?}");
        assert!(
            codex(&Launch { needs_token: false, ..server }).contains(&"mcp_servers.nightshift.env_vars=[]".to_owned())
        );
    }
}
