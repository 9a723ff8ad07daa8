//! Language models behind one trait.
//!
//! Three wire formats are spoken here, over `reqwest` and `eventsource-stream`: chat completions as most servers offer
//! them, `OpenAI`'s responses, and Anthropic's messages. A general client crate was tried on paper and left out: it hides the `Retry-After`
//! header, the bytes on the wire and the moment at which they arrive, and these are what decides between a reply that
//! was cut off, a server that is busy, and one that is gone. A campaign that runs unattended has to tell them apart.
//! Another way is a program of this machine that reads the prompt and writes the reply, and another an agent outside of
//! Nightshift, whose calls are stored as requests.
//!
//! What is in this module: [`Catalog`] knows the endpoints and opens models; [`Model`] answers one request, with bounded
//! retries of its own for passing trouble; [`ScriptedModel`] answers from texts that were written beforehand;
//! [`Recorder`] writes replies down so that they can be played back; [`PriceTable`] knows what tokens cost.
//!
//! What it never does: keep a key anywhere but in a [`secrecy::SecretString`], write prompts or replies to the log, or
//! replace an unknown number (tokens, price) by zero.

use async_trait::async_trait;
use nightshift_protocol::step::StepFailure;

mod anthropic;
mod catalog;
mod chat_completions;
mod command;
mod endpoint;
mod error;
mod error_report;
mod external;
mod function;
mod function_call;
mod live;
mod price;
mod probe;
mod record;
mod responses;
mod retry;
mod retry_after;
mod scripted;
mod stream;
mod transport;
mod usage;

pub use self::catalog::{Catalog, InvalidModelName, SCRIPTED, parse_chain, parse_choice};
pub use self::command::{
    CommandConfig, CommandKind, MAX_LOG_BYTES, WorkEnd, WorkingCommand, WorkingProcess, Workplace,
};
pub use self::endpoint::{
    EndpointConfig, KeyLookup, MaxTokensField, StructuredReplies, Timeouts, WireFormat, default_endpoints,
};
pub use self::error::ModelError;
pub(crate) use self::error::SCRIPT_ENDED;
pub use self::external::DEFAULT_AGENT;
pub use self::function::FunctionDefinition;
pub use self::function_call::FunctionCall;
pub use self::price::{PriceError, PriceTable};
pub use self::probe::ProbeReport;
pub use self::record::{RecordError, Recorder};
pub use self::retry::{IN_CALL_TRIES, MAX_IN_CALL_WAIT};
pub use self::scripted::ScriptedModel;
pub use self::usage::TokenUsage;
pub use nightshift_protocol::model_call::StopCause;

/// Longest reply that is accepted, in bytes of text.
pub const MAX_REPLY_BYTES: usize = 2 * 1024 * 1024;

/// Most bytes of the reasoning of one call that are stored.
pub const MAX_REASONING_BYTES: usize = 256 * 1024;

/// One question to a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelRequest {
    /// Who the model is and which rules it keeps.
    pub system: String,
    /// The first message.
    pub user: String,
    /// Bytes at the beginning of `user` that other calls of the same run begin with too, for providers that cache prompts;
    /// 0 for none. On a character boundary.
    pub stable_user_bytes: usize,
    /// Earlier turns: the model's reply and the message that follows it.
    pub earlier: Vec<(String, String)>,
    /// Limit of the reply, in tokens.
    pub max_output_tokens: u32,
    /// Sampling temperature; none leaves it to the endpoint.
    pub temperature: Option<f32>,
    /// JSON schema of the reply, for endpoints that can enforce one.
    pub json_schema: Option<serde_json::Value>,
    /// Functions that a reply may call, for endpoints with native tool calls.
    pub functions: Vec<FunctionDefinition>,
    /// Name of the call: the step's key with dots, and `.n` from the second turn on.
    pub call_name: String,
}

#[cfg(test)]
impl ModelRequest {
    /// A request for tests: of everything the least.
    pub(crate) fn example() -> Self {
        Self {
            system: "s".to_owned(),
            user: "u".to_owned(),
            stable_user_bytes: 0,
            earlier: Vec::new(),
            max_output_tokens: 1_000,
            temperature: None,
            json_schema: None,
            functions: Vec::new(),
            call_name: "plan".to_owned(),
        }
    }
}

/// What a model answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelReply {
    /// The text, without separate reasoning.
    pub text: String,
    /// Functions that the reply calls.
    pub calls: Vec<FunctionCall>,
    /// The reasoning, or a summary of it, where the endpoint gives one; at most [`MAX_REASONING_BYTES`] and a note.
    pub reasoning: Option<String>,
    /// Tokens of the call, as far as the endpoint reports them.
    pub tokens: TokenUsage,
    /// From the request to the last byte of the try that succeeded, in milliseconds.
    pub latency_ms: u64,
    /// Why the reply ended.
    pub stop: StopCause,
}

/// Something that answers.
#[async_trait]
pub trait Model: Send + Sync {
    /// `scripted`, or `endpoint/model`.
    fn label(&self) -> String;

    /// Whether replies were written beforehand.
    fn is_scripted(&self) -> bool;

    /// Whether an agent outside of Nightshift answers, by a request that is stored.
    fn is_external(&self) -> bool {
        false
    }

    /// Returns the limit of a reply in tokens that the model is given when `wanted` are asked for.
    fn output_limit(&self, wanted: u32) -> u32 {
        wanted
    }

    /// Answers one request. The meter is asked before each try that costs something.
    async fn call(&self, request: &ModelRequest, meter: &dyn Meter) -> Result<ModelReply, ModelError>;
}

/// Watches what the tries of a call may cost.
#[async_trait]
pub trait Meter: Send + Sync {
    /// Before a try: an error means that it is not made.
    async fn begin(&self) -> Result<(), StepFailure>;

    /// After a try that was begun and failed.
    async fn failed(&self, error: &ModelError);
}

/// Lets every try pass: for calls that no budget is about.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unmetered;

#[async_trait]
impl Meter for Unmetered {
    async fn begin(&self) -> Result<(), StepFailure> {
        Ok(())
    }

    async fn failed(&self, _error: &ModelError) {}
}
