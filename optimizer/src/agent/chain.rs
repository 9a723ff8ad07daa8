//! The models of a role: the one that is asked first, and those that stand in for it.

use std::sync::Arc;

use nightshift_protocol::campaign::{ModelChoice, RunInput};
use nightshift_protocol::models::AgentRole;
use nightshift_protocol::step::StepFailure;

use super::{AgentPorts, Agents};
use crate::model::{Model, ModelError, ScriptedModel};

/// One model of a chain, opened or not.
pub(super) struct Link {
    /// `scripted`, or `endpoint/model`.
    pub(super) label: String,
    /// The model, or why it cannot be asked.
    pub(super) model: Result<Arc<dyn Model>, Arc<ModelError>>,
}

impl Link {
    pub(super) fn is_external(&self) -> bool {
        self.model.as_ref().is_ok_and(|model| model.is_external())
    }

    pub(super) fn is_scripted(&self) -> bool {
        self.model.as_ref().is_ok_and(|model| model.is_scripted())
    }
}

/// Opens the models of a role in the order in which they are asked. Nothing is sent yet. A step that belongs to no
/// role asks the run's own model.
pub(super) async fn open(
    agents: &Agents,
    ports: &dyn AgentPorts,
    run_input: &RunInput,
    role: Option<AgentRole>,
) -> Result<Vec<Link>, StepFailure> {
    let choices = match role {
        Some(role) => run_input.models.chain(role, &run_input.model),
        None => vec![run_input.model.clone()],
    };
    let mut chain = Vec::with_capacity(choices.len());
    for choice in choices {
        let label = choice.label();
        let model = match &choice {
            ModelChoice::Scripted => scripted(ports, run_input).await?,
            live @ ModelChoice::Live { .. } => agents.config.catalog.open(live, &*agents.config.keys),
        };
        chain.push(Link { label, model: model.map_err(Arc::new) });
    }
    Ok(chain)
}

async fn scripted(
    ports: &dyn AgentPorts,
    run_input: &RunInput,
) -> Result<Result<Arc<dyn Model>, ModelError>, StepFailure> {
    let Some(replies) = &run_input.scripted_replies else {
        let message = format!("the task `{}` came without a folder of replies", run_input.task_name);
        return Ok(Err(ModelError::NoScript { message }));
    };
    let bytes = ports.get_artifact(replies).await?;
    Ok(ScriptedModel::from_json(&bytes).map(|model| Arc::new(model) as Arc<dyn Model>))
}
