//! Why a call failed.

use nightshift_protocol::error::ApiError;

/// Why a call failed. [`ClientError::code`] is stable; see `docs/errors.md`.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The address is no HTTP address.
    #[error(
        "`{address}` is not a server address ({reason}): expected something like http://127.0.0.1:7777, or several with commas between them"
    )]
    InvalidAddress {
        /// What was given.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The token holds characters that a header cannot carry.
    #[error("the token holds characters that a token cannot have")]
    InvalidToken,
    /// The HTTP machinery could not be set up.
    #[error("the HTTP client could not be set up")]
    Setup(#[source] reqwest::Error),
    /// Nobody answers there.
    #[error("the server at {address} cannot be reached: {reason}")]
    Unreachable {
        /// Where.
        address: String,
        /// The innermost cause.
        reason: String,
        /// The cause.
        #[source]
        source: reqwest::Error,
    },
    /// It did not answer in time.
    #[error("the server at {address} did not answer within the time limit")]
    TimedOut {
        /// Where.
        address: String,
        /// The cause.
        #[source]
        source: reqwest::Error,
    },
    /// It answered with an error.
    #[error("{error}")]
    Api {
        /// HTTP status.
        status: u16,
        /// The error.
        error: ApiError,
    },
    /// It answered something that is not part of the API.
    #[error("the server at {address} gave an answer that is not understood (HTTP {status}): {reason}")]
    NotUnderstood {
        /// Where.
        address: String,
        /// HTTP status.
        status: u16,
        /// What is wrong with it.
        reason: String,
    },
    /// It answered more than is read.
    #[error("the server at {address} answered more than {limit_bytes} bytes")]
    TooLarge {
        /// Where.
        address: String,
        /// The limit.
        limit_bytes: usize,
    },
    /// The bytes of an artifact do not have the hash that they were asked for by.
    #[error("the artifact {hash} arrived damaged")]
    Damaged {
        /// The hash.
        hash: String,
    },
    /// A transfer ended before all was there.
    #[error("a transfer with the server at {address} ended after {stored_bytes} of {size_bytes} bytes")]
    Cut {
        /// Where.
        address: String,
        /// Bytes that arrived.
        stored_bytes: u64,
        /// Bytes of the whole.
        size_bytes: u64,
    },
    /// What was downloaded could not be kept.
    #[error("what was downloaded could not be stored: {source}")]
    Sink {
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

impl ClientError {
    /// The stable code: the server's own for its answers.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::InvalidAddress { .. } => "usage.invalid_address",
            Self::InvalidToken => "usage.invalid_token",
            Self::Setup(_) => "server.client_failed",
            Self::Unreachable { .. } => "server.unreachable",
            Self::TimedOut { .. } => "server.timed_out",
            Self::Api { error, .. } => &error.code,
            Self::NotUnderstood { .. } => "server.not_understood",
            Self::TooLarge { .. } => "server.reply_too_large",
            Self::Damaged { .. } => "artifact.damaged",
            Self::Cut { .. } => "artifact.cut",
            Self::Sink { .. } => "artifact.not_stored",
        }
    }

    /// Whether the same call may succeed later without anyone doing anything.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::TimedOut { .. } | Self::Damaged { .. } | Self::Cut { .. } => true,
            Self::Api { status, .. } | Self::NotUnderstood { status, .. } => {
                matches!(status, 408 | 425 | 429 | 500 | 502 | 503 | 504 | 507)
            }
            Self::InvalidAddress { .. }
            | Self::InvalidToken
            | Self::Setup(_)
            | Self::TooLarge { .. }
            | Self::Sink { .. } => false,
        }
    }

    /// The HTTP status, when the server answered.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Api { status, .. } | Self::NotUnderstood { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// The error in the shape of the API: the server's own, or one made from this failure.
    #[must_use]
    pub fn to_api_error(&self) -> ApiError {
        match self {
            Self::Api { error, .. } => error.clone(),
            other => ApiError::new(other.code(), other.to_string()),
        }
    }
}
