//! A model at an endpoint.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use super::endpoint::Endpoint;
use super::endpoint::WireFormat;
use super::retry::with_retries;
use super::transport::{Transport, stop_of};
use super::{Meter, Model, ModelError, ModelReply, ModelRequest, anthropic, chat_completions, responses};

pub(super) struct LiveModel {
    endpoint: Arc<Endpoint>,
    model: String,
    transport: Transport,
}

impl LiveModel {
    pub(super) fn new(endpoint: Arc<Endpoint>, model: String, transport: Transport) -> Self {
        Self { endpoint, model, transport }
    }

    async fn once(&self, request: &ModelRequest, meter: &dyn Meter) -> Result<ModelReply, ModelError> {
        // Every try counts against the limit, also the second one of the same call.
        if let Some(limiter) = &self.endpoint.limiter {
            limiter.until_ready().await;
        }
        meter.begin().await.map_err(ModelError::NotBegun)?;
        let reply = self.ask(request).await;
        if let Err(error) = &reply {
            meter.failed(error).await;
        }
        reply
    }

    async fn ask(&self, request: &ModelRequest) -> Result<ModelReply, ModelError> {
        let config = &self.endpoint.config;
        let began = Instant::now();
        let mut draft = match config.kind {
            WireFormat::Openai => {
                let body = chat_completions::body(config, &self.model, request);
                let mut reader = chat_completions::ReplyReader;
                self.transport.ask(chat_completions::RESOURCE, &self.model, &body, &mut reader).await?
            }
            WireFormat::OpenaiResponses => {
                let body = responses::body(config, &self.model, request);
                let mut reader = responses::ReplyReader;
                self.transport.ask(responses::RESOURCE, &self.model, &body, &mut reader).await?
            }
            WireFormat::Anthropic => {
                let body = anthropic::body(config, &self.model, request);
                let mut reader = anthropic::ReplyReader;
                self.transport.ask(anthropic::RESOURCE, &self.model, &body, &mut reader).await?
            }
        };
        Ok(ModelReply {
            stop: stop_of(&draft),
            reasoning: draft.take_reasoning(),
            calls: draft.take_calls(),
            text: draft.text,
            tokens: draft.tokens,
            latency_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        })
    }
}

#[async_trait]
impl Model for LiveModel {
    fn label(&self) -> String {
        format!("{}/{}", self.endpoint.name, self.model)
    }

    fn is_scripted(&self) -> bool {
        false
    }

    fn output_limit(&self, wanted: u32) -> u32 {
        self.endpoint.config.output_limit(wanted)
    }

    async fn call(&self, request: &ModelRequest, meter: &dyn Meter) -> Result<ModelReply, ModelError> {
        let first_delay = Duration::from_millis(self.endpoint.config.retry_delay_ms);
        with_retries(&self.endpoint.name, first_delay, || self.once(request, meter)).await
    }
}
