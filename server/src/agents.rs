//! The port to the agents that carry out steps.

use async_trait::async_trait;
use nightshift_optimizer::agent::{AgentPorts, AgentStep, Agents};
use nightshift_protocol::campaign::ModelChoice;
use nightshift_protocol::step::{StepFailure, StepOutput};

/// Carries out one step of an agent. Dropping the future stops it.
#[async_trait]
pub trait AgentExecutor: Send + Sync {
    /// Carries out this step.
    async fn carry_out(&self, ports: &dyn AgentPorts, step: AgentStep<'_>) -> Result<StepOutput, StepFailure>;

    /// Returns an error if the endpoint of this choice is unknown. Sends nothing.
    fn knows(&self, _choice: &ModelChoice) -> Result<(), StepFailure> {
        Ok(())
    }

    /// Returns whether the price of this choice is known, so that a cap on money bounds its calls.
    fn has_price(&self, _choice: &ModelChoice) -> bool {
        true
    }
}

#[async_trait]
impl AgentExecutor for Agents {
    async fn carry_out(&self, ports: &dyn AgentPorts, step: AgentStep<'_>) -> Result<StepOutput, StepFailure> {
        Self::carry_out(self, ports, step).await
    }

    fn knows(&self, choice: &ModelChoice) -> Result<(), StepFailure> {
        Self::knows(self, choice)
    }

    fn has_price(&self, choice: &ModelChoice) -> bool {
        Self::has_price(self, choice)
    }
}
