//! Who carries out the steps of agents.

use async_trait::async_trait;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::ModelCallSummary;
use nightshift_protocol::campaign::RunInput;
use nightshift_protocol::id::RunId;
use nightshift_protocol::step::{StepFailure, StepInput, StepOutput};

/// temp
#[async_trait]
pub trait AgentPorts: Send + Sync {
    /// temp
    async fn get_artifact(&self, hash: &ArtifactHash) -> Result<Vec<u8>, StepFailure>;
    /// temp
    async fn put_artifact(&self, bytes: Vec<u8>) -> Result<ArtifactHash, StepFailure>;
    /// temp
    async fn find_call(
        &self,
        run: &RunId,
        step_key: &str,
        turn: u32,
        request_hash: &str,
    ) -> Result<Option<ModelCallSummary>, StepFailure>;
    /// temp
    async fn record_call(
        &self,
        run: &RunId,
        step_key: &str,
        request_hash: &str,
        summary: &ModelCallSummary,
        prompt: Vec<u8>,
        reply: Vec<u8>,
    ) -> Result<(), StepFailure>;
}

/// temp
pub struct AgentStep {
    /// temp
    pub run: RunId,
    /// temp
    pub step_key: String,
    /// temp
    pub input: StepInput,
    /// temp
    pub run_input: RunInput,
}

/// Carries out one step of an agent. Dropping the future stops it.
#[async_trait]
pub trait AgentExecutor: Send + Sync {
    /// Carries out this step.
    async fn carry_out(&self, ports: &dyn AgentPorts, step: AgentStep) -> Result<StepOutput, StepFailure>;
}
