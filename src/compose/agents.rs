//! The agents: model endpoints, keys, prices.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use nightshift_optimizer::agent::{Agents, AgentsConfig};
use nightshift_optimizer::model::{Catalog, CommandConfig, EndpointConfig, PriceTable};
use nightshift_optimizer::prompt::Prompts;
use nightshift_protocol::campaign::ModelChoice;
use secrecy::SecretString;
use serde::de::DeserializeOwned;

use super::describe;
use crate::context::Context;
use crate::failure::{Failure, Result};

/// How long an endpoint may take to answer before nothing is said about it.
const ENDPOINT_ANSWER: Duration = Duration::from_secs(3);

/// The kind of a model that a program of this machine answers for.
const COMMAND_KIND: &str = "command";

/// Every kind of a model: the wire formats of endpoints, and a command.
const KINDS: [&str; 3] = ["openai", "anthropic", COMMAND_KIND];

/// The model endpoints: the built-in ones, and those of the configuration.
pub(crate) fn catalog(context: &Context) -> Result<Catalog> {
    let (mut endpoints, mut commands) = (BTreeMap::new(), BTreeMap::new());
    for (name, value) in &context.config().models {
        let kind = value.get("kind").and_then(serde_json::Value::as_str);
        if let Some(unknown) = kind.filter(|kind| !KINDS.contains(kind)) {
            let known = KINDS.map(|kind| format!("`{kind}`")).join(", ");
            return Err(Failure::new(
                "config.invalid_model",
                format!("`models.{name}.kind`: unknown kind `{unknown}`, expected one of {known}"),
            ));
        }
        if kind == Some(COMMAND_KIND) {
            commands.insert(name.clone(), read::<CommandConfig>(name, value)?);
        } else {
            endpoints.insert(name.clone(), read::<EndpointConfig>(name, value)?);
        }
    }
    let catalog = Catalog::with_environment(endpoints, &|name| context.environment.get(name).map(str::to_owned));
    Ok(catalog.with_commands(commands))
}

fn read<T: DeserializeOwned>(name: &str, value: &serde_json::Value) -> Result<T> {
    serde_json::from_value(value.clone())
        .map_err(|error| Failure::new("config.invalid_model", format!("`models.{name}`: {error}")))
}

/// Finds keys in the environment.
pub(crate) fn key_lookup(context: &Context) -> impl Fn(&str) -> Option<SecretString> + Send + Sync + 'static {
    let environment = context.environment.clone();
    move |name| environment.get(name).map(|key| SecretString::from(key.to_owned()))
}

/// The built-in prices, and those of the configuration.
pub(crate) fn prices(context: &Context) -> Result<PriceTable> {
    let wrong = |what: String| Failure::new("config.invalid_prices", what);
    let table = PriceTable::built_in().map_err(|error| wrong(describe(&error)))?;
    let Some(file) = &context.config().prices else { return Ok(table) };
    let text = std::fs::read_to_string(file)
        .map_err(|error| wrong(format!("the price table `{}` cannot be read: {error}", file.display())))?;
    table.with(&text).map_err(|error| wrong(format!("`{}`: {}", file.display(), describe(&error))))
}

/// Returns whether this model can be asked at all: its endpoint is known and its key is there. Nothing is sent.
pub(crate) fn check_model(context: &Context, model: &ModelChoice) -> Result<()> {
    catalog(context)?
        .open(model, &key_lookup(context))
        .map(drop)
        .map_err(|error| Failure::new(error.code(), describe(&error)))
}

/// Says so when the model's endpoint does not answer now: steps wait for it, which looks like nothing otherwise.
pub(crate) async fn note_silent_endpoint(context: &Context, model: &ModelChoice) -> Result<()> {
    let ModelChoice::Live { endpoint, .. } = model else { return Ok(()) };
    let catalog = catalog(context)?;
    let keys = key_lookup(context);
    if let Ok(Err(error)) = tokio::time::timeout(ENDPOINT_ANSWER, catalog.probe(endpoint, &keys)).await
        && error.code() == "model.unreachable"
    {
        context.output.note(&format!(
            "warning[{}]: {}; runs wait for it and go on as soon as it answers",
            error.code(),
            describe(&error)
        ));
    }
    Ok(())
}

pub(super) fn agents(context: &Context, catalog: Catalog) -> Result<Arc<Agents>> {
    let mut config = AgentsConfig::new(catalog, Arc::new(key_lookup(context)))
        .map_err(|failure| Failure::new(&failure.code, failure.message))?;
    config.prices = prices(context)?;
    if let Some(folder) = &context.config().prompts {
        config.prompts =
            Prompts::with_overrides(folder).map_err(|error| Failure::new(error.code(), error.to_string()))?;
    }
    Ok(Arc::new(Agents::new(config)))
}
