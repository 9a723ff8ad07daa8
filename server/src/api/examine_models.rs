//! Validates the models of a campaign before it is stored.

use nightshift_protocol::campaign::{CampaignSpec, ModelChoice};
use nightshift_protocol::models::{MAX_FALLBACKS, MAX_OUTPUT_TOKENS, MAX_TEMPERATURE};

use crate::agents::AgentExecutor;
use crate::error::ApiFailure;

/// Validates without knowledge of the endpoints.
pub(super) fn well_formed(spec: &CampaignSpec) -> Result<(), ApiFailure> {
    let invalid = |message: String| Err(ApiFailure::bad("campaign.invalid_model", message));
    let plan = &spec.models;
    let chains = plan.roles.values().filter_map(|role| role.fallback.as_ref()).chain([&plan.fallback]);
    for fallback in chains {
        if fallback.len() > MAX_FALLBACKS {
            return invalid(format!("at most {MAX_FALLBACKS} models stand in for another, not {}", fallback.len()));
        }
    }
    for choice in plan.every(&spec.model) {
        if let ModelChoice::Live { endpoint, model } = &choice
            && (endpoint.trim().is_empty() || model.trim().is_empty())
        {
            return invalid("a live model needs the names of its endpoint and of itself".to_owned());
        }
    }
    for (role, own) in &plan.roles {
        let role = role.as_str();
        if own.temperature.is_some_and(|value| !(0.0..=MAX_TEMPERATURE).contains(&value)) {
            return invalid(format!("the temperature of the {role} is from 0 to {MAX_TEMPERATURE}"));
        }
        if own.max_output_tokens.is_some_and(|tokens| !(1..=MAX_OUTPUT_TOKENS).contains(&tokens)) {
            return invalid(format!("the output tokens of the {role} are from 1 to {MAX_OUTPUT_TOKENS}"));
        }
    }
    Ok(())
}

/// Checks that this server knows every endpoint, because an unknown one could never be called, and every price that a cap
/// on money needs. Keys are checked at the call, since another server of the fleet may hold them.
pub(super) fn known(spec: &CampaignSpec, agents: &dyn AgentExecutor) -> Result<(), ApiFailure> {
    for choice in spec.models.every(&spec.model) {
        agents.knows(&choice).map_err(|failure| ApiFailure::bad("campaign.unknown_endpoint", failure.message))?;
    }
    if spec.budget.cost_microusd.is_some() { priced(spec, agents) } else { Ok(()) }
}

/// Checks that every price that a cap on money needs is known.
pub(super) fn priced(spec: &CampaignSpec, agents: &dyn AgentExecutor) -> Result<(), ApiFailure> {
    for choice in spec.models.every(&spec.model) {
        if !agents.has_price(&choice) {
            return Err(ApiFailure::bad(
                "campaign.unknown_price",
                format!(
                    "the price of `{}` is not known, so a cap on money cannot bound its calls: add it to the price table \
                     (`prices` in the server's configuration), or set a cap on tokens (`--max-tokens`) instead",
                    choice.label()
                ),
            ));
        }
    }
    Ok(())
}
