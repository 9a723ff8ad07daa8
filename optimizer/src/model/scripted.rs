//! Replies that were written beforehand.

use std::collections::BTreeMap;

use async_trait::async_trait;

use super::{MAX_REPLY_BYTES, Meter, Model, ModelError, ModelReply, ModelRequest, SCRIPTED, StopCause, TokenUsage};

/// Answers from a map of call names to texts. Always labelled as scripted; tokens are unknown, time is none.
#[derive(Debug, Clone, Default)]
pub struct ScriptedModel {
    replies: BTreeMap<String, String>,
}

impl ScriptedModel {
    /// A script. The key is the call's name, which is the file's name without `.md`.
    #[must_use]
    pub fn new(replies: BTreeMap<String, String>) -> Self {
        Self { replies }
    }

    /// The script in a JSON object from call name to text.
    pub fn from_json(bytes: &[u8]) -> Result<Self, ModelError> {
        serde_json::from_slice(bytes)
            .map(Self::new)
            .map_err(|error| ModelError::NoScript { message: format!("the stored script cannot be read: {error}") })
    }
}

#[async_trait]
impl Model for ScriptedModel {
    fn label(&self) -> String {
        SCRIPTED.to_owned()
    }

    fn is_scripted(&self) -> bool {
        true
    }

    async fn call(&self, request: &ModelRequest, _meter: &dyn Meter) -> Result<ModelReply, ModelError> {
        let text = self
            .replies
            .get(&request.call_name)
            .ok_or_else(|| ModelError::ScriptEnded { file: format!("{}.md", request.call_name) })?;
        if text.len() > MAX_REPLY_BYTES {
            return Err(ModelError::TooLarge {
                endpoint: SCRIPTED.to_owned(),
                what: "of text",
                limit_bytes: MAX_REPLY_BYTES,
            });
        }
        Ok(ModelReply {
            calls: Vec::new(),
            text: text.clone(),
            reasoning: None,
            tokens: TokenUsage::default(),
            latency_ms: 0,
            stop: StopCause::End,
        })
    }
}
