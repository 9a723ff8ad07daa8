//! Model endpoints: is there a key, does the endpoint answer, does it take the key?

use std::time::Duration;

use futures::future::join_all;
use nightshift_optimizer::model::{Catalog, EndpointConfig};

use super::Check;
use crate::compose;
use crate::context::Context;
use crate::failure::Result;

/// How long an endpoint may take to say that it is there.
const ANSWER: Duration = Duration::from_secs(10);
/// Models that are named.
const MAX_NAMED: usize = 5;

pub(super) async fn checks(context: &Context) -> Result<Vec<Check>> {
    let catalog = compose::catalog(context)?;
    let endpoints: Vec<(&str, &EndpointConfig)> = catalog.endpoints().collect();
    let found = join_all(endpoints.into_iter().map(|(name, config)| check(context, &catalog, name, config))).await;
    let mut checks: Vec<Check> = found.into_iter().flatten().collect();
    for (name, _) in catalog.commands() {
        checks.push(command(context, &catalog, name).await);
    }
    if checks.is_empty() {
        checks.push(Check::warning(
            "model endpoint",
            "none is set up",
            "the demo needs none; for a live model set OPENAI_API_KEY or ANTHROPIC_API_KEY, start a local server, or \
             describe an endpoint as [models.NAME] in the configuration",
        ));
    }
    if let Err(failure) = compose::prices(context) {
        checks.push(Check::warning("price table", failure.error.message, "mend the file `prices` names"));
    }
    Ok(checks)
}

/// A command is there or it is not: it is not started for this.
async fn command(context: &Context, catalog: &Catalog, name: &str) -> Check {
    let label = format!("model {name}");
    match catalog.probe(name, &compose::key_lookup(context)).await {
        Ok(report) => Check::ok(&label, report.base_url),
        Err(error) => Check::warning(
            &label,
            format!("{}: {}", error.code(), compose::describe(&error)),
            format!("check `command` and `env` of [models.{name}] in the configuration"),
        ),
    }
}

/// Checks one endpoint. Returns `None` when it is not set up: no key, no configuration, and no server on this machine.
async fn check(context: &Context, catalog: &Catalog, name: &str, config: &EndpointConfig) -> Option<Check> {
    let label = format!("model endpoint {name}");
    let configured = context.config().models.contains_key(name);
    let keys = compose::key_lookup(context);
    let has_key = config.key_env.as_deref().is_some_and(|variable| keys(variable).is_some());
    if !has_key && !configured && !config.key_optional {
        return None;
    }
    let answer = tokio::time::timeout(ANSWER, catalog.probe(name, &keys)).await;
    let shown = config.shown_base_url();
    match answer {
        Ok(Ok(report)) => {
            let models = report.models.map_or_else(
                || "it does not list its models".to_owned(),
                |models| {
                    let named = models.iter().take(MAX_NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
                    format!("{} models: {named}{}", models.len(), if models.len() > MAX_NAMED { ", ..." } else { "" })
                },
            );
            Some(Check::ok(&label, format!("{shown}: {models}")))
        }
        // A local server that is not running is not reported.
        Ok(Err(_)) | Err(_) if !configured && !has_key => None,
        Ok(Err(error)) => Some(Check::warning(
            &label,
            format!("{}: {}", error.code(), compose::describe(&error)),
            match &config.key_env {
                Some(variable) => format!("check {variable}, the network, and [models.{name}] in the configuration"),
                None => format!("check the network and [models.{name}] in the configuration"),
            },
        )),
        Err(_) => Some(Check::warning(
            &label,
            format!("{shown} did not answer within {} s", ANSWER.as_secs()),
            "check the network and the address",
        )),
    }
}
