//! `--agent`: a coding agent of this machine that answers prompts as a model does, or works on the session of the run.

use crate::coding_agent::CodingAgent;
use crate::context::Context;
use crate::failure::{Failure, Result};

/// The name of the model behind an agent: the agent itself chooses one.
const CHOSEN_BY_AGENT: &str = "default";

/// Returns a context whose configuration has the agent as a model, and the name of that model. What the configuration file says
/// of a model of that name counts.
pub(super) fn configured(context: &Context, agent: &CodingAgent) -> Result<(Context, String)> {
    if let Some(url) = &context.config().server.url {
        let message = format!("--agent starts a program of this machine, and models are asked by the server at {url}");
        return Err(Failure::new("usage.invalid", message).hint(
            "leave --server out, enter the agent as a model of kind `command` in the server's configuration, or use \
             `nightshift agent` for sessions",
        ));
    }
    let config = serde_json::to_value(agent.answering(context))
        .map_err(|error| Failure::new("internal.unwritable", format!("the agent cannot be written down: {error}")))?;
    let mut context = context.clone();
    let (models, provider) = (&mut context.loaded.config.models, agent.name());
    if agent.is_own_command() {
        models.insert(provider.to_owned(), config);
    } else {
        models.entry(provider.to_owned()).or_insert(config);
    }
    Ok((context, format!("{provider}/{CHOSEN_BY_AGENT}")))
}
