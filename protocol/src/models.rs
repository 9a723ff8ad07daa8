//! Which models a campaign asks: for each agent role one, its parameters, and the models that stand in for it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::step_kind::StepKind;

/// Most models that stand in for one another.
pub const MAX_FALLBACKS: usize = 8;

/// Most output tokens that a role may ask for.
pub const MAX_OUTPUT_TOKENS: u32 = 1_000_000;

/// Highest sampling temperature.
pub const MAX_TEMPERATURE: f32 = 2.0;

/// Where replies come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "provider", rename_all = "snake_case")]
pub enum ModelChoice {
    /// Files that were written beforehand; always labelled as such.
    Scripted,
    /// A live model.
    Live {
        /// Name of the provider in the configuration, for example `openai` or `anthropic`.
        endpoint: String,
        /// Name of the model at that provider.
        model: String,
    },
}

impl ModelChoice {
    /// `scripted`, or `endpoint/model`.
    #[must_use]
    pub fn label(&self) -> String {
        match self {
            Self::Scripted => "scripted".to_owned(),
            Self::Live { endpoint, model } => format!("{endpoint}/{model}"),
        }
    }

    /// Whether an agent outside of Nightshift answers.
    #[must_use]
    pub fn is_external(&self) -> bool {
        matches!(self, Self::Live { endpoint, .. } if endpoint == EXTERNAL)
    }

    /// Whether replies were written beforehand.
    #[must_use]
    pub fn is_scripted(&self) -> bool {
        matches!(self, Self::Scripted)
    }
}

/// The provider whose models are agents outside of Nightshift: their calls wait as requests.
pub const EXTERNAL: &str = "external";
/// Its model where none is named.
pub const DEFAULT_AGENT: &str = "agent";

/// Who asks a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum AgentRole {
    /// Makes plans.
    Planner,
    /// Writes programs.
    Coder,
    /// Diagnoses.
    Verifier,
    /// Scores.
    Judge,
}

impl AgentRole {
    /// Every role.
    pub const ALL: [Self; 4] = [Self::Planner, Self::Coder, Self::Verifier, Self::Judge];

    /// The stored and printed name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Planner => "planner",
            Self::Coder => "coder",
            Self::Verifier => "verifier",
            Self::Judge => "judge",
        }
    }

    /// The role of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == text)
    }

    /// Who carries out a kind of step; none for a worker's.
    #[must_use]
    pub fn of(kind: StepKind) -> Option<Self> {
        match kind {
            StepKind::Plan | StepKind::Replan => Some(Self::Planner),
            StepKind::WriteCode => Some(Self::Coder),
            StepKind::Diagnose => Some(Self::Verifier),
            StepKind::Judge => Some(Self::Judge),
            StepKind::PrepareTask
            | StepKind::Build
            | StepKind::Check
            | StepKind::Sanitize
            | StepKind::Tune
            | StepKind::Measure
            | StepKind::Profile => None,
        }
    }
}

/// What a role does differently from the campaign.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RoleModel {
    /// Its model; the campaign's without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelChoice>,
    /// Models that are asked in this order when the one before cannot answer; the campaign's without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<Vec<ModelChoice>>,
    /// Sampling temperature; the server's without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f32>,
    /// Limit of a reply in tokens; the server's without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u32>,
}

/// What there is beside a campaign's one model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ModelPlan {
    /// Models that are asked in this order when the one before cannot answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallback: Vec<ModelChoice>,
    /// What single roles do differently.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub roles: BTreeMap<AgentRole, RoleModel>,
}

impl ModelPlan {
    /// Whether there is nothing but the campaign's one model.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fallback.is_empty() && self.roles.is_empty()
    }

    /// The models of a role, the one that is asked first at the front; each once. `first` is the campaign's model.
    #[must_use]
    pub fn chain(&self, role: AgentRole, first: &ModelChoice) -> Vec<ModelChoice> {
        let own = self.roles.get(&role);
        let first = own.and_then(|own| own.model.as_ref()).unwrap_or(first);
        let fallback = own.and_then(|own| own.fallback.as_ref()).unwrap_or(&self.fallback);
        let mut chain = Vec::new();
        for choice in std::iter::once(first).chain(fallback) {
            if !chain.contains(choice) {
                chain.push(choice.clone());
            }
        }
        chain
    }

    /// Every model that may be asked, each once, in the order of the roles.
    #[must_use]
    pub fn every(&self, first: &ModelChoice) -> Vec<ModelChoice> {
        let mut every = Vec::new();
        for choice in AgentRole::ALL.into_iter().flat_map(|role| self.chain(role, first)) {
            if !every.contains(&choice) {
                every.push(choice);
            }
        }
        every
    }

    /// Whether a program may come from a live model: its author is then unknown.
    #[must_use]
    pub fn has_live_author(&self, first: &ModelChoice) -> bool {
        self.chain(AgentRole::Coder, first).iter().any(|choice| !choice.is_scripted())
    }

    /// Whether every reply was written beforehand.
    #[must_use]
    pub fn is_scripted(&self, first: &ModelChoice) -> bool {
        self.every(first).iter().all(ModelChoice::is_scripted)
    }

    /// Whether a reply may come from a script, which the tasks then have to bring.
    #[must_use]
    pub fn needs_script(&self, first: &ModelChoice) -> bool {
        self.every(first).iter().any(ModelChoice::is_scripted)
    }

    /// For lists: the campaign's model, then what single roles ask first where that is another one.
    #[must_use]
    pub fn label(&self, first: &ModelChoice) -> String {
        let mut parts = vec![first.label()];
        for (role, own) in &self.roles {
            if let Some(model) = own.model.as_ref().filter(|model| *model != first) {
                parts.push(format!("{}: {}", role.as_str(), model.label()));
            }
        }
        parts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(name: &str) -> ModelChoice {
        ModelChoice::Live { endpoint: "lab".to_owned(), model: name.to_owned() }
    }

    fn labels(chain: &[ModelChoice]) -> Vec<String> {
        chain.iter().map(ModelChoice::label).collect()
    }

    #[test]
    fn without_a_plan_every_role_asks_the_one_model() {
        let plan = ModelPlan::default();
        for role in AgentRole::ALL {
            assert_eq!(plan.chain(role, &live("a")), [live("a")]);
            assert_eq!(AgentRole::parse(role.as_str()), Some(role));
        }
        assert_eq!(plan.label(&live("a")), "lab/a");
        assert!(plan.is_scripted(&ModelChoice::Scripted) && !plan.has_live_author(&ModelChoice::Scripted));
    }

    #[test]
    fn a_role_has_its_own_model_and_the_campaigns_fallback_unless_it_brings_one() {
        let own = |fallback| RoleModel { model: Some(live("big")), fallback, ..RoleModel::default() };
        let mut plan = ModelPlan { fallback: vec![live("big"), live("spare")], ..ModelPlan::default() };
        plan.roles.insert(AgentRole::Coder, own(None));
        plan.roles.insert(AgentRole::Judge, own(Some(Vec::new())));
        assert_eq!(labels(&plan.chain(AgentRole::Coder, &live("a"))), ["lab/big", "lab/spare"]);
        assert_eq!(labels(&plan.chain(AgentRole::Judge, &live("a"))), ["lab/big"]);
        assert_eq!(labels(&plan.chain(AgentRole::Planner, &live("a"))), ["lab/a", "lab/big", "lab/spare"]);
        assert_eq!(plan.label(&live("a")), "lab/a, coder: lab/big, judge: lab/big");
        assert_eq!(labels(&plan.every(&live("a"))), ["lab/a", "lab/big", "lab/spare"]);
    }

    #[test]
    fn a_live_stand_in_for_the_coder_makes_the_author_unknown() {
        let plan = ModelPlan { fallback: vec![live("a")], ..ModelPlan::default() };
        assert!(plan.has_live_author(&ModelChoice::Scripted) && plan.needs_script(&ModelChoice::Scripted));
        assert!(!plan.is_scripted(&ModelChoice::Scripted));
        let mut plan = ModelPlan::default();
        plan.roles.insert(AgentRole::Judge, RoleModel { model: Some(live("a")), ..RoleModel::default() });
        assert!(!plan.has_live_author(&ModelChoice::Scripted), "a judge writes no programs");
        assert!(!plan.is_scripted(&ModelChoice::Scripted));
    }

    #[test]
    fn a_plan_is_stored_by_the_names_of_roles() {
        let text = r#"{"fallback":[{"provider":"scripted"}],"roles":{"coder":{"temperature":0.5}}}"#;
        let plan: Result<ModelPlan, _> = serde_json::from_str(text);
        assert_eq!(plan.ok().and_then(|plan| serde_json::to_string(&plan).ok()).as_deref(), Some(text));
    }
}
