//! The wire format of Anthropic's messages.

use nightshift_protocol::model_call::StopCause;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::endpoint::EndpointConfig;
use super::error_report::is_provider_error;
use super::stream::{Draft, Reader, Trouble};
use super::{ModelRequest, TokenUsage};

/// The resource that answers.
pub(super) const RESOURCE: &str = "messages";

/// The version of the interface that this module speaks.
pub(super) const VERSION: &str = "2023-06-01";

/// The body of a request. The schema of a structured reply is part of the prompt: this interface has no field that
/// every model of it accepts. What is stable comes first and is marked to be cached; a prompt that is too short for the
/// cache is charged as if it were not marked.
pub(super) fn body(config: &EndpointConfig, model: &str, request: &ModelRequest) -> Value {
    let mut messages = vec![json!({"role": "user", "content": question(config, request)})];
    for (place, (assistant, user)) in request.earlier.iter().enumerate() {
        // The next turn of a session, which has functions, begins with these messages. It leaves out the note at the end of the last one.
        let is_last = place + 1 == request.earlier.len();
        let is_shared = config.prompt_cache && is_last && !request.functions.is_empty();
        let reply = if is_shared { json!([cached(assistant)]) } else { json!(assistant) };
        messages.push(json!({"role": "assistant", "content": reply}));
        messages.push(json!({"role": "user", "content": user}));
    }
    let mut body = json!({
        "model": model,
        "max_tokens": config.output_limit(request.max_output_tokens),
        "system": if config.prompt_cache { json!([cached(&request.system)]) } else { json!(request.system) },
        "messages": messages,
        "stream": true,
    });
    if let Some(temperature) = request.temperature {
        body["temperature"] = json!(temperature);
    }
    if let Some(effort) = &config.reasoning_effort {
        body["output_config"] = json!({"effort": effort});
    }
    if config.reasoning_summaries {
        body["thinking"] = json!({"type": "adaptive", "display": "summarized"});
    }
    let functions = config.functions(request);
    if !functions.is_empty() {
        body["tools"] = functions.iter().map(|function| function.to_json("input_schema")).collect();
        body["tool_choice"] = json!({"type": "auto", "disable_parallel_tool_use": true});
    }
    for (field, value) in &config.extra_body {
        body[field] = value.clone();
    }
    body
}

/// The first message: the part that other calls share is a block of its own, which ends what is cached.
fn question(config: &EndpointConfig, request: &ModelRequest) -> Value {
    match request.user.split_at_checked(request.stable_user_bytes) {
        Some((stable, rest)) if config.prompt_cache && !stable.is_empty() && !rest.is_empty() => {
            json!([cached(stable), {"type": "text", "text": rest}])
        }
        _ => json!(request.user),
    }
}

/// A text up to whose end the prompt is cached.
fn cached(text: &str) -> Value {
    json!({"type": "text", "text": text, "cache_control": {"type": "ephemeral"}})
}

/// The events that matter; others, and those of a later version, are passed over.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Event {
    MessageStart {
        message: Start,
    },
    ContentBlockStart {
        #[serde(default)]
        index: u64,
        content_block: Block,
    },
    ContentBlockDelta {
        #[serde(default)]
        index: u64,
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
    Thinking {
        #[serde(default)]
        thinking: String,
    },
    ToolUse {
        name: String,
        /// Empty where the arguments are streamed behind it.
        #[serde(default)]
        input: Map<String, Value>,
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
    ThinkingDelta {
        thinking: String,
    },
    InputJsonDelta {
        partial_json: String,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Usage {
    input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    output_tokens_details: Option<OutputDetails>,
}

#[derive(Deserialize)]
struct OutputDetails {
    thinking_tokens: Option<u64>,
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
    if is_provider_error(&value) {
        return Err(Trouble::Provider(value));
    }
    let event: Event = serde_json::from_value(value).map_err(|error| malformed(error.to_string()))?;
    match event {
        Event::MessageStart { message } => count(draft, message.usage),
        Event::ContentBlockStart { index, content_block } => block(draft, index, content_block)?,
        Event::ContentBlockDelta { index, delta } => match delta {
            BlockDelta::TextDelta { text } => draft.push(&text)?,
            BlockDelta::ThinkingDelta { thinking } => draft.push_reasoning(&thinking),
            BlockDelta::InputJsonDelta { partial_json } => draft.push_call(index, None, &partial_json)?,
            BlockDelta::Other => {}
        },
        Event::MessageDelta { delta, usage } => {
            count(draft, usage);
            stop(draft, delta.stop_reason.as_deref());
        }
        Event::MessageStop => draft.ended = true,
        Event::Message(whole) => {
            for (index, content_block) in (0..).zip(whole.content) {
                block(draft, index, content_block)?;
            }
            count(draft, whole.usage);
            stop(draft, whole.stop_reason.as_deref());
            draft.ended = true;
        }
        Event::Other => {}
    }
    Ok(())
}

/// Takes a block of a message: what it holds when it begins, or all of it.
fn block(draft: &mut Draft, index: u64, block: Block) -> Result<(), Trouble> {
    match block {
        Block::Text { text } => draft.push(&text)?,
        Block::Thinking { thinking } => {
            draft.separate_reasoning();
            draft.push_reasoning(&thinking);
        }
        Block::ToolUse { name, input } => {
            let arguments = if input.is_empty() { String::new() } else { Value::Object(input).to_string() };
            draft.push_call(index, Some(&name), &arguments)?;
        }
        Block::Other => {}
    }
    Ok(())
}

/// Counts are cumulative. `input_tokens` leaves out what was read from the cache and what was written to it.
fn count(draft: &mut Draft, usage: Option<Usage>) {
    let Some(usage) = usage else { return };
    let (read, written) = (usage.cache_read_input_tokens, usage.cache_creation_input_tokens);
    draft.tokens.update(TokenUsage {
        input: usage
            .input_tokens
            .map(|rest| rest.saturating_add(read.unwrap_or(0)).saturating_add(written.unwrap_or(0))),
        cached_input: read,
        cache_write: written,
        output: usage.output_tokens,
        reasoning: usage.output_tokens_details.and_then(|details| details.thinking_tokens),
    });
}

fn stop(draft: &mut Draft, reason: Option<&str>) {
    draft.stop = match reason {
        None => draft.stop,
        Some("end_turn" | "stop_sequence" | "tool_use") => Some(StopCause::End),
        Some("max_tokens" | "model_context_window_exceeded") => Some(StopCause::Length),
        Some("refusal") => Some(StopCause::Refusal),
        Some(_) => Some(StopCause::Other),
    };
}

#[cfg(test)]
mod tests {
    use super::super::endpoint::WireFormat;
    use super::super::function::FunctionDefinition;
    use super::*;

    fn request() -> ModelRequest {
        ModelRequest {
            user: "stable, varying".to_owned(),
            stable_user_bytes: 6,
            earlier: vec![("a".to_owned(), "again".to_owned())],
            ..ModelRequest::example()
        }
    }

    #[test]
    fn the_stable_beginning_of_a_prompt_is_marked_to_be_cached() {
        let mut config = EndpointConfig::new(WireFormat::Anthropic, "http://127.0.0.1/v1");
        let mark = json!({"type": "ephemeral"});
        let marked = body(&config, "m", &request());
        assert_eq!(marked["system"], json!([{"type": "text", "text": "s", "cache_control": mark}]));
        assert_eq!(
            marked["messages"][0]["content"],
            json!([{"type": "text", "text": "stable", "cache_control": mark}, {"type": "text", "text": ", varying"}])
        );
        assert_eq!(marked["messages"][2], json!({"role": "user", "content": "again"}));

        let unknown = body(&config, "m", &ModelRequest { stable_user_bytes: 0, ..request() });
        assert_eq!(unknown["messages"][0]["content"], json!("stable, varying"));
        config.prompt_cache = false;
        let plain = body(&config, "m", &request());
        assert_eq!((&plain["system"], &plain["messages"][0]["content"]), (&json!("s"), &json!("stable, varying")));
    }

    #[test]
    fn each_turn_of_a_session_marks_the_turns_that_the_next_one_repeats() {
        let mut config = EndpointConfig::new(WireFormat::Anthropic, "http://127.0.0.1/v1");
        let functions = vec![FunctionDefinition { name: "build", description: "", parameters: json!({}) }];
        let turn = |count: usize| {
            let earlier = (0..count).map(|turn| (format!("reply {turn}"), format!("result {turn}"))).collect();
            ModelRequest { earlier, functions: functions.clone(), ..request() }
        };
        let marks = |body: &Value| body.to_string().matches("cache_control").count();
        for count in 1..4 {
            let session = body(&config, "m", &turn(count));
            assert_eq!(session["messages"][2 * count - 1]["content"], json!([cached(&format!("reply {}", count - 1))]));
            assert_eq!(marks(&session), 3, "the endpoint accepts four");
        }
        assert_eq!(marks(&body(&config, "m", &request())), 2, "a repair turn is not repeated");
        config.prompt_cache = false;
        assert_eq!(marks(&body(&config, "m", &turn(2))), 0);
    }

    #[test]
    fn reasoning_is_asked_for_as_it_is_configured() {
        let mut config = EndpointConfig::new(WireFormat::Anthropic, "http://127.0.0.1/v1");
        assert!(body(&config, "m", &request()).get("thinking").is_none());
        config.reasoning_effort = Some("high".to_owned());
        config.reasoning_summaries = true;
        let asked = body(&config, "m", &request());
        assert_eq!(asked["output_config"], json!({"effort": "high"}));
        assert_eq!(asked["thinking"], json!({"type": "adaptive", "display": "summarized"}));
    }

    #[test]
    fn a_whole_message_is_understood() {
        let mut draft = Draft::default();
        let body = r#"{"type":"message","content":[{"type":"thinking","thinking":"x"},{"type":"text","text":"hello"}],
            "stop_reason":"max_tokens","usage":{"input_tokens":3,"cache_creation_input_tokens":5,
            "cache_read_input_tokens":7,"output_tokens":4,"output_tokens_details":{"thinking_tokens":2}}}"#;
        assert!(ReplyReader.whole(&mut draft, body).is_ok());
        assert_eq!((draft.text.as_str(), draft.stop), ("hello", Some(StopCause::Length)));
        let expected = TokenUsage {
            input: Some(15),
            cached_input: Some(7),
            cache_write: Some(5),
            output: Some(4),
            reasoning: Some(2),
        };
        assert_eq!((draft.tokens, draft.take_reasoning()), (expected, Some("x".to_owned())));
    }

    #[test]
    fn an_unknown_event_is_passed_over() {
        let mut draft = Draft::default();
        assert!(ReplyReader.event(&mut draft, r#"{"type":"content_block_stop","index":0}"#).is_ok());
        assert_eq!(draft, Draft::default());
    }
}
