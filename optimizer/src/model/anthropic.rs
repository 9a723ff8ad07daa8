//! The wire format of Anthropic's messages.

use nightshift_protocol::model_call::StopCause;
use serde::Deserialize;
use serde_json::{Value, json};

use super::endpoint::EndpointConfig;
use super::stream::{Draft, Reader, Trouble};
use super::{ModelRequest, transport};

/// The resource that answers.
pub(super) const RESOURCE: &str = "messages";

/// The version of the interface that this module speaks.
pub(super) const VERSION: &str = "2023-06-01";

/// The body of a request. The schema of a structured reply is part of the prompt: this interface has no field that
/// every model of it accepts.
pub(super) fn body(config: &EndpointConfig, model: &str, request: &ModelRequest) -> Value {
    let mut messages = vec![json!({"role": "user", "content": request.user})];
    for (assistant, user) in &request.earlier {
        messages.push(json!({"role": "assistant", "content": assistant}));
        messages.push(json!({"role": "user", "content": user}));
    }
    let mut body = json!({
        "model": model,
        "max_tokens": transport::max_output_tokens(config, request),
        "system": request.system,
        "messages": messages,
        "stream": true,
    });
    if let Some(temperature) = request.temperature {
        body["temperature"] = json!(temperature);
    }
    for (field, value) in &config.extra_body {
        body[field] = value.clone();
    }
    body
}

/// The events that matter; others, and those of a later version, are passed over.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Event {
    MessageStart {
        message: Start,
    },
    ContentBlockStart {
        content_block: Block,
    },
    ContentBlockDelta {
        delta: BlockDelta,
    },
    MessageDelta {
        delta: End,
        usage: Option<Usage>,
    },
    MessageStop,
    /// A whole message, from a server that does not stream.
    Message(Whole),
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Start {
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct End {
    stop_reason: Option<String>,
}

#[derive(Deserialize)]
struct Whole {
    content: Vec<Block>,
    stop_reason: Option<String>,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block {
    Text {
        text: String,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum BlockDelta {
    TextDelta {
        text: String,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
#[expect(clippy::struct_field_names, reason = "the names on the wire")]
struct Usage {
    input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    output_tokens: Option<u64>,
}

/// Reads replies of this format.
pub(super) struct ReplyReader;

impl Reader for ReplyReader {
    fn event(&mut self, draft: &mut Draft, data: &str) -> Result<(), Trouble> {
        take(draft, data)
    }

    fn whole(&mut self, draft: &mut Draft, body: &str) -> Result<(), Trouble> {
        take(draft, body)?;
        if draft.ended {
            Ok(())
        } else {
            Err(Trouble::Malformed { message: "it is no message".to_owned(), excerpt: body.to_owned() })
        }
    }
}

fn take(draft: &mut Draft, data: &str) -> Result<(), Trouble> {
    let malformed = |message: String| Trouble::Malformed { message, excerpt: data.to_owned() };
    let value: Value = serde_json::from_str(data).map_err(|error| malformed(error.to_string()))?;
    if transport::is_provider_error(&value) {
        return Err(Trouble::Provider(value));
    }
    let event: Event = serde_json::from_value(value).map_err(|error| malformed(error.to_string()))?;
    match event {
        Event::MessageStart { message } => count(draft, message.usage),
        Event::ContentBlockStart { content_block: Block::Text { text } }
        | Event::ContentBlockDelta { delta: BlockDelta::TextDelta { text } } => draft.push(&text)?,
        Event::MessageDelta { delta, usage } => {
            count(draft, usage);
            stop(draft, delta.stop_reason.as_deref());
        }
        Event::MessageStop => draft.ended = true,
        Event::Message(whole) => {
            for block in whole.content {
                if let Block::Text { text } = block {
                    draft.push(&text)?;
                }
            }
            count(draft, whole.usage);
            stop(draft, whole.stop_reason.as_deref());
            draft.ended = true;
        }
        Event::ContentBlockStart { .. } | Event::ContentBlockDelta { .. } | Event::Other => {}
    }
    Ok(())
}

fn count(draft: &mut Draft, usage: Option<Usage>) {
    let Some(usage) = usage else { return };
    if let Some(fresh) = usage.input_tokens {
        let cached = usage.cache_creation_input_tokens.unwrap_or(0) + usage.cache_read_input_tokens.unwrap_or(0);
        draft.input_tokens = Some(fresh + cached);
    }
    // Cumulative: the last one counts.
    draft.output_tokens = usage.output_tokens.or(draft.output_tokens);
}

fn stop(draft: &mut Draft, reason: Option<&str>) {
    draft.stop = match reason {
        None => draft.stop,
        Some("end_turn" | "stop_sequence") => Some(StopCause::End),
        Some("max_tokens" | "model_context_window_exceeded") => Some(StopCause::Length),
        Some("refusal") => Some(StopCause::Refusal),
        Some(_) => Some(StopCause::Other),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_message_is_understood() {
        let mut draft = Draft::default();
        let body = r#"{"type":"message","content":[{"type":"thinking","thinking":"x"},{"type":"text","text":"hello"}],
            "stop_reason":"max_tokens","usage":{"input_tokens":3,"output_tokens":4}}"#;
        assert!(ReplyReader.whole(&mut draft, body).is_ok());
        assert_eq!((draft.text.as_str(), draft.stop), ("hello", Some(StopCause::Length)));
        assert_eq!((draft.input_tokens, draft.output_tokens), (Some(3), Some(4)));
    }

    #[test]
    fn an_unknown_event_is_passed_over() {
        let mut draft = Draft::default();
        assert!(ReplyReader.event(&mut draft, r#"{"type":"content_block_stop","index":0}"#).is_ok());
        assert_eq!(draft, Draft::default());
    }
}
