//! The wire format of `OpenAI`'s responses.

use nightshift_protocol::model_call::StopCause;
use serde::Deserialize;
use serde_json::{Value, json};

use super::endpoint::{EndpointConfig, StructuredReplies};
use super::error_report::is_provider_error;
use super::stream::{Draft, Reader, Trouble};
use super::{FunctionDefinition, ModelRequest, TokenUsage};

/// The resource that answers.
pub(super) const RESOURCE: &str = "responses";

/// Hexadecimal digits of the key by which requests with the same beginning are sent to the same cache.
const CACHE_KEY_DIGITS: usize = 32;

/// The body of a request. The provider keeps nothing of it: every request holds the whole conversation.
pub(super) fn body(config: &EndpointConfig, model: &str, request: &ModelRequest) -> Value {
    let mut input = vec![json!({"role": "user", "content": request.user})];
    for (assistant, user) in &request.earlier {
        input.push(json!({"role": "assistant", "content": assistant}));
        input.push(json!({"role": "user", "content": user}));
    }
    let mut body = json!({
        "model": model,
        "instructions": request.system,
        "input": input,
        "max_output_tokens": config.output_limit(request.max_output_tokens),
        "stream": true,
        "store": false,
    });
    if let Some(temperature) = request.temperature {
        body["temperature"] = json!(temperature);
    }
    match (&request.json_schema, config.structured_replies) {
        (None, _) | (Some(_), StructuredReplies::None) => {}
        (Some(_), StructuredReplies::JsonObject) => body["text"] = json!({"format": {"type": "json_object"}}),
        (Some(schema), StructuredReplies::JsonSchema) => {
            body["text"] =
                json!({"format": {"type": "json_schema", "name": "reply", "strict": true, "schema": schema}});
        }
    }
    if let Some(effort) = &config.reasoning_effort {
        body["reasoning"]["effort"] = json!(effort);
    }
    if config.reasoning_summaries {
        body["reasoning"]["summary"] = json!("auto");
    }
    if config.prompt_cache {
        let digest = blake3::hash(request.system.as_bytes()).to_hex();
        body["prompt_cache_key"] = json!(&digest[..CACHE_KEY_DIGITS]);
    }
    let functions = config.functions(request);
    if !functions.is_empty() {
        let tool = |function: &FunctionDefinition| {
            let mut tool = function.to_json("parameters");
            tool["type"] = json!("function");
            // Strict schemas allow no argument to be left out.
            tool["strict"] = json!(false);
            tool
        };
        body["tools"] = functions.iter().map(tool).collect();
        body["parallel_tool_calls"] = json!(false);
    }
    for (field, value) in &config.extra_body {
        body[field] = value.clone();
    }
    body
}

/// The events that matter; others, and those of a later version, are passed over.
#[derive(Deserialize)]
#[serde(tag = "type")]
enum Event {
    #[serde(rename = "response.output_text.delta")]
    Text { delta: String },
    #[serde(rename = "response.refusal.delta")]
    Refusal { delta: String },
    #[serde(rename = "response.reasoning_summary_part.added")]
    SummaryPart,
    #[serde(rename = "response.reasoning_summary_text.delta", alias = "response.reasoning_text.delta")]
    Reasoning { delta: String },
    #[serde(rename = "response.completed", alias = "response.incomplete", alias = "response.failed")]
    Ended { response: Response },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Response {
    status: Option<String>,
    error: Option<Value>,
    incomplete_details: Option<Incomplete>,
    #[serde(default)]
    output: Vec<Item>,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Incomplete {
    reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Item {
    Message {
        #[serde(default)]
        content: Vec<Part>,
    },
    FunctionCall {
        name: String,
        #[serde(default)]
        arguments: String,
    },
    Reasoning {
        #[serde(default)]
        summary: Vec<Part>,
        #[serde(default)]
        content: Option<Vec<Part>>,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part {
    #[serde(alias = "summary_text", alias = "reasoning_text")]
    OutputText {
        text: String,
    },
    Refusal {
        refusal: String,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Usage {
    input_tokens: Option<u64>,
    input_tokens_details: Option<InputDetails>,
    output_tokens: Option<u64>,
    output_tokens_details: Option<OutputDetails>,
}

#[derive(Deserialize)]
struct InputDetails {
    cached_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct OutputDetails {
    reasoning_tokens: Option<u64>,
}

/// Reads replies of this format.
pub(super) struct ReplyReader;

impl Reader for ReplyReader {
    fn event(&mut self, draft: &mut Draft, data: &str) -> Result<(), Trouble> {
        // Some servers end the stream as that of chat completions ends; the last event said already what it was.
        if data.trim() == "[DONE]" {
            return Ok(());
        }
        match serde_json::from_value(checked(data)?).map_err(|error| malformed(&error, data))? {
            Event::Text { delta } => draft.push(&delta)?,
            Event::Refusal { delta } => refuse(draft, &delta)?,
            Event::SummaryPart => draft.separate_reasoning(),
            Event::Reasoning { delta } => draft.push_reasoning(&delta),
            Event::Ended { response } => end(draft, response, data)?,
            Event::Other => {}
        }
        Ok(())
    }

    fn whole(&mut self, draft: &mut Draft, body: &str) -> Result<(), Trouble> {
        let response = serde_json::from_value(checked(body)?).map_err(|error| malformed(&error, body))?;
        end(draft, response, body)
    }
}

/// Returns the value of a JSON text that reports no error.
fn checked(data: &str) -> Result<Value, Trouble> {
    let value: Value = serde_json::from_str(data).map_err(|error| malformed(&error, data))?;
    if is_provider_error(&value) { Err(Trouble::Provider(value)) } else { Ok(value) }
}

fn malformed(error: &dyn std::fmt::Display, data: &str) -> Trouble {
    Trouble::Malformed { message: error.to_string(), excerpt: data.to_owned() }
}

fn refuse(draft: &mut Draft, text: &str) -> Result<(), Trouble> {
    draft.stop = Some(StopCause::Refusal);
    draft.push(text)
}

/// Takes the response at its end. Texts that were streamed are not taken again.
fn end(draft: &mut Draft, response: Response, data: &str) -> Result<(), Trouble> {
    if let Some(error) = response.error.filter(|error| !error.is_null()) {
        return Err(Trouble::Provider(json!({ "error": error })));
    }
    let stop = match (response.status.as_deref(), response.incomplete_details.and_then(|details| details.reason)) {
        (Some("completed"), _) => StopCause::End,
        (Some("incomplete"), Some(reason)) if reason == "max_output_tokens" => StopCause::Length,
        (Some("incomplete"), Some(reason)) if reason == "content_filter" => StopCause::Refusal,
        (Some("incomplete"), _) => StopCause::Other,
        (status, _) => {
            let status = status.unwrap_or("missing");
            return Err(malformed(&format!("the status of the response is `{status}`"), data));
        }
    };
    let (has_text, has_reasoning) = (!draft.text.is_empty(), draft.has_reasoning());
    for (place, item) in (0..).zip(response.output) {
        match item {
            Item::FunctionCall { name, arguments } => draft.push_call(place, Some(&name), &arguments)?,
            Item::Message { content } if !has_text => {
                for part in content {
                    match part {
                        Part::OutputText { text } => draft.push(&text)?,
                        Part::Refusal { refusal } => refuse(draft, &refusal)?,
                        Part::Other => {}
                    }
                }
            }
            Item::Reasoning { summary, content } if !has_reasoning => {
                for part in summary.into_iter().chain(content.unwrap_or_default()) {
                    if let Part::OutputText { text } = part {
                        draft.separate_reasoning();
                        draft.push_reasoning(&text);
                    }
                }
            }
            Item::Message { .. } | Item::Reasoning { .. } | Item::Other => {}
        }
    }
    if let Some(usage) = response.usage {
        draft.tokens.update(TokenUsage {
            input: usage.input_tokens,
            cached_input: usage.input_tokens_details.as_ref().and_then(|details| details.cached_tokens),
            cache_write: usage.input_tokens_details.as_ref().and_then(|details| details.cache_write_tokens),
            output: usage.output_tokens,
            reasoning: usage.output_tokens_details.and_then(|details| details.reasoning_tokens),
        });
    }
    if draft.stop != Some(StopCause::Refusal) {
        draft.stop = Some(stop);
    }
    draft.ended = true;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::endpoint::WireFormat;
    use super::*;

    fn request() -> ModelRequest {
        ModelRequest {
            earlier: vec![("a".to_owned(), "again".to_owned())],
            json_schema: Some(json!({"type": "object"})),
            ..ModelRequest::example()
        }
    }

    fn config() -> EndpointConfig {
        EndpointConfig::new(WireFormat::OpenaiResponses, "http://127.0.0.1/v1")
    }

    #[test]
    fn a_request_holds_the_whole_conversation_and_is_not_stored() {
        let body = body(&config(), "m", &request());
        assert_eq!((&body["instructions"], &body["store"]), (&json!("s"), &json!(false)));
        assert_eq!(body["input"][1], json!({"role": "assistant", "content": "a"}));
        assert_eq!(body["input"][2], json!({"role": "user", "content": "again"}));
        assert_eq!(body["max_output_tokens"], json!(1_000));
        assert_eq!(body["text"]["format"]["schema"], json!({"type": "object"}));
        assert!(body.get("reasoning").is_none() && body.get("temperature").is_none());
    }

    #[test]
    fn requests_with_the_same_instructions_share_a_cache() {
        let key = |system: &str| {
            let request = ModelRequest { system: system.to_owned(), ..request() };
            body(&config(), "m", &request)["prompt_cache_key"].clone()
        };
        assert_eq!(key("a"), key("a"));
        assert_ne!(key("a"), key("b"));
        let without = EndpointConfig { prompt_cache: false, ..config() };
        assert!(body(&without, "m", &request()).get("prompt_cache_key").is_none());
    }

    #[test]
    fn reasoning_is_asked_for_as_it_is_configured() {
        let config =
            EndpointConfig { reasoning_effort: Some("high".to_owned()), reasoning_summaries: true, ..config() };
        assert_eq!(body(&config, "m", &request())["reasoning"], json!({"effort": "high", "summary": "auto"}));
    }

    #[test]
    fn what_was_not_streamed_is_taken_from_the_response() {
        let mut draft = Draft::default();
        let last = r#"{"type":"response.incomplete","response":{"status":"incomplete","error":null,
            "incomplete_details":{"reason":"max_output_tokens"},"output":[
            {"type":"reasoning","summary":[{"type":"summary_text","text":"hm"},{"type":"summary_text","text":"so"}]},
            {"type":"web_search_call"},
            {"type":"message","content":[{"type":"output_text","text":"hello"}]}],"usage":null}}"#;
        assert!(ReplyReader.event(&mut draft, last).is_ok());
        assert_eq!((draft.text.as_str(), draft.stop, draft.ended), ("hello", Some(StopCause::Length), true));
        assert_eq!((draft.tokens, draft.take_reasoning()), (TokenUsage::default(), Some("hm\n\nso".to_owned())));
    }

    #[test]
    fn a_refusal_outlives_the_reason_to_stop() {
        let mut draft = Draft::default();
        let events = [
            r#"{"type":"response.refusal.delta","delta":"No."}"#,
            r#"{"type":"response.completed","response":{"status":"completed"}}"#,
        ];
        assert!(events.iter().all(|event| ReplyReader.event(&mut draft, event).is_ok()));
        assert_eq!((draft.text.as_str(), draft.stop), ("No.", Some(StopCause::Refusal)));
    }

    #[test]
    fn a_response_that_has_not_ended_is_malformed() {
        let result = ReplyReader.whole(&mut Draft::default(), r#"{"object":"response","status":"in_progress"}"#);
        assert!(matches!(result, Err(Trouble::Malformed { .. })), "{result:?}");
    }
}
