//! The models of a campaign, from flags and configuration.

use nightshift_optimizer::model::parse_chain;
use nightshift_protocol::campaign::ModelChoice;
use nightshift_protocol::models::{AgentRole, MAX_TEMPERATURE, ModelPlan, RoleModel};

use crate::args::ModelFlags;
use crate::config::RoleSection;
use crate::context::Context;
use crate::failure::{Failure, Result};

/// What a campaign asks: its one model, and what there is beside it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Models {
    /// The model of every role that has none of its own.
    pub(crate) model: ModelChoice,
    /// Models of single roles, and models that stand in.
    pub(crate) plan: ModelPlan,
}

impl Models {
    /// Replies that were written beforehand, for every role.
    pub(crate) fn scripted() -> Self {
        Self { model: ModelChoice::Scripted, plan: ModelPlan::default() }
    }

    /// Every model that may be asked, each once.
    pub(crate) fn every(&self) -> Vec<ModelChoice> {
        self.plan.every(&self.model)
    }
}

/// The models that were asked for. A flag about a role goes before the configuration's section about it; what is played
/// back from a script is played back as a whole, so that sections about roles play no part then.
pub(crate) fn models(context: &Context, flags: &ModelFlags) -> Result<Models> {
    let (model, fallback) = chain(&flags.model)?;
    let mut plan = ModelPlan { fallback, ..ModelPlan::default() };
    if !model.is_scripted() {
        for (name, section) in &context.config().roles {
            plan.roles.insert(role(name)?, configured(name, section)?);
        }
    }
    let of_roles = [
        (AgentRole::Planner, &flags.planner_model),
        (AgentRole::Coder, &flags.coder_model),
        (AgentRole::Verifier, &flags.verifier_model),
        (AgentRole::Judge, &flags.judge_model),
    ];
    for (role, text) in of_roles {
        if let Some(text) = text {
            let (model, fallback) = chain(text)?;
            let own = plan.roles.entry(role).or_default();
            own.model = Some(model);
            own.fallback = Some(fallback);
        }
    }
    Ok(Models { model, plan })
}

fn chain(text: &str) -> Result<(ModelChoice, Vec<ModelChoice>)> {
    let mut chain =
        parse_chain(text).map_err(|error| Failure::new("usage.invalid_model", error.to_string()))?.into_iter();
    let first = chain.next().ok_or_else(|| Failure::new("usage.invalid_model", format!("`{text}` names no model")))?;
    Ok((first, chain.collect()))
}

fn role(name: &str) -> Result<AgentRole> {
    AgentRole::parse(name).ok_or_else(|| {
        let known = AgentRole::ALL.map(AgentRole::as_str).join(", ");
        Failure::new("config.unknown_key", format!("the configuration has no key `roles.{name}`"))
            .hint(format!("known here: {known}"))
    })
}

fn configured(name: &str, section: &RoleSection) -> Result<RoleModel> {
    let wrong = |what: String| Failure::new("config.invalid_model", format!("`roles.{name}`: {what}"));
    if section.temperature.is_some_and(|temperature| !temperature.is_finite()) {
        // JSON has no such number: it would reach the server as none at all.
        return Err(Failure::new(
            "campaign.invalid_model",
            format!("the temperature of the {name} is from 0 to {MAX_TEMPERATURE}"),
        ));
    }
    let mut own = RoleModel {
        temperature: section.temperature,
        max_output_tokens: section.max_output_tokens,
        ..RoleModel::default()
    };
    if let Some(text) = &section.model {
        let mut chain = parse_chain(text).map_err(|error| wrong(error.to_string()))?.into_iter();
        own.model = chain.next();
        own.fallback = Some(chain.collect());
    }
    Ok(own)
}
