//! HTTP: one request with its limits, and the way from a status and a body to a typed error.

use std::sync::Arc;
use std::time::Duration;

use nightshift_protocol::model_call::StopCause;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use tokio::time::Instant;

use super::endpoint::Endpoint;
use super::endpoint::WireFormat;
use super::error::CONNECTING;
use super::error_report::{kind_of, message_of, status_within};
use super::retry_after::retry_after_ms;
use super::stream::{Draft, Reader, Trouble, Waits, read_body, read_events};
use super::{ModelError, anthropic};

/// Most characters of a foreign text in an error.
const MAX_EXCERPT_CHARS: usize = 300;

/// Most bytes of an error's body that are read.
const MAX_ERROR_BODY_BYTES: usize = 64 * 1024;

/// Most bytes of a reply that comes whole, or of a list of models.
const MAX_WHOLE_BODY_BYTES: usize = 16 * 1024 * 1024;

/// Shown instead of a key.
const HIDDEN_KEY: &str = "[key]";

/// The fields of a request that hold the limit of its reply.
const LIMIT_FIELDS: [&str; 3] = ["max_tokens", "max_completion_tokens", "max_output_tokens"];

/// What an error has to name of a request.
#[derive(Debug, Clone, Copy, Default)]
struct Asked<'a> {
    model: &'a str,
    /// The limit of the reply in tokens.
    output_limit: Option<u64>,
}

/// The way to one endpoint, with its key.
pub(super) struct Transport {
    endpoint: Arc<Endpoint>,
    client: reqwest::Client,
    headers: HeaderMap,
    key: Option<SecretString>,
}

impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transport").field("endpoint", &self.endpoint.name).finish_non_exhaustive()
    }
}

impl Transport {
    pub(super) fn new(
        endpoint: Arc<Endpoint>,
        client: reqwest::Client,
        key: Option<SecretString>,
    ) -> Result<Self, ModelError> {
        let mut headers = HeaderMap::new();
        let (name, prefix) = match endpoint.config.kind {
            WireFormat::Openai | WireFormat::OpenaiResponses => (AUTHORIZATION, "Bearer "),
            WireFormat::Anthropic => {
                headers
                    .insert(HeaderName::from_static("anthropic-version"), HeaderValue::from_static(anthropic::VERSION));
                (HeaderName::from_static("x-api-key"), "")
            }
        };
        if let Some(key) = &key {
            let mut value =
                HeaderValue::from_str(&format!("{prefix}{}", key.expose_secret().trim())).map_err(|_| {
                    ModelError::Misconfigured {
                        endpoint: endpoint.name.clone(),
                        message: format!(
                            "the key in {} has characters that cannot be sent",
                            endpoint.config.key_env.as_deref().unwrap_or("the environment")
                        ),
                    }
                })?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(Self { endpoint, client, headers, key })
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Sends a request and reads the reply to its end.
    pub(super) async fn ask(
        &self,
        resource: &str,
        model: &str,
        body: &Value,
        reader: &mut dyn Reader,
    ) -> Result<Draft, ModelError> {
        let request = self.client.post(self.endpoint.config.address(resource)).json(body);
        let asked = Asked { model, output_limit: limit_in(body) };
        self.within_limits(request, asked, async |response, waits| {
            let kind = content_type(&response);
            if kind.starts_with("text/html") {
                return Err(Trouble::Malformed {
                    message: "it is a web page; is `base_url` right?".to_owned(),
                    excerpt: kind,
                });
            }
            if !kind.starts_with("application/json") {
                return read_events(Box::pin(response.bytes_stream()), waits, reader).await;
            }
            let body = read_body(Box::pin(response.bytes_stream()), waits, MAX_WHOLE_BODY_BYTES).await?;
            let mut draft = Draft::default();
            reader.whole(&mut draft, &String::from_utf8_lossy(&body))?;
            Ok(draft)
        })
        .await
    }

    /// Reads a resource.
    pub(super) async fn get(&self, resource: &str) -> Result<Vec<u8>, ModelError> {
        let request = self.client.get(self.endpoint.config.address(resource));
        self.within_limits(request, Asked::default(), async |response, waits| {
            read_body(Box::pin(response.bytes_stream()), waits, MAX_WHOLE_BODY_BYTES).await
        })
        .await
    }

    async fn within_limits<T>(
        &self,
        request: reqwest::RequestBuilder,
        asked: Asked<'_>,
        read: impl AsyncFnOnce(reqwest::Response, Waits) -> Result<T, Trouble>,
    ) -> Result<T, ModelError> {
        let limits = self.endpoint.config.timeouts;
        let whole = Duration::from_millis(limits.whole_ms);
        let first = Duration::from_millis(limits.first_byte_ms);
        let began = Instant::now();
        let waits = Waits { first_by: began + first, first, idle: Duration::from_millis(limits.idle_ms) };
        let exchange = async {
            let sent = request.headers(self.headers.clone()).send();
            let response = match tokio::time::timeout_at(waits.first_by, sent).await {
                Ok(Ok(response)) => response,
                Ok(Err(error)) => return Err(self.no_response(error)),
                Err(_) => return Err(self.timeout("time for the first byte", first)),
            };
            if !response.status().is_success() {
                return Err(self.refusal(response, waits, asked).await);
            }
            read(response, waits).await.map_err(|trouble| self.trouble(trouble, asked))
        };
        match tokio::time::timeout_at(began + whole, exchange).await {
            Ok(result) => result,
            Err(_) => Err(self.timeout("time for the whole reply", whole)),
        }
    }

    fn timeout(&self, phase: &'static str, limit: Duration) -> ModelError {
        ModelError::Timeout {
            endpoint: self.endpoint.name.clone(),
            phase,
            limit_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
        }
    }

    fn no_response(&self, error: reqwest::Error) -> ModelError {
        // The address may carry a password; the shown one does not.
        let error = error.without_url();
        if error.is_timeout() {
            return self.timeout(CONNECTING, self.endpoint.config.timeouts.connect());
        }
        if error.is_builder() {
            return ModelError::Misconfigured { endpoint: self.endpoint.name.clone(), message: error.to_string() };
        }
        ModelError::Unreachable {
            endpoint: self.endpoint.name.clone(),
            base_url: self.endpoint.config.shown_base_url(),
            was_sent: !error.is_connect(),
            source: Box::new(error),
        }
    }

    /// The error in a reply that is no success.
    async fn refusal(&self, response: reqwest::Response, waits: Waits, asked: Asked<'_>) -> ModelError {
        let status = response.status().as_u16();
        let wait_ms = retry_after_ms(response.headers());
        if response.status().is_redirection() {
            return ModelError::Misconfigured {
                endpoint: self.endpoint.name.clone(),
                message: format!(
                    "its address answers with a redirection (HTTP {status}); set `base_url` to the target"
                ),
            };
        }
        // Whatever arrives of the body helps to explain; what does not arrive is no second error.
        let body = read_body(Box::pin(response.bytes_stream()), waits, MAX_ERROR_BODY_BYTES).await.unwrap_or_default();
        let text = String::from_utf8_lossy(&body).into_owned();
        let report = serde_json::from_str(&text).unwrap_or(Value::String(text));
        self.classify(status, wait_ms, &report, asked)
    }

    fn trouble(&self, trouble: Trouble, asked: Asked<'_>) -> ModelError {
        let endpoint = self.endpoint.name.clone();
        match trouble {
            Trouble::Malformed { message, excerpt } => {
                ModelError::Malformed { endpoint, message: self.excerpt(&message), excerpt: self.excerpt(&excerpt) }
            }
            Trouble::Provider(report) => {
                let status = status_within(&report).unwrap_or(200);
                self.classify(status, None, &report, asked)
            }
            Trouble::Truncated { bytes, message } => {
                ModelError::Truncated { endpoint, bytes, message: self.excerpt(&message) }
            }
            Trouble::Timeout { phase, limit } => self.timeout(phase, limit),
            Trouble::TooLarge { what, limit_bytes } => ModelError::TooLarge { endpoint, what, limit_bytes },
        }
    }

    fn classify(&self, status: u16, retry_after_ms: Option<u64>, report: &Value, asked: Asked<'_>) -> ModelError {
        let endpoint = self.endpoint.name.clone();
        let kind = kind_of(report);
        let message = message_of(report);
        let excerpt = self.excerpt(&message);
        let mentions = |words: &[&str]| words.iter().any(|word| kind.contains(word));
        if mentions(&["content_filter", "content_policy", "safety"]) {
            return ModelError::Refused { endpoint, excerpt };
        }
        if status == 402 || mentions(&["insufficient_quota", "billing"]) {
            return ModelError::Quota { endpoint, excerpt };
        }
        if let Some(limit) = asked.output_limit.filter(|_| refuses_limit(&kind, &message)) {
            return ModelError::OutputLimit { endpoint, status, limit, excerpt };
        }
        match status {
            401 | 403 => self.auth(status, excerpt),
            404 => self.not_found(asked.model, &excerpt),
            429 | 503 | 529 => ModelError::RateLimited { endpoint, status, retry_after_ms, excerpt },
            // An error inside a stream has no status of its own.
            200..=299 if mentions(&["overloaded", "rate_limit"]) => {
                ModelError::RateLimited { endpoint, status, retry_after_ms, excerpt }
            }
            200..=299 if mentions(&["authentication", "permission"]) => self.auth(status, excerpt),
            200..=299 if mentions(&["invalid_request", "invalid_prompt"]) => {
                ModelError::BadRequest { endpoint, status, excerpt }
            }
            200..=299 | 408 | 500..=599 => ModelError::ServerError { endpoint, status, retry_after_ms, excerpt },
            _ => ModelError::BadRequest { endpoint, status, excerpt },
        }
    }

    fn not_found(&self, model: &str, excerpt: &str) -> ModelError {
        let endpoint = self.endpoint.name.clone();
        let hint = match self.endpoint.config.kind {
            WireFormat::OpenaiResponses => format!(
                " (A server that speaks chat completions only needs `kind = \"openai\"` in [models.{endpoint}].)"
            ),
            WireFormat::Openai | WireFormat::Anthropic => String::new(),
        };
        ModelError::NotFound {
            base_url: self.endpoint.config.shown_base_url(),
            model: model.to_owned(),
            excerpt: format!("{excerpt}{hint}"),
            endpoint,
        }
    }

    fn auth(&self, status: u16, excerpt: String) -> ModelError {
        let advice = match (&self.endpoint.config.key_env, &self.key) {
            (Some(variable), Some(_)) => format!("check the key in the environment variable {variable}"),
            (Some(variable), None) => format!("set the environment variable {variable} to a valid key"),
            (None, _) => "name the variable of its key as `key_env` in its configuration".to_owned(),
        };
        ModelError::Auth { endpoint: self.endpoint.name.clone(), status, advice, excerpt }
    }

    /// A foreign text, bounded, on one line, without the key.
    fn excerpt(&self, text: &str) -> String {
        let mut text = text.to_owned();
        if let Some(key) = &self.key {
            let key = key.expose_secret().trim();
            if !key.is_empty() {
                text = text.replace(key, HIDDEN_KEY);
            }
        }
        let mut excerpt: String =
            text.chars().take(MAX_EXCERPT_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect();
        if text.chars().nth(MAX_EXCERPT_CHARS).is_some() {
            excerpt.push('…');
        }
        if excerpt.trim().is_empty() { "(nothing)".to_owned() } else { excerpt }
    }
}

/// A reply whose reason to stop is missing although its end marker came.
pub(super) fn stop_of(draft: &Draft) -> StopCause {
    draft.stop.unwrap_or(StopCause::End)
}

fn content_type(response: &reqwest::Response) -> String {
    response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase()
}

/// The limit of the reply in a request's body.
fn limit_in(body: &Value) -> Option<u64> {
    LIMIT_FIELDS.iter().find_map(|field| body.get(field)?.as_u64())
}

/// Whether an error says that the limit of the reply is larger than the model or its context allows. There is no code for
/// it that providers share.
fn refuses_limit(kind: &str, message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| message.contains(word));
    let names_limit = has(&LIMIT_FIELDS) && !kind.contains("unsupported") && !has(&["not supported", "unsupported"]);
    let is_too_large = has(&["maximum", "too large", "exceed", "less than or equal", "at most", "must be <="]);
    // Prompt and reply share a context, of which the reply takes the larger part.
    let shares_context = has(&["maximum context length"]) && has(&["in the completion", "output tokens"]);
    (names_limit && is_too_large) || shares_context
}
