//! Calls of a model, over every wire format.

use nightshift_optimizer::model::{
    EndpointConfig, IN_CALL_TRIES, ModelError, ModelReply, ModelRequest, StopCause, Unmetered, WireFormat,
};
use nightshift_protocol::step::{FailureClass, StepFailure};
use serde_json::json;
use tokio::net::TcpSocket;

use crate::server::{
    Answer, KEY, MODEL, Server, catalog, done, error, events_of_end, events_of_text, good, key, open, status, stream,
    stream_head,
};

pub(crate) const ALL: [WireFormat; 3] = [WireFormat::Openai, WireFormat::OpenaiResponses, WireFormat::Anthropic];

const TEXT: &str = "Grüße 🌙\n```cpp\nint x;\n```\n";

pub(crate) fn request() -> ModelRequest {
    ModelRequest {
        functions: Vec::new(),
        system: "Be brief.".to_owned(),
        user: "Write.".to_owned(),
        stable_user_bytes: 0,
        earlier: vec![("First.".to_owned(), "Again.".to_owned())],
        max_output_tokens: 100,
        temperature: None,
        json_schema: None,
        call_name: "plan".to_owned(),
    }
}

pub(crate) async fn call(server: &Server, kind: WireFormat) -> Result<ModelReply, ModelError> {
    server.model(kind).call(&request(), &Unmetered).await
}

/// The error of a call whose every answer is this one, and the number of requests that it took.
pub(crate) async fn failure(kind: WireFormat, answer: Answer) -> (ModelError, usize) {
    let server = Server::start(vec![answer]).await;
    let error = call(&server, kind).await.unwrap_err();
    assert!(!error.describe().contains(KEY) && !format!("{error:?}").contains(KEY), "{error:?}");
    (error, server.requests())
}

#[tokio::test]
async fn a_reply_arrives_whole_even_byte_by_byte() {
    for kind in ALL {
        let stop = done(kind);
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\
                    transfer-encoding: chunked\r\n\r\n";
        let body = events_of_text(kind, TEXT) + &events_of_end(kind, stop);
        let server = Server::start(vec![Answer::BytesApart { head: head.to_owned(), body }]).await;
        let reply = call(&server, kind).await.unwrap();
        assert_eq!(reply.text, TEXT);
        assert_eq!((reply.tokens.input, reply.tokens.output, reply.stop), (Some(11), Some(22), StopCause::End));
        assert_eq!(server.requests(), 1);
    }
}

#[tokio::test]
async fn a_request_carries_model_key_and_every_turn() {
    for kind in ALL {
        let server = Server::start(vec![good(kind, "ok")]).await;
        call(&server, kind).await.unwrap();
        let received = server.received().remove(0);
        let (path, header) = match kind {
            WireFormat::Openai => ("post /v1/chat/completions ", format!("authorization: bearer {KEY}")),
            WireFormat::OpenaiResponses => ("post /v1/responses ", format!("authorization: bearer {KEY}")),
            WireFormat::Anthropic => ("post /v1/messages ", format!("x-api-key: {KEY}")),
        };
        assert!(received.head.starts_with(path) && received.head.contains(&header), "{}", received.head);
        assert_eq!(received.head.contains("anthropic-version: 2023-06-01"), kind == WireFormat::Anthropic);
        assert_eq!(received.body["model"], json!(MODEL));
        assert_eq!(received.body["stream"], json!(true));
        let field = if kind == WireFormat::OpenaiResponses { "input" } else { "messages" };
        let messages = received.body[field].as_array().unwrap();
        assert_eq!(messages.last(), Some(&json!({"role": "user", "content": "Again."})));
    }
}

#[tokio::test]
async fn the_time_that_a_failing_server_names_is_known() {
    for line in ["500 Internal Server Error", "502 Bad Gateway", "503 Service Unavailable", "504 Gateway Timeout"] {
        let (error, requests) = failure(WireFormat::Openai, status(line, "retry-after: 3600\r\n", "{}")).await;
        assert_eq!((error.retry_after_ms(), requests), (Some(3_600_000), 1), "{line}: {error:?}");
    }
}

#[tokio::test]
async fn a_server_that_does_not_stream_is_understood() {
    let chat = json!({
        "choices": [{"index": 0, "message": {"role": "assistant", "content": TEXT}, "finish_reason": "length"}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 22},
    });
    let message = json!({
        "type": "message", "content": [{"type": "text", "text": TEXT}], "stop_reason": "max_tokens",
        "usage": {"input_tokens": 11, "output_tokens": 22},
    });
    let response = json!({
        "object": "response", "status": "incomplete", "error": null, "incomplete_details": {"reason": "max_output_tokens"},
        "output": [{"type": "message", "content": [{"type": "output_text", "text": TEXT}]}],
        "usage": {"input_tokens": 11, "output_tokens": 22},
    });
    let bodies =
        [(WireFormat::Openai, chat), (WireFormat::OpenaiResponses, response), (WireFormat::Anthropic, message)];
    for (kind, body) in bodies {
        let answer = status("200 OK", "content-type: application/json\r\n", &body.to_string());
        let server = Server::start(vec![answer]).await;
        let reply = call(&server, kind).await.unwrap();
        assert_eq!((reply.text.as_str(), reply.stop), (TEXT, StopCause::Length));
        assert_eq!((reply.tokens.input, reply.tokens.output), (Some(11), Some(22)));
    }
}

#[tokio::test]
async fn a_reply_without_usage_has_unknown_tokens() {
    let body = events_of_text(WireFormat::Openai, "ok") + "data: [DONE]\n\n";
    let server = Server::start(vec![stream(&body)]).await;
    let reply = call(&server, WireFormat::Openai).await.unwrap();
    assert_eq!((reply.tokens.input, reply.tokens.output, reply.stop), (None, None, StopCause::End));
}

#[tokio::test]
async fn a_malformed_piece_is_reported_and_the_step_counts_that_it_may_be_charged_for() {
    for kind in ALL {
        let broken = events_of_text(kind, "half") + "data: {\"choices\": [{\n\n";
        let (error, requests) = failure(kind, stream(&broken)).await;
        assert_eq!((error.code(), requests), ("model.malformed", 1));
        assert_eq!(StepFailure::from(&error).charged_tries, 1);
        assert!(error.to_string().contains("{\"choices\": [{"), "{error}");
    }
}

#[tokio::test]
async fn an_excerpt_of_a_foreign_text_is_short() {
    let (error, _) = failure(WireFormat::Openai, stream(&format!("data: {}\n\n", "y".repeat(100_000)))).await;
    assert!(error.describe().len() < 1_000, "{}", error.describe().len());
}

#[tokio::test]
async fn a_stream_without_its_end_is_truncated_and_may_be_asked_for_again() {
    for kind in ALL {
        let (error, requests) = failure(kind, stream(&events_of_text(kind, TEXT))).await;
        assert_eq!((error.code(), requests), ("model.truncated", 1));
        let failure = StepFailure::from(&error);
        assert_eq!((failure.class, failure.charged_tries), (FailureClass::Retriable, 1));
        assert!(error.to_string().contains(&format!("after {} bytes", TEXT.len())), "{error}");
    }
}

#[tokio::test]
async fn a_connection_that_breaks_within_a_chunk_is_truncated() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n400\r\ndata: {";
    let (error, _) = failure(WireFormat::Openai, Answer::Send(head.as_bytes().to_vec())).await;
    assert_eq!(error.code(), "model.truncated");
}

type Change = fn(&mut EndpointConfig);

fn impatient(server: &Server, kind: WireFormat, change: impl Fn(&mut EndpointConfig)) -> EndpointConfig {
    let mut config = server.endpoint(kind);
    change(&mut config);
    config
}

#[tokio::test]
async fn each_wait_has_its_own_limit() {
    for kind in ALL {
        let head_only = Answer::Stall(stream_head().into_bytes());
        let begun = Answer::Stall([stream_head(), events_of_text(kind, "begun")].concat().into_bytes());
        let cases: [(Answer, Change, &str); 4] = [
            (Answer::Stall(Vec::new()), |config| config.timeouts.first_byte_ms = 40, "first byte"),
            (head_only, |config| config.timeouts.first_byte_ms = 40, "first byte"),
            (begun.clone(), |config| config.timeouts.idle_ms = 40, "between two pieces"),
            (begun, |config| config.timeouts.whole_ms = 80, "whole reply"),
        ];
        for (answer, change, phase) in cases {
            let server = Server::start(vec![answer]).await;
            let error = open(impatient(&server, kind, change)).call(&request(), &Unmetered).await.unwrap_err();
            assert_eq!(error.code(), "model.timeout", "{error}");
            assert!(error.to_string().contains(phase), "{error}");
            assert_eq!(server.requests(), 1, "a timeout is not tried again within the call");
        }
    }
}

#[tokio::test]
async fn a_refused_key_names_the_variable_and_hides_the_key() {
    for kind in ALL {
        for line in ["401 Unauthorized", "403 Forbidden"] {
            let message = format!("the key {KEY} is wrong");
            let (error, requests) =
                failure(kind, crate::server::error(line, "", "authentication_error", &message)).await;
            assert_eq!((error.code(), requests), ("model.auth", 1));
            assert!(error.to_string().contains("FAKE_API_KEY") && error.to_string().contains("[key]"), "{error}");
            assert_eq!(StepFailure::from(&error).class, FailureClass::Fatal);
        }
    }
}

#[tokio::test]
async fn an_unknown_model_is_named() {
    let (error, requests) = failure(WireFormat::Openai, error("404 Not Found", "", "not_found_error", "no")).await;
    assert_eq!((error.code(), requests), ("model.not_found", 1));
    assert!(error.to_string().contains(MODEL), "{error}");
}

#[tokio::test]
async fn a_busy_server_is_asked_again() {
    for kind in ALL {
        for line in ["429 Too Many Requests", "503 Service Unavailable", "529 Overloaded"] {
            let busy = error(line, "retry-after: 0\r\n", "overloaded_error", "later");
            let server = Server::start(vec![busy, good(kind, TEXT)]).await;
            assert_eq!(call(&server, kind).await.unwrap().text, TEXT);
            assert_eq!(server.requests(), 2);
        }
    }
}

#[tokio::test]
async fn a_long_wait_is_handed_back_as_the_server_wished() {
    let seconds = "retry-after: 3600\r\n";
    let date = "date: Wed, 21 Oct 2015 07:28:00 GMT\r\nretry-after: Wed, 21 Oct 2015 08:28:00 GMT\r\n";
    for headers in [seconds, date] {
        let answer = error("429 Too Many Requests", headers, "rate_limit_error", "later");
        let (error, requests) = failure(WireFormat::Anthropic, answer).await;
        assert_eq!((error.code(), requests), ("model.rate_limited", 1));
        let failure = StepFailure::from(error);
        assert_eq!((failure.class, failure.retry_after_ms), (FailureClass::Retriable, Some(3_600_000)));
    }
}

#[tokio::test]
async fn an_account_without_credit_is_not_asked_again() {
    let answer = error("429 Too Many Requests", "", "insufficient_quota", "pay first");
    let (error, requests) = failure(WireFormat::Openai, answer).await;
    assert_eq!((error.code(), requests), ("model.quota", 1));
}

#[tokio::test]
async fn a_failing_server_is_asked_again_a_few_times() {
    for kind in ALL {
        let broken = status("500 Internal Server Error", "content-type: text/plain\r\n", "oops");
        let server = Server::start(vec![broken.clone(), broken.clone(), good(kind, TEXT)]).await;
        assert_eq!(call(&server, kind).await.unwrap().text, TEXT);
        assert_eq!(server.requests(), 3);

        let (error, requests) = failure(kind, broken).await;
        assert_eq!((error.code(), requests), ("model.server_error", IN_CALL_TRIES));
        assert!(error.to_string().contains("oops"), "{error}");
    }
}

#[tokio::test]
async fn an_error_within_a_stream_is_no_reply() {
    let overloaded =
        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"x\"}}\n\n";
    let body = events_of_text(WireFormat::Anthropic, "half") + overloaded;
    let server = Server::start(vec![stream(&body), good(WireFormat::Anthropic, TEXT)]).await;
    assert_eq!(call(&server, WireFormat::Anthropic).await.unwrap().text, TEXT);

    let body = "data: {\"error\":{\"message\":\"too long\",\"type\":\"BadRequestError\",\"code\":400}}\n\n";
    let (error, requests) = failure(WireFormat::Openai, stream(body)).await;
    assert_eq!((error.code(), requests), ("model.bad_request", 1));
}

#[tokio::test]
async fn an_error_body_with_a_good_status_is_no_reply() {
    let body = json!({"object": "error", "message": "no such thing", "code": 404}).to_string();
    let answer = status("200 OK", "content-type: application/json\r\n", &body);
    let (error, _) = failure(WireFormat::Openai, answer).await;
    assert_eq!(error.code(), "model.not_found");
}

#[tokio::test]
async fn a_request_that_is_not_accepted_says_why() {
    let answer = error("400 Bad Request", "", "invalid_request_error", "`temperature` is not supported");
    let (error, requests) = failure(WireFormat::Openai, answer).await;
    assert_eq!((error.code(), requests), ("model.bad_request", 1));
    assert!(error.to_string().contains("`temperature` is not supported"), "{error}");
}

#[tokio::test]
async fn a_refusal_is_told_apart_from_an_answer() {
    let refusals = [
        (WireFormat::Openai, "content_filter"),
        (WireFormat::OpenaiResponses, "content_filter"),
        (WireFormat::Anthropic, "refusal"),
    ];
    for (kind, stop) in refusals {
        let server = Server::start(vec![stream(&(events_of_text(kind, "No.") + &events_of_end(kind, stop)))]).await;
        let reply = call(&server, kind).await.unwrap();
        assert_eq!((reply.text.as_str(), reply.stop), ("No.", StopCause::Refusal));
    }
    let (error, requests) = failure(WireFormat::Openai, error("400 Bad Request", "", "content_filter", "no")).await;
    assert_eq!((error.code(), requests), ("model.refused", 1));
}

#[tokio::test]
async fn a_reply_of_ten_megabytes_is_too_large() {
    for kind in ALL {
        let piece = "x".repeat(100_000);
        let pieces: String = (0..100)
            .map(|_| match kind {
                WireFormat::Openai => crate::server::event("", &json!({"choices": [{"delta": {"content": piece}}]})),
                WireFormat::OpenaiResponses => crate::server::event(
                    "response.output_text.delta",
                    &json!({"type": "response.output_text.delta", "delta": piece}),
                ),
                WireFormat::Anthropic => crate::server::event(
                    "content_block_delta",
                    &json!({"type": "content_block_delta", "delta": {"type": "text_delta", "text": piece}}),
                ),
            })
            .collect();
        let (error, requests) = failure(kind, stream(&pieces)).await;
        assert_eq!((error.code(), requests), ("model.too_large", 1));
    }
    let (error, _) = failure(WireFormat::Openai, stream(&format!("data: {}", "x".repeat(10 << 20)))).await;
    assert_eq!(error.code(), "model.too_large");
}

#[tokio::test]
async fn a_web_page_is_no_reply() {
    let answer = status("200 OK", "content-type: text/html\r\n", "<html>Welcome</html>");
    let (error, _) = failure(WireFormat::Openai, answer).await;
    assert_eq!(error.code(), "model.malformed");
    assert!(error.to_string().contains("base_url"), "{error}");
}

#[tokio::test]
async fn a_redirection_is_not_followed() {
    let server = Server::start(vec![good(WireFormat::Openai, TEXT)]).await;
    let target = format!("location: {}/chat/completions\r\n", server.base_url);
    let (error, _) = failure(WireFormat::Openai, status("307 Temporary Redirect", &target, "")).await;
    assert_eq!(error.code(), "config.model");
    assert_eq!(server.requests(), 0);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named_by_its_address() {
    // Nothing listens at the address, and no other test gets it while the socket is there.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let base_url = format!("http://user:{KEY}@{}/v1", socket.local_addr().unwrap());
    let mut config = EndpointConfig::new(WireFormat::Openai, &base_url);
    config.retry_delay_ms = 1;
    let error = open(config).call(&request(), &Unmetered).await.unwrap_err();
    assert_eq!(error.code(), "model.unreachable");
    assert_eq!(StepFailure::from(&error).class, FailureClass::Retriable);
    let text = format!("{} {error:?}", error.describe());
    assert!(text.contains("http://127.0.0.1:") && !text.contains(KEY), "{text}");
}

#[tokio::test]
async fn requests_keep_their_distance() {
    let server = Server::start(vec![good(WireFormat::Openai, TEXT)]).await;
    let config = impatient(&server, WireFormat::Openai, |config| config.requests_per_minute = "1200".parse().ok());
    let model = open(config);
    let began = std::time::Instant::now();
    for _ in 0..3 {
        model.call(&request(), &Unmetered).await.unwrap();
    }
    assert!(began.elapsed().as_millis() >= 95, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_probe_says_what_an_endpoint_offers() {
    let list = json!({"object": "list", "data": [{"id": "a"}, {"id": "b"}]}).to_string();
    let server = Server::start(vec![
        status("200 OK", "content-type: application/json\r\n", &list),
        error("404 Not Found", "", "not_found", "no such page"),
        error("401 Unauthorized", "", "authentication_error", "no"),
        status("200 OK", "content-type: text/html\r\n", "<html></html>"),
    ])
    .await;
    let catalog = catalog(server.endpoint(WireFormat::Openai));
    let report = catalog.probe("fake", &key).await.unwrap();
    assert_eq!(report.models, Some(vec!["a".to_owned(), "b".to_owned()]));
    assert!(server.received()[0].head.starts_with("get /v1/models "));
    assert_eq!(catalog.probe("fake", &key).await.unwrap().models, None);
    assert_eq!(catalog.probe("fake", &key).await.unwrap_err().code(), "model.auth");
    assert_eq!(catalog.probe("fake", &key).await.unwrap_err().code(), "model.malformed");
    assert_eq!(catalog.probe("fake", &|_| None).await.unwrap_err().code(), "model.auth");
}
