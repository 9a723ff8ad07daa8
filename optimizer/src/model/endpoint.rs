//! Endpoints and their configuration.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::OnceLock;
use std::time::Duration;

use governor::clock::DefaultClock;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use super::error::ModelError;
use super::{FunctionDefinition, ModelRequest};

/// Finds the value of an environment variable that holds a key. The environment itself is read elsewhere.
pub type KeyLookup<'a> = &'a dyn Fn(&str) -> Option<SecretString>;

pub(super) type Limiter = RateLimiter<NotKeyed, InMemoryState, DefaultClock>;

/// How an endpoint is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WireFormat {
    /// Chat completions, as hosted services, vLLM, `SGLang`, llama.cpp and Ollama offer them.
    Openai,
    /// `OpenAI`'s responses.
    OpenaiResponses,
    /// Anthropic's messages.
    Anthropic,
}

/// The name that the limit of output tokens has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MaxTokensField {
    /// Known everywhere but to the newest hosted models.
    MaxTokens,
    /// What the newest hosted models want.
    MaxCompletionTokens,
}

/// How an endpoint can be made to answer in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StructuredReplies {
    /// It takes a JSON schema.
    JsonSchema,
    /// It can be told to answer with a JSON object.
    JsonObject,
    /// Only the prompt asks for it.
    None,
}

/// Limits on waiting, each in milliseconds. The defaults fit reasoning models, which may be silent for minutes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Timeouts {
    /// For the connection.
    pub connect_ms: u64,
    /// From the request to the first byte of the reply's body. Long, because a model may reason before it writes.
    pub first_byte_ms: u64,
    /// Between two pieces of the reply. Every byte counts: text, reasoning, pings and comments that keep the connection.
    pub idle_ms: u64,
    /// For the whole try.
    pub whole_ms: u64,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect_ms: 10_000, first_byte_ms: 900_000, idle_ms: 600_000, whole_ms: 1_800_000 }
    }
}

impl Timeouts {
    pub(super) fn connect(&self) -> Duration {
        Duration::from_millis(self.connect_ms)
    }
}

/// Limit of a reply in tokens for servers that speak chat completions, unless configured: most of them are local, prompt and reply
/// share the context that they were started with, and they refuse what does not fit.
const CHAT_MAX_OUTPUT_TOKENS: u32 = 32_768;

/// One endpoint: `[models.NAME]` in the configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndpointConfig {
    /// How it is spoken to.
    pub kind: WireFormat,
    /// Its address, up to and with the version, for example `https://api.openai.com/v1`.
    pub base_url: String,
    /// Environment variable that replaces `base_url` when it is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_url_env: Option<String>,
    /// Environment variable that holds the key; none for an endpoint without keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_env: Option<String>,
    /// Whether to go on without a key when the variable is not set.
    #[serde(default)]
    pub key_optional: bool,
    /// Requests per minute, evenly spaced; none for no limit of our own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_minute: Option<NonZeroU32>,
    /// How it can be made to answer in JSON.
    #[serde(default = "default_structured_replies")]
    pub structured_replies: StructuredReplies,
    /// Whether an agent session offers its tools as functions; by default where the wire format always has them, which chat
    /// completions do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<bool>,
    /// The name that the limit of output tokens has.
    #[serde(default = "default_max_tokens_field")]
    pub max_tokens_field: MaxTokensField,
    /// Largest limit of output tokens that it accepts; a greater wish is lowered to it. Without it, 32,768 for chat completions, and
    /// no limit for the other formats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u32>,
    /// The effort of the model's reasoning, in the provider's words, for example `low` or `high`; none leaves it to the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_effort: Option<String>,
    /// Whether requests ask the provider for a summary of the reasoning. Chat completions have no such field: servers that give
    /// the reasoning do so unasked.
    #[serde(default)]
    pub reasoning_summaries: bool,
    /// Whether requests mark the beginning of a prompt that the provider should cache, where the wire format allows it.
    #[serde(default = "default_prompt_cache")]
    pub prompt_cache: bool,
    /// Further fields of the request's body, for example `reasoning_effort` or `chat_template_kwargs`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra_body: BTreeMap<String, serde_json::Value>,
    /// Limits on waiting.
    #[serde(default)]
    pub timeouts: Timeouts,
    /// Wait before a call is tried again, in milliseconds; doubles with each further try.
    #[serde(default = "default_retry_delay_ms")]
    pub retry_delay_ms: u64,
}

fn default_structured_replies() -> StructuredReplies {
    StructuredReplies::JsonSchema
}

fn default_max_tokens_field() -> MaxTokensField {
    MaxTokensField::MaxTokens
}

fn default_prompt_cache() -> bool {
    true
}

fn default_retry_delay_ms() -> u64 {
    500
}

impl EndpointConfig {
    /// Returns the limit of a reply in tokens where `wanted` are asked for.
    pub(super) fn output_limit(&self, wanted: u32) -> u32 {
        let of_format = (self.kind == WireFormat::Openai).then_some(CHAT_MAX_OUTPUT_TOKENS);
        self.max_output_tokens.or(of_format).map_or(wanted, |most| most.min(wanted))
    }

    /// Returns the functions of a request that the endpoint is offered.
    pub(super) fn functions<'r>(&self, request: &'r ModelRequest) -> &'r [FunctionDefinition] {
        let offers = self.tool_calls.unwrap_or(self.kind != WireFormat::Openai);
        if offers { &request.functions } else { &[] }
    }

    /// An endpoint with the defaults of its wire format.
    #[must_use]
    pub fn new(kind: WireFormat, base_url: impl Into<String>) -> Self {
        Self {
            kind,
            base_url: base_url.into(),
            base_url_env: None,
            key_env: None,
            key_optional: false,
            requests_per_minute: None,
            structured_replies: default_structured_replies(),
            tool_calls: None,
            max_tokens_field: default_max_tokens_field(),
            max_output_tokens: None,
            reasoning_effort: None,
            reasoning_summaries: false,
            prompt_cache: default_prompt_cache(),
            extra_body: BTreeMap::new(),
            timeouts: Timeouts::default(),
            retry_delay_ms: default_retry_delay_ms(),
        }
    }

    /// The address of a resource below the base address.
    pub(super) fn address(&self, resource: &str) -> String {
        let base = self.base_url.trim_end_matches('/');
        // Anthropic's own tools leave the version out of this variable; both habits are served.
        if self.kind == WireFormat::Anthropic && !base.ends_with("/v1") {
            format!("{base}/v1/{resource}")
        } else {
            format!("{base}/{resource}")
        }
    }

    /// The base address as it may be shown: without a user and a password.
    #[must_use]
    pub fn shown_base_url(&self) -> String {
        match reqwest::Url::parse(&self.base_url) {
            Ok(mut url) => {
                // Fails only for addresses that cannot carry either.
                let _ = url.set_username("");
                let _ = url.set_password(None);
                url.set_query(None);
                url.to_string().trim_end_matches('/').to_owned()
            }
            Err(_) => "(an address that cannot be read)".to_owned(),
        }
    }

    /// Whether it runs on this machine.
    pub(super) fn is_loopback(&self) -> bool {
        reqwest::Url::parse(&self.base_url).ok().is_some_and(|url| {
            url.host_str().is_some_and(|host| {
                let host = host.trim_start_matches('[').trim_end_matches(']');
                host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
            })
        })
    }
}

/// The endpoints that are known without any configuration.
#[must_use]
pub fn default_endpoints() -> BTreeMap<String, EndpointConfig> {
    let openai = EndpointConfig {
        base_url_env: Some("OPENAI_BASE_URL".to_owned()),
        key_env: Some("OPENAI_API_KEY".to_owned()),
        // OpenAI recommends responses over chat completions for new programs: better results and caching with reasoning.
        ..EndpointConfig::new(WireFormat::OpenaiResponses, "https://api.openai.com/v1")
    };
    let anthropic = EndpointConfig {
        base_url_env: Some("ANTHROPIC_BASE_URL".to_owned()),
        key_env: Some("ANTHROPIC_API_KEY".to_owned()),
        ..EndpointConfig::new(WireFormat::Anthropic, "https://api.anthropic.com/v1")
    };
    // Local servers take a key only when they were started with one.
    let local = |base_url: &str, variable: &str| EndpointConfig {
        base_url_env: Some(format!("{variable}_BASE_URL")),
        key_env: Some(format!("{variable}_API_KEY")),
        key_optional: true,
        ..EndpointConfig::new(WireFormat::Openai, base_url)
    };
    [
        ("openai", openai),
        ("anthropic", anthropic),
        ("ollama", local("http://127.0.0.1:11434/v1", "OLLAMA")),
        ("vllm", local("http://127.0.0.1:8000/v1", "VLLM")),
        ("sglang", local("http://127.0.0.1:30000/v1", "SGLANG")),
        ("llamacpp", local("http://127.0.0.1:8080/v1", "LLAMACPP")),
    ]
    .into_iter()
    .map(|(name, config)| (name.to_owned(), config))
    .collect()
}

/// An endpoint with what all its models share: one connection pool and one rate limit.
pub(super) struct Endpoint {
    pub(super) name: String,
    pub(super) config: EndpointConfig,
    pub(super) limiter: Option<Limiter>,
    client: OnceLock<reqwest::Client>,
}

impl Endpoint {
    pub(super) fn new(name: String, config: EndpointConfig) -> Self {
        let limiter = config.requests_per_minute.map(|per_minute| {
            // One at a time: a burst at the start of a minute is what a server's own limiter punishes.
            RateLimiter::direct(Quota::per_minute(per_minute).allow_burst(NonZeroU32::MIN))
        });
        Self { name, config, limiter, client: OnceLock::new() }
    }

    pub(super) fn client(&self) -> Result<reqwest::Client, ModelError> {
        if let Some(client) = self.client.get() {
            return Ok(client.clone());
        }
        let mut builder = reqwest::Client::builder()
            .connect_timeout(self.config.timeouts.connect())
            // A redirected POST loses its body, and a key must not follow to another host.
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("nightshift/", env!("CARGO_PKG_VERSION")));
        if self.config.is_loopback() {
            builder = builder.no_proxy();
        }
        let client = builder.build().map_err(|error| ModelError::Misconfigured {
            endpoint: self.name.clone(),
            message: format!("the HTTP client cannot be made: {}", error.without_url()),
        })?;
        Ok(self.client.get_or_init(|| client).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_never_shows_a_password() {
        let config = EndpointConfig::new(WireFormat::Openai, "https://someone:hush@models.example/v1?key=hush");
        assert_eq!(config.shown_base_url(), "https://models.example/v1");
    }

    #[test]
    fn the_version_of_the_messages_interface_is_added_once() {
        for base in ["https://api.anthropic.com", "https://api.anthropic.com/", "https://api.anthropic.com/v1"] {
            let config = EndpointConfig::new(WireFormat::Anthropic, base);
            assert_eq!(config.address("messages"), "https://api.anthropic.com/v1/messages");
        }
    }

    #[test]
    fn only_this_machine_is_loopback() {
        for (base, expected) in [
            ("http://127.0.0.1:8000/v1", true),
            ("http://[::1]:8000/v1", true),
            ("http://localhost/v1", true),
            ("https://api.openai.com/v1", false),
            ("http://127.0.0.1.example/v1", false),
        ] {
            assert_eq!(EndpointConfig::new(WireFormat::Openai, base).is_loopback(), expected, "{base}");
        }
    }
}
