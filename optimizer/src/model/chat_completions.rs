//! The wire format of chat completions.

use nightshift_protocol::model_call::StopCause;
use serde::Deserialize;
use serde_json::{Value, json};

use super::endpoint::{EndpointConfig, MaxTokensField, StructuredReplies};
use super::error_report::is_provider_error;
use super::stream::{Draft, Reader, Trouble};
use super::{FunctionDefinition, ModelRequest, TokenUsage};

/// The resource that answers.
pub(super) const RESOURCE: &str = "chat/completions";

/// The body of a request.
pub(super) fn body(config: &EndpointConfig, model: &str, request: &ModelRequest) -> Value {
    let mut messages =
        vec![json!({"role": "system", "content": request.system}), json!({"role": "user", "content": request.user})];
    for (assistant, user) in &request.earlier {
        messages.push(json!({"role": "assistant", "content": assistant}));
        messages.push(json!({"role": "user", "content": user}));
    }
    let mut body = json!({
        "model": model,
        "messages": messages,
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    let max_tokens = config.output_limit(request.max_output_tokens);
    match config.max_tokens_field {
        MaxTokensField::MaxTokens => body["max_tokens"] = json!(max_tokens),
        MaxTokensField::MaxCompletionTokens => body["max_completion_tokens"] = json!(max_tokens),
    }
    if let Some(temperature) = request.temperature {
        body["temperature"] = json!(temperature);
    }
    if let Some(effort) = &config.reasoning_effort {
        body["reasoning_effort"] = json!(effort);
    }
    match (&request.json_schema, config.structured_replies) {
        (None, _) | (Some(_), StructuredReplies::None) => {}
        (Some(_), StructuredReplies::JsonObject) => body["response_format"] = json!({"type": "json_object"}),
        (Some(schema), StructuredReplies::JsonSchema) => {
            body["response_format"] = json!({
                "type": "json_schema",
                "json_schema": {"name": "reply", "strict": true, "schema": schema},
            });
        }
    }
    let functions = config.functions(request);
    if !functions.is_empty() {
        let tool =
            |function: &FunctionDefinition| json!({"type": "function", "function": function.to_json("parameters")});
        body["tools"] = functions.iter().map(tool).collect();
    }
    for (field, value) in &config.extra_body {
        body[field] = value.clone();
    }
    body
}

#[derive(Deserialize)]
struct Chunk {
    choices: Option<Vec<Choice>>,
    usage: Option<Usage>,
}

/// A choice of a stream has a delta, one of a whole reply a message; both have the same fields.
#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    index: u64,
    delta: Option<Message>,
    message: Option<Message>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Message {
    content: Option<Value>,
    /// The reasoning; some servers send it under both names.
    reasoning_content: Option<Value>,
    reasoning: Option<Value>,
    refusal: Option<String>,
    tool_calls: Option<Vec<Call>>,
}

#[derive(Deserialize)]
struct Call {
    /// Its place among the calls; none in a whole reply, which lists them in order.
    index: Option<u64>,
    function: Option<CalledFunction>,
}

#[derive(Deserialize)]
struct CalledFunction {
    name: Option<String>,
    arguments: Option<String>,
}

#[derive(Deserialize)]
struct Usage {
    prompt_tokens: Option<u64>,
    prompt_tokens_details: Option<PromptDetails>,
    completion_tokens: Option<u64>,
    completion_tokens_details: Option<CompletionDetails>,
}

#[derive(Deserialize)]
struct PromptDetails {
    cached_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct CompletionDetails {
    reasoning_tokens: Option<u64>,
}

/// Reads replies of this format.
pub(super) struct ReplyReader;

impl Reader for ReplyReader {
    fn event(&mut self, draft: &mut Draft, data: &str) -> Result<(), Trouble> {
        if data.trim() == "[DONE]" {
            draft.ended = true;
            return Ok(());
        }
        take(draft, data)
    }

    fn whole(&mut self, draft: &mut Draft, body: &str) -> Result<(), Trouble> {
        take(draft, body)?;
        draft.ended = true;
        Ok(())
    }
}

fn take(draft: &mut Draft, data: &str) -> Result<(), Trouble> {
    let malformed = |message: String| Trouble::Malformed { message, excerpt: data.to_owned() };
    let value: Value = serde_json::from_str(data).map_err(|error| malformed(error.to_string()))?;
    if is_provider_error(&value) {
        return Err(Trouble::Provider(value));
    }
    let chunk: Chunk = serde_json::from_value(value).map_err(|error| malformed(error.to_string()))?;
    if chunk.choices.is_none() && chunk.usage.is_none() {
        return Err(malformed("it has neither `choices` nor `usage`".to_owned()));
    }
    if let Some(usage) = chunk.usage {
        // Some servers repeat the usage with every chunk: the last one counts.
        draft.tokens.update(TokenUsage {
            input: usage.prompt_tokens,
            cached_input: usage.prompt_tokens_details.as_ref().and_then(|details| details.cached_tokens),
            cache_write: usage.prompt_tokens_details.as_ref().and_then(|details| details.cache_write_tokens),
            output: usage.completion_tokens,
            reasoning: usage.completion_tokens_details.and_then(|details| details.reasoning_tokens),
        });
    }
    for choice in chunk.choices.into_iter().flatten().filter(|choice| choice.index == 0) {
        if let Some(message) = choice.delta.or(choice.message) {
            // Other shapes of reasoning are the server's own and are left out.
            if let Some(Value::String(reasoning)) = message.reasoning_content.or(message.reasoning) {
                draft.push_reasoning(&reasoning);
            }
            match message.content {
                None | Some(Value::Null) => {}
                Some(Value::String(text)) => draft.push(&text)?,
                Some(Value::Array(parts)) => {
                    for part in &parts {
                        if let Some(text) = part.get("text").and_then(Value::as_str) {
                            draft.push(text)?;
                        }
                    }
                }
                Some(_) => return Err(malformed("`content` is no text".to_owned())),
            }
            for (place, call) in (0..).zip(message.tool_calls.into_iter().flatten()) {
                if let Some(function) = call.function {
                    let arguments = function.arguments.unwrap_or_default();
                    draft.push_call(call.index.unwrap_or(place), function.name.as_deref(), &arguments)?;
                }
            }
            if let Some(refusal) = message.refusal.filter(|text| !text.is_empty()) {
                draft.push(&refusal)?;
                draft.stop = Some(StopCause::Refusal);
            }
        }
        if let Some(reason) = choice.finish_reason.filter(|reason| !reason.is_empty()) {
            let stop = match reason.as_str() {
                "length" => StopCause::Length,
                "content_filter" => StopCause::Refusal,
                "abort" | "aborted" | "cancelled" | "error" | "insufficient_system_resource" => StopCause::Other,
                // Servers have many words for the end of a reply, as `stop`, `eos`, `end_turn` and `tool_calls`.
                _ => StopCause::End,
            };
            if draft.stop != Some(StopCause::Refusal) {
                draft.stop = Some(stop);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::endpoint::WireFormat;
    use super::*;

    fn request() -> ModelRequest {
        ModelRequest {
            earlier: vec![("a".to_owned(), "again".to_owned())],
            temperature: Some(0.5),
            json_schema: Some(json!({"type": "object"})),
            ..ModelRequest::example()
        }
    }

    #[test]
    fn a_request_has_every_turn_and_asks_for_usage() {
        let config = EndpointConfig::new(WireFormat::Openai, "http://127.0.0.1/v1");
        let body = body(&config, "m", &request());
        assert_eq!(body["messages"][3], json!({"role": "user", "content": "again"}));
        assert_eq!(body["stream_options"]["include_usage"], json!(true));
        assert_eq!(body["max_tokens"], json!(1_000));
        assert_eq!(body["response_format"]["json_schema"]["schema"], json!({"type": "object"}));
    }

    #[test]
    fn the_configuration_shapes_the_request() {
        let mut config = EndpointConfig::new(WireFormat::Openai, "http://127.0.0.1/v1");
        config.max_tokens_field = MaxTokensField::MaxCompletionTokens;
        config.max_output_tokens = Some(10);
        config.structured_replies = StructuredReplies::None;
        config.reasoning_effort = Some("high".to_owned());
        config.extra_body.insert("reasoning_effort".to_owned(), json!("low"));
        let body = body(&config, "m", &request());
        assert_eq!(body["max_completion_tokens"], json!(10));
        assert!(body.get("max_tokens").is_none() && body.get("response_format").is_none());
        assert_eq!(body["reasoning_effort"], json!("low"), "a field of `extra_body` replaces ours");
    }

    #[test]
    fn cached_tokens_and_reasoning_are_read() {
        let mut draft = Draft::default();
        let whole = r#"{"choices":[{"message":{"reasoning":"hm","content":"ok"},"finish_reason":"stop"}],"usage":{
            "prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":6},"completion_tokens":5,
            "completion_tokens_details":{"reasoning_tokens":3}}}"#;
        assert!(ReplyReader.whole(&mut draft, whole).is_ok());
        let expected = TokenUsage {
            input: Some(9),
            cached_input: Some(6),
            cache_write: None,
            output: Some(5),
            reasoning: Some(3),
        };
        assert_eq!((draft.tokens, draft.take_reasoning()), (expected, Some("hm".to_owned())));
    }

    #[test]
    fn a_refusal_outlives_the_reason_to_stop() {
        let mut draft = Draft::default();
        let event = r#"{"choices":[{"delta":{"refusal":"No."},"finish_reason":"stop"}]}"#;
        assert!(ReplyReader.event(&mut draft, event).is_ok());
        assert_eq!((draft.text.as_str(), draft.stop), ("No.", Some(StopCause::Refusal)));
    }
}
