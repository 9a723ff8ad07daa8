//! `--agent`: a coding agent of this machine that answers prompts as a model does.

use nightshift_optimizer::model::CommandConfig;

use crate::context::Context;
use crate::failure::{Failure, Result};

/// The name of the model behind an agent: the agent itself chooses one.
const CHOSEN_BY_AGENT: &str = "default";
/// The provider of a command line.
const OWN_COMMAND: &str = "agent";

/// A coding agent with a name of its own.
struct KnownAgent {
    name: &'static str,
    command: &'static [&'static str],
    /// Variables that hold its key, where it does not use a stored sign-in.
    keys: &'static [&'static str],
}

/// Both read the prompt from standard input and write their last message to standard output. Claude Code gets no tools; Codex may
/// read files and run commands that change nothing, in its sandbox.
const KNOWN: [KnownAgent; 2] = [
    KnownAgent {
        name: "claude",
        command: &["claude", "--print", "--tools", "", "--strict-mcp-config"],
        keys: &["ANTHROPIC_API_KEY"],
    },
    KnownAgent {
        name: "codex",
        command: &[
            "codex",
            "exec",
            "--ephemeral",
            "--skip-git-repo-check",
            "--sandbox",
            "read-only",
            "--color",
            "never",
            "-",
        ],
        keys: &["CODEX_API_KEY", "OPENAI_API_KEY"],
    },
];

/// Returns a context whose configuration has the agent as a model, and the name of that model. What the configuration file says
/// of a model of that name counts.
pub(super) fn configured(context: &Context, agent: &str) -> Result<(Context, String)> {
    if let Some(url) = &context.config().server.url {
        let message = format!("--agent starts a program of this machine, and models are asked by the server at {url}");
        return Err(Failure::new("usage.invalid", message).hint(
            "leave --server out, or enter the agent as a model of kind `command` in the server's configuration",
        ));
    }
    let (provider, config) = match KNOWN.iter().find(|known| known.name == agent) {
        Some(known) => {
            let mut config = CommandConfig::new(known.command.iter().map(|&part| part.to_owned()).collect());
            let is_set = |name: &&&str| context.environment.get(name).is_some_and(|value| !value.is_empty());
            config.env = known.keys.iter().filter(is_set).map(|&name| name.to_owned()).collect();
            (known.name, config)
        }
        None => (OWN_COMMAND, CommandConfig { shell: true, ..CommandConfig::new(vec![agent.to_owned()]) }),
    };
    let config = serde_json::to_value(config)
        .map_err(|error| Failure::new("internal.unwritable", format!("the agent cannot be written down: {error}")))?;
    let mut context = context.clone();
    let models = &mut context.loaded.config.models;
    if provider == OWN_COMMAND {
        models.insert(provider.to_owned(), config);
    } else {
        models.entry(provider.to_owned()).or_insert(config);
    }
    Ok((context, format!("{provider}/{CHOSEN_BY_AGENT}")))
}
