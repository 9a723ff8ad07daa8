//! Reasoning, cached tokens and limits of replies, over every wire format.

use nightshift_optimizer::model::{MAX_REASONING_BYTES, ModelReply, ModelRequest, TokenUsage, Unmetered, WireFormat};
use nightshift_protocol::step::{FailureClass, StepFailure};
use serde_json::{Value, json};

use crate::server::{Server, done, error, event, events_of_end, events_of_text, good, open, stream};
use crate::wire::{ALL, call, failure, request};

const TEXT: &str = "ok";

/// The events of a piece of reasoning.
pub(crate) fn events_of_reasoning(kind: WireFormat, text: &str) -> String {
    match kind {
        WireFormat::Openai => event("", &json!({"choices": [{"index": 0, "delta": {"reasoning_content": text}}]})),
        WireFormat::OpenaiResponses => event(
            "response.reasoning_summary_text.delta",
            &json!({"type": "response.reasoning_summary_text.delta", "summary_index": 0, "delta": text}),
        ),
        WireFormat::Anthropic => event(
            "content_block_delta",
            &json!({"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": text}}),
        ),
    }
}

/// The end of a reply whose endpoint reports 100 tokens of the prompt, 70 of them from the cache, and 22 of the reply, 12
/// of them of the reasoning.
pub(crate) fn events_of_detailed_end(kind: WireFormat) -> String {
    match kind {
        WireFormat::Openai => {
            let usage = json!({
                "prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 70, "cache_write_tokens": 20},
                "completion_tokens": 22, "completion_tokens_details": {"reasoning_tokens": 12},
            });
            let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
            [event("", &end), event("", &json!({"choices": [], "usage": usage})), "data: [DONE]\n\n".to_owned()]
                .concat()
        }
        WireFormat::OpenaiResponses => {
            let usage = json!({
                "input_tokens": 100, "input_tokens_details": {"cached_tokens": 70, "cache_write_tokens": 20},
                "output_tokens": 22, "output_tokens_details": {"reasoning_tokens": 12},
            });
            let response = json!({"status": "completed", "error": null, "usage": usage});
            event("response.completed", &json!({"type": "response.completed", "response": response}))
        }
        WireFormat::Anthropic => {
            let usage = json!({
                "input_tokens": 10, "cache_read_input_tokens": 70, "cache_creation_input_tokens": 20,
                "output_tokens": 22, "output_tokens_details": {"thinking_tokens": 12},
            });
            let end = json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage});
            [event("message_delta", &end), event("message_stop", &json!({"type": "message_stop"}))].concat()
        }
    }
}

async fn reply_to(kind: WireFormat, body: &str) -> ModelReply {
    let server = Server::start(vec![stream(body)]).await;
    call(&server, kind).await.unwrap()
}

#[tokio::test]
async fn reasoning_and_every_count_of_tokens_are_kept() {
    let expected = TokenUsage {
        input: Some(100),
        cached_input: Some(70),
        cache_write: Some(20),
        output: Some(22),
        reasoning: Some(12),
    };
    for kind in ALL {
        let body = [
            events_of_reasoning(kind, "First "),
            events_of_reasoning(kind, "this."),
            events_of_text(kind, TEXT),
            events_of_detailed_end(kind),
        ];
        let reply = reply_to(kind, &body.concat()).await;
        assert_eq!((reply.text.as_str(), reply.reasoning.as_deref()), (TEXT, Some("First this.")), "{kind:?}");
        assert_eq!(reply.tokens, expected, "{kind:?}");
    }
}

#[tokio::test]
async fn what_an_endpoint_does_not_report_is_unknown() {
    for kind in ALL {
        let reply = reply_to(kind, &(events_of_text(kind, TEXT) + &events_of_end(kind, done(kind)))).await;
        assert_eq!(reply.reasoning, None);
        let tokens = reply.tokens;
        assert_eq!((tokens.cached_input, tokens.cache_write, tokens.reasoning), (None, None, None), "{kind:?}");
        assert_eq!((tokens.input, tokens.output), (Some(11), Some(22)));
    }
}

#[tokio::test]
async fn long_reasoning_is_cut_and_the_reply_is_not() {
    for kind in ALL {
        let piece = events_of_reasoning(kind, &"é".repeat(50_000));
        let body = piece.repeat(4) + &events_of_text(kind, TEXT) + &events_of_end(kind, done(kind));
        let reply = reply_to(kind, &body).await;
        assert_eq!(reply.text, TEXT);
        let reasoning = reply.reasoning.unwrap();
        assert!(reasoning.len() < MAX_REASONING_BYTES + 100, "{}", reasoning.len());
        assert!(reasoning.contains("the rest is left out"), "{kind:?}");
    }
}

#[tokio::test]
async fn a_failed_response_is_no_reply() {
    let failed = |code: &str| {
        let response = json!({"status": "failed", "error": {"code": code, "message": "no"}});
        let body = events_of_text(WireFormat::OpenaiResponses, "half")
            + &event("response.failed", &json!({"type": "response.failed", "response": response}));
        stream(&body)
    };
    let kind = WireFormat::OpenaiResponses;
    assert_eq!(failure(kind, failed("invalid_prompt")).await.0.code(), "model.bad_request");
    let server = Server::start(vec![failed("rate_limit_exceeded"), failed("server_error"), good(kind, TEXT)]).await;
    assert_eq!(call(&server, kind).await.unwrap().text, TEXT);
    assert_eq!(server.requests(), 3);
    let event = event("error", &json!({"type": "error", "code": "server_error", "message": "no", "param": null}));
    assert_eq!(failure(kind, stream(&event)).await.0.code(), "model.server_error");
}

#[tokio::test]
async fn a_server_without_responses_is_told_from_an_unknown_model() {
    let (error, _) = failure(WireFormat::OpenaiResponses, error("404 Not Found", "", "not_found", "no route")).await;
    assert_eq!(error.code(), "model.not_found");
    assert!(error.to_string().contains("`kind = \"openai\"` in [models.fake]"), "{error}");
}

#[tokio::test]
async fn a_limit_of_the_reply_that_is_too_large_names_the_key() {
    let messages = [
        "max_tokens: 100 > 50, which is the maximum allowed number of output tokens for m",
        "max_tokens is too large: 100. This model supports at most 50 completion tokens",
        "`max_tokens` must be less than or equal to `50`",
        "Invalid \'max_output_tokens\': integer above maximum value. Expected a value <= 50, but got 100 instead.",
        "This model\'s maximum context length is 90 tokens. However, you requested 120 (20 in the messages, 100 in the completion)",
    ];
    for kind in ALL {
        for message in messages {
            let answer = error("400 Bad Request", "", "invalid_request_error", message);
            let (error, requests) = failure(kind, answer).await;
            assert_eq!((error.code(), requests), ("model.output_limit", 1), "{message}");
            let text = error.to_string();
            assert!(
                text.contains("100 output tokens") && text.contains("`max_output_tokens` of [models.fake]"),
                "{text}"
            );
            assert_eq!(StepFailure::from(error).class, FailureClass::Fatal);
        }
    }
    let other = "Unsupported parameter: \'max_tokens\' is not supported with this model";
    let (error, _) = failure(WireFormat::Openai, error("400 Bad Request", "", "invalid_request_error", other)).await;
    assert_eq!(error.code(), "model.bad_request");
}

#[tokio::test]
async fn the_limit_of_an_endpoint_lowers_that_of_a_reply() {
    for (kind, field) in ALL.into_iter().zip(["max_tokens", "max_output_tokens", "max_tokens"]) {
        let server = Server::start(vec![good(kind, TEXT)]).await;
        let mut config = server.endpoint(kind);
        config.max_output_tokens = Some(60);
        let model = open(config);
        assert_eq!((model.output_limit(100), model.output_limit(50)), (60, 50));
        model.call(&request(), &Unmetered).await.unwrap();
        assert_eq!(server.received()[0].body[field], json!(60));
    }
}

#[tokio::test]
async fn the_stable_beginning_of_a_prompt_reaches_the_provider_unchanged() {
    for kind in ALL {
        let server = Server::start(vec![good(kind, TEXT)]).await;
        let asked = ModelRequest { user: "stable varying".to_owned(), stable_user_bytes: 6, ..request() };
        server.model(kind).call(&asked, &Unmetered).await.unwrap();
        let body = server.received().remove(0).body;
        let first = if kind == WireFormat::Anthropic { &body["messages"][0] } else { user_message(&body) };
        let text = match &first["content"] {
            Value::Array(blocks) => blocks.iter().filter_map(|block| block["text"].as_str()).collect(),
            content => content.as_str().unwrap().to_owned(),
        };
        assert_eq!(text, "stable varying", "{kind:?}");
        assert_eq!(body.to_string().contains("cache_control"), kind == WireFormat::Anthropic);
    }
}

/// The first message of the user.
fn user_message(body: &Value) -> &Value {
    let messages = body.get("messages").or_else(|| body.get("input")).and_then(Value::as_array).unwrap();
    messages.iter().find(|message| message["role"] == "user").unwrap()
}
