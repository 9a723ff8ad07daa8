//! Errors of model calls.

use std::sync::Arc;

use nightshift_protocol::step::{FailureClass, StepFailure};

/// The phase of a [`ModelError::Timeout`] before which nothing was sent.
pub(super) const CONNECTING: &str = "time for the connection";

/// Code of a script that has no reply for a step.
pub(crate) const SCRIPT_ENDED: &str = "model.script_ended";

/// Statuses of gateways that waited for the model for too long.
const GATEWAY_TIMEOUTS: [u16; 2] = [504, 524];

/// Why a model gave no usable reply.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The endpoint wants a key and none is set.
    #[error("the endpoint `{endpoint}` needs a key: set the environment variable {variable}")]
    NoKey {
        /// Name of the endpoint.
        endpoint: String,
        /// The variable to set.
        variable: String,
    },
    /// The command wants a variable and it is not set.
    #[error(
        "the command of `{endpoint}` needs the environment variable {variable}: set it, or take it out of `env` of \
         [models.{endpoint}]"
    )]
    NoVariable {
        /// Name of the command.
        endpoint: String,
        /// The variable to set.
        variable: String,
    },
    /// The endpoint refused the key.
    #[error("the endpoint `{endpoint}` refused the key (HTTP {status}): {advice}. It said: {excerpt}")]
    Auth {
        /// Name of the endpoint.
        endpoint: String,
        /// HTTP status.
        status: u16,
        /// What to do.
        advice: String,
        /// What the endpoint said, bounded.
        excerpt: String,
    },
    /// No such endpoint in the configuration.
    #[error("there is no model endpoint `{endpoint}`: known are {known}; add [models.{endpoint}] to the configuration")]
    UnknownEndpoint {
        /// What was asked for.
        endpoint: String,
        /// The known names.
        known: String,
    },
    /// The configuration of an endpoint cannot be used.
    #[error("the configuration of the model endpoint `{endpoint}` cannot be used: {message}")]
    Misconfigured {
        /// Name of the endpoint.
        endpoint: String,
        /// What is wrong.
        message: String,
    },
    /// The endpoint does not know the model, or the address is wrong.
    #[error("the endpoint `{endpoint}` at {base_url} does not know the model `{model}` (HTTP 404). It said: {excerpt}")]
    NotFound {
        /// Name of the endpoint.
        endpoint: String,
        /// Its address.
        base_url: String,
        /// The model.
        model: String,
        /// What the endpoint said, bounded.
        excerpt: String,
    },
    /// No connection.
    #[error("the endpoint `{endpoint}` at {base_url} cannot be reached: is the address right and the server running?")]
    Unreachable {
        /// Name of the endpoint.
        endpoint: String,
        /// Its address.
        base_url: String,
        /// Whether the connection stood, so that the request may have arrived.
        was_sent: bool,
        /// What the connection said.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Too many requests, or the endpoint is overloaded.
    #[error("the endpoint `{endpoint}` is busy or limits requests (HTTP {status}). It said: {excerpt}")]
    RateLimited {
        /// Name of the endpoint.
        endpoint: String,
        /// HTTP status.
        status: u16,
        /// When to come back, in milliseconds from now, when it said so.
        retry_after_ms: Option<u64>,
        /// What the endpoint said, bounded.
        excerpt: String,
    },
    /// The account has no credit left: waiting does not help.
    #[error("the account of the endpoint `{endpoint}` has no credit left. It said: {excerpt}")]
    Quota {
        /// Name of the endpoint.
        endpoint: String,
        /// What the endpoint said, bounded.
        excerpt: String,
    },
    /// A time limit passed.
    #[error("the endpoint `{endpoint}` let the {phase} pass: {limit_ms} ms{}", waiting_hint(phase))]
    Timeout {
        /// Name of the endpoint.
        endpoint: String,
        /// Which limit it was.
        phase: &'static str,
        /// The limit in milliseconds.
        limit_ms: u64,
    },
    /// The stream ended without its end marker.
    #[error("the reply of the endpoint `{endpoint}` was cut off after {bytes} bytes of text: {message}")]
    Truncated {
        /// Name of the endpoint.
        endpoint: String,
        /// Bytes of text that had arrived.
        bytes: usize,
        /// What was missing.
        message: String,
    },
    /// The reply violates the wire format.
    #[error("the reply of the endpoint `{endpoint}` cannot be read: {message}. It began: {excerpt}")]
    Malformed {
        /// Name of the endpoint.
        endpoint: String,
        /// What is wrong.
        message: String,
        /// The part that could not be read, bounded.
        excerpt: String,
    },
    /// Longer than a named limit.
    #[error("the reply of `{endpoint}` is too large: more than {limit_bytes} bytes {what}")]
    TooLarge {
        /// Name of the endpoint.
        endpoint: String,
        /// Of what.
        what: &'static str,
        /// The limit in bytes.
        limit_bytes: usize,
    },
    /// The provider refused to answer this request.
    #[error("the endpoint `{endpoint}` refused to answer. It said: {excerpt}")]
    Refused {
        /// Name of the endpoint.
        endpoint: String,
        /// What the endpoint said, bounded.
        excerpt: String,
    },
    /// The endpoint does not accept the request.
    #[error("the endpoint `{endpoint}` does not accept the request (HTTP {status}). It said: {excerpt}")]
    BadRequest {
        /// Name of the endpoint.
        endpoint: String,
        /// HTTP status.
        status: u16,
        /// What the endpoint said, bounded.
        excerpt: String,
    },
    /// The endpoint does not accept the limit of the reply.
    #[error(
        "the endpoint `{endpoint}` does not accept a limit of {limit} output tokens (HTTP {status}): set \
         `max_output_tokens` of [models.{endpoint}] to what the model and its context allow. It said: {excerpt}"
    )]
    OutputLimit {
        /// Name of the endpoint.
        endpoint: String,
        /// HTTP status.
        status: u16,
        /// The requested limit, in tokens.
        limit: u64,
        /// What the endpoint said, bounded.
        excerpt: String,
    },
    /// The endpoint failed.
    #[error("the endpoint `{endpoint}` failed (HTTP {status}). It said: {excerpt}")]
    ServerError {
        /// Name of the endpoint.
        endpoint: String,
        /// HTTP status; 200 when the failure came inside a stream.
        status: u16,
        /// When it wants to be asked again, in milliseconds from now.
        retry_after_ms: Option<u64>,
        /// What the endpoint said, bounded.
        excerpt: String,
    },
    /// The command that answers did not end well.
    #[error("the command of `{endpoint}` failed: {message}. It said: {excerpt}")]
    CommandFailed {
        /// Name of the endpoint.
        endpoint: String,
        /// How it ended.
        message: String,
        /// The end of what it wrote on standard error, bounded.
        excerpt: String,
        /// Whether it never began.
        before_it_ran: bool,
    },
    /// No outside agent answered a request in time.
    #[error(
        "no agent answered the request {request} to `{endpoint}` within {waited_ms} ms: start one (`nightshift requests next`), or raise `deadline_s` of [external]"
    )]
    Expired {
        /// `external/NAME`.
        endpoint: String,
        /// Id of the request.
        request: String,
        /// How long there was time for an answer, in milliseconds.
        waited_ms: u64,
    },
    /// Every model that was to be asked failed.
    #[error("none of the models answered: {}", told(errors))]
    NoneAnswered {
        /// The models in the order in which they were asked, and what went wrong: at least one.
        errors: Vec<(String, Arc<ModelError>)>,
    },
    /// The meter did not let the try begin: the campaign's budget does not allow it, another worker holds the step by
    /// now, or the request was answered meanwhile. The failure of the step names the cause and what to do.
    #[error(transparent)]
    NotBegun(StepFailure),
    /// The script holds no reply of this name.
    #[error("the script has no reply for this call: expected the file `{file}` beside the other replies")]
    ScriptEnded {
        /// Name of the missing file.
        file: String,
    },
    /// The run has no script.
    #[error("replies from a script were asked for, but the task has none: {message}")]
    NoScript {
        /// What is missing or wrong.
        message: String,
    },
}

impl ModelError {
    /// Stable code, documented in `docs/reference/errors.md`.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::NoKey { .. } | Self::NoVariable { .. } | Self::Auth { .. } => "model.auth",
            Self::UnknownEndpoint { .. } | Self::NotFound { .. } => "model.not_found",
            Self::Misconfigured { .. } => "config.model",
            Self::Unreachable { .. } => "model.unreachable",
            Self::RateLimited { .. } => "model.rate_limited",
            Self::Quota { .. } => "model.quota",
            Self::Timeout { .. } => "model.timeout",
            Self::Truncated { .. } => "model.truncated",
            Self::Malformed { .. } => "model.malformed",
            Self::TooLarge { .. } => "model.too_large",
            Self::Refused { .. } => "model.refused",
            Self::BadRequest { .. } => "model.bad_request",
            Self::OutputLimit { .. } => "model.output_limit",
            Self::ServerError { .. } => "model.server_error",
            Self::CommandFailed { .. } => "model.command_failed",
            Self::Expired { .. } => "request.expired",
            Self::NoneAnswered { errors } => decisive(errors).map_or("model.unreachable", |error| error.code()),
            Self::NotBegun(failure) => &failure.code,
            Self::ScriptEnded { .. } => SCRIPT_ENDED,
            Self::NoScript { .. } => "model.no_script",
        }
    }

    /// Whether another try, perhaps much later, may succeed.
    #[must_use]
    pub fn is_retriable(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::RateLimited { .. }
            | Self::Timeout { .. }
            | Self::Truncated { .. }
            | Self::Malformed { .. }
            | Self::CommandFailed { .. }
            | Self::ServerError { .. } => true,
            Self::NoneAnswered { errors } => errors.iter().any(|(_, error)| error.is_retriable()),
            Self::NotBegun(failure) => failure.class == FailureClass::Retriable,
            Self::NoKey { .. }
            | Self::NoVariable { .. }
            | Self::Auth { .. }
            | Self::UnknownEndpoint { .. }
            | Self::Misconfigured { .. }
            | Self::NotFound { .. }
            | Self::Quota { .. }
            | Self::TooLarge { .. }
            | Self::Refused { .. }
            | Self::BadRequest { .. }
            | Self::Expired { .. }
            | Self::OutputLimit { .. }
            | Self::ScriptEnded { .. }
            | Self::NoScript { .. } => false,
        }
    }

    /// Returns true if the model may have written a whole reply that did not arrive. Narrower than [`Self::may_be_billed`]: the step waits
    /// for a network that is down.
    #[must_use]
    pub fn lost_its_reply(&self) -> bool {
        match self {
            Self::Timeout { phase, .. } => *phase != CONNECTING,
            Self::Truncated { .. } | Self::Malformed { .. } => true,
            Self::NoneAnswered { errors } => errors.iter().any(|(_, error)| error.lost_its_reply()),
            _ => false,
        }
    }

    /// When the endpoint wants to be asked again, in milliseconds from now.
    #[must_use]
    pub fn retry_after_ms(&self) -> Option<u64> {
        match self {
            Self::RateLimited { retry_after_ms, .. } | Self::ServerError { retry_after_ms, .. } => *retry_after_ms,
            // The retry asks the model that is available first.
            Self::NoneAnswered { errors } => {
                let waits = errors.iter().filter(|(_, error)| error.is_retriable());
                waits.map(|(_, error)| error.retry_after_ms().unwrap_or(0)).min().filter(|wait_ms| *wait_ms > 0)
            }
            Self::NotBegun(failure) => failure.retry_after_ms,
            _ => None,
        }
    }

    /// Whether the endpoint may have worked for this call and may charge for it. Providers charge for no reply that began
    /// with an error status; a gateway in between that lost patience says nothing about the model behind it.
    #[must_use]
    pub fn may_be_billed(&self) -> bool {
        match self {
            Self::Timeout { phase, .. } => *phase != CONNECTING,
            Self::Unreachable { was_sent, .. } => *was_sent,
            Self::CommandFailed { before_it_ran, .. } => !before_it_ran,
            Self::NoneAnswered { errors } => errors.iter().any(|(_, error)| error.may_be_billed()),
            // An error within a stream came after the model had begun.
            Self::RateLimited { status, .. }
            | Self::Auth { status, .. }
            | Self::BadRequest { status, .. }
            | Self::OutputLimit { status, .. } => (200..300).contains(status),
            Self::ServerError { status, .. } => (200..300).contains(status) || GATEWAY_TIMEOUTS.contains(status),
            Self::Truncated { .. } | Self::Malformed { .. } | Self::TooLarge { .. } | Self::Refused { .. } => true,
            // Within a stream or before it: no credit is left to take anything from.
            Self::Quota { .. }
            | Self::NoKey { .. }
            | Self::NoVariable { .. }
            | Self::UnknownEndpoint { .. }
            | Self::Misconfigured { .. }
            | Self::NotFound { .. }
            | Self::NotBegun(_)
            | Self::Expired { .. }
            | Self::ScriptEnded { .. }
            | Self::NoScript { .. } => false,
        }
    }

    /// Whether the next model is asked instead, when there is one. What the model itself said, a refusal or a flood, is
    /// an answer; and what keeps a try from beginning, or a script from going on, has nothing to do with the model.
    #[must_use]
    pub fn falls_through(&self) -> bool {
        match self {
            Self::NoKey { .. }
            | Self::NoVariable { .. }
            | Self::Auth { .. }
            | Self::UnknownEndpoint { .. }
            | Self::Misconfigured { .. }
            | Self::NotFound { .. }
            | Self::Unreachable { .. }
            | Self::RateLimited { .. }
            | Self::Quota { .. }
            | Self::Timeout { .. }
            | Self::Truncated { .. }
            | Self::Malformed { .. }
            | Self::BadRequest { .. }
            | Self::OutputLimit { .. }
            | Self::CommandFailed { .. }
            | Self::Expired { .. }
            | Self::ServerError { .. } => true,
            Self::TooLarge { .. }
            | Self::Refused { .. }
            | Self::NoneAnswered { .. }
            | Self::NotBegun(_)
            | Self::ScriptEnded { .. }
            | Self::NoScript { .. } => false,
        }
    }

    /// The message with its causes.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }
}

/// Returns what to do about a time limit that passes at each try.
fn waiting_hint(phase: &str) -> &'static str {
    if phase == CONNECTING {
        return "";
    }
    "; if this happens again, raise `whole_ms`, `first_byte_ms` or `idle_ms` in the `timeouts` of this endpoint, or set `reasoning_summaries` so that \
     more of the reply arrives early"
}

/// The error that decides about the step: the first one that may pass, else the first one.
fn decisive(errors: &[(String, Arc<ModelError>)]) -> Option<&ModelError> {
    let passing = errors.iter().find(|(_, error)| error.is_retriable());
    passing.or_else(|| errors.first()).map(|(_, error)| &**error)
}

fn told(errors: &[(String, Arc<ModelError>)]) -> String {
    errors.iter().map(|(label, error)| format!("{label}: {}", error.describe())).collect::<Vec<_>>().join("; ")
}

impl From<&ModelError> for StepFailure {
    fn from(error: &ModelError) -> Self {
        if let ModelError::NotBegun(failure) = error {
            return failure.clone();
        }
        let mut failure = if error.is_retriable() {
            Self::retriable(error.code(), error.describe())
        } else {
            Self::fatal(error.code(), error.describe())
        };
        failure.retry_after_ms = error.retry_after_ms();
        failure.charged_tries = u32::from(error.lost_its_reply());
        failure
    }
}

impl From<ModelError> for StepFailure {
    fn from(error: ModelError) -> Self {
        Self::from(&error)
    }
}
