//! Agents that ask a model that costs tokens and answers at once.

use std::time::Duration;

use async_trait::async_trait;
use nightshift_optimizer::agent::{AgentPorts, AgentStep, AnsweredCall};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::budget::{Amount, Resource};
use nightshift_protocol::model_call::ModelCallSummary;
use nightshift_protocol::step::{StepFailure, StepOutput};
use nightshift_server::AgentExecutor;
use serde_json::json;

use super::log::{Line, Log, What, now_us};
use super::values::{reply, seed_in, value_of};

/// Tokens that a call may use up at most.
pub(crate) const RESERVED_TOKENS: u64 = 100;
/// Tokens that it uses up.
pub(crate) const CALL_TOKENS: u64 = 40;
/// How long the model takes.
const LATENCY: Duration = Duration::from_millis(5);
/// The only request.
const REQUEST: &str = "toy";

/// The agents of a toy server.
pub(crate) struct ToyAgents {
    pub(crate) log: Log,
}

#[async_trait]
impl AgentExecutor for ToyAgents {
    async fn carry_out(&self, ports: &dyn AgentPorts, step: AgentStep<'_>) -> Result<StepOutput, StepFailure> {
        let seed = seed_in(step.input).ok_or_else(|| StepFailure::fatal("toy.input", "a foreign step"))?;
        let value = value_of(seed);
        self.write(&step, What::Begin)?;
        let call = match ports.find_call(step.run, step.step_key, 1, REQUEST).await? {
            Some(call) => call,
            None => self.ask(ports, &step, seed).await?,
        };
        self.write(&step, What::Done)?;
        Ok(StepOutput::NoCode { code: "toy.value".to_owned(), message: value.to_string(), calls: vec![call] })
    }
}

impl ToyAgents {
    async fn ask(
        &self,
        ports: &dyn AgentPorts,
        step: &AgentStep<'_>,
        seed: &ArtifactHash,
    ) -> Result<ModelCallSummary, StepFailure> {
        let reserved = [Amount { resource: Resource::Tokens, amount: RESERVED_TOKENS }];
        ports.reserve_call(&reserved).await?;
        let looked_us = now_us();
        let looked = ports.find_call(step.run, step.step_key, 1, REQUEST).await;
        if !matches!(looked, Ok(None)) {
            ports.settle_call(&reserved, &[]).await?;
        }
        if let Some(answered) = looked? {
            return Ok(answered);
        }
        self.write_line(Line { looked_us: Some(looked_us), ..line(step, What::CallAsked) })?;
        tokio::time::sleep(LATENCY).await;
        let (prompt, reply) = (format!("prompt {seed}").into_bytes(), reply(seed));
        let summary: ModelCallSummary = serde_json::from_value(json!({
            "model": "toy/toy",
            "scripted": false,
            "prompt_version": "1",
            "prompt": ArtifactHash::of(&prompt),
            "reply": ArtifactHash::of(&reply),
            "input_tokens": CALL_TOKENS - 10,
            "output_tokens": 10,
            "price_microusd": null,
            "latency_ms": 5,
            "turn": 1,
        }))
        .map_err(|error| StepFailure::fatal("toy.call", error.to_string()))?;
        let call = AnsweredCall {
            run: step.run,
            step_key: step.step_key,
            request_hash: REQUEST,
            summary: &summary,
            prompt,
            reply,
            reasoning: None,
            released: reserved.to_vec(),
            used: vec![Amount { resource: Resource::Tokens, amount: CALL_TOKENS }],
        };
        ports.record_call(call).await?;
        self.write(step, What::CallCommitted)?;
        Ok(summary)
    }

    fn write(&self, step: &AgentStep<'_>, what: What) -> Result<(), StepFailure> {
        self.write_line(line(step, what))
    }

    fn write_line(&self, line: Line) -> Result<(), StepFailure> {
        self.log.write(line).map_err(|error| StepFailure::retriable("toy.log", error.to_string()))
    }
}

/// A line about a step, without its time.
fn line(step: &AgentStep<'_>, what: What) -> Line {
    Line {
        at_us: 0,
        process: 0,
        what,
        run: step.run.to_string(),
        key: step.step_key.to_owned(),
        epoch: None,
        device: None,
        exclusive: false,
        looked_us: None,
    }
}
