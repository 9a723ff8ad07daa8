//! Finished model calls, as attempts and failures show them.

use serde::{Deserialize, Serialize};

use crate::artifact::ArtifactHash;
use crate::models::AgentRole;

/// Why a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum StopCause {
    /// The model was done.
    #[default]
    End,
    /// The limit of output tokens cut it off.
    Length,
    /// The model or its provider refused.
    Refusal,
    /// Something else.
    Other,
}

/// A finished model call, as the attempt shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ModelCallSummary {
    /// `scripted`, or `endpoint/model`.
    pub model: String,
    /// Whether the reply came from a file.
    pub scripted: bool,
    /// Hash of the prompt template.
    pub prompt_version: String,
    /// The rendered prompt.
    pub prompt: ArtifactHash,
    /// The reply.
    pub reply: ArtifactHash,
    /// The model's reasoning, or the summary that the provider gives of it; none when it gave none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<ArtifactHash>,
    /// Tokens of the prompt with those of the provider's cache, when the provider said so.
    pub input_tokens: Option<u64>,
    /// Tokens of the prompt that were read from the provider's cache, when the provider said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_input_tokens: Option<u64>,
    /// Tokens of the prompt that were written to the provider's cache, when the provider said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_tokens: Option<u64>,
    /// Tokens of the reply with those of the reasoning, when the provider said so.
    pub output_tokens: Option<u64>,
    /// Tokens of the reasoning, when the provider said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_tokens: Option<u64>,
    /// Price in millionths of a US dollar; none when unknown.
    pub price_microusd: Option<u64>,
    /// From request to last byte, in milliseconds.
    pub latency_ms: u64,
    /// Turn within the step, over all its tries: 1, or 2 for its repair turn; 3 and 4 are those of a second try.
    pub turn: u32,
    /// Why the reply ended.
    #[serde(default)]
    pub stop: StopCause,
    /// Who asked; none for calls that were stored before roles were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<AgentRole>,
    /// Models that were asked before this one and could not answer, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fell_back: Vec<FellBack>,
}

/// A model that could not answer, so that the next one was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FellBack {
    /// `endpoint/model`.
    pub model: String,
    /// Stable code of what went wrong, for example `model.unreachable`.
    pub code: String,
}
