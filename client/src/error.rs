//! Why a call failed.

use nightshift_protocol::error::ApiError;

/// The reason of a failed call. [`ClientError::code`] is stable; see `docs/reference/errors.md`.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The address is not an HTTP address.
    #[error(
        "`{address}` is not a server address ({reason}): expected something like http://127.0.0.1:7777, or several with commas between them"
    )]
    InvalidAddress {
        /// The given address.
        address: String,
        /// The reason.
        reason: String,
    },
    /// The token contains characters that are not permitted in a header.
    #[error("the token holds characters that a token cannot have")]
    InvalidToken,
    /// The HTTP client could not be created.
    #[error("the HTTP client could not be set up")]
    Setup(#[source] reqwest::Error),
    /// No server is reachable at the address.
    #[error("the server at {address} cannot be reached: {reason}")]
    Unreachable {
        /// The address.
        address: String,
        /// The innermost cause.
        reason: String,
        /// The cause.
        #[source]
        source: reqwest::Error,
    },
    /// The server did not answer in time.
    #[error("the server at {address} did not answer within the time limit")]
    TimedOut {
        /// The address.
        address: String,
        /// The cause.
        #[source]
        source: reqwest::Error,
    },
    /// The server answered with an error.
    #[error("{error}")]
    Api {
        /// HTTP status.
        status: u16,
        /// The error.
        error: ApiError,
    },
    /// The answer is not part of the API.
    #[error("the server at {address} gave an answer that is not understood (HTTP {status}): {reason}")]
    NotUnderstood {
        /// The address.
        address: String,
        /// HTTP status.
        status: u16,
        /// The reason.
        reason: String,
    },
    /// The answer exceeds the limit.
    #[error("the server at {address} answered more than {limit_bytes} bytes")]
    TooLarge {
        /// The address.
        address: String,
        /// The limit.
        limit_bytes: usize,
    },
    /// The bytes of an artifact do not match its hash.
    #[error("the artifact {hash} arrived damaged")]
    Damaged {
        /// The hash.
        hash: String,
    },
    /// A transfer ended early.
    #[error("a transfer with the server at {address} ended after {stored_bytes} of {size_bytes} bytes")]
    Cut {
        /// The address.
        address: String,
        /// Number of received bytes.
        stored_bytes: u64,
        /// Total number of bytes.
        size_bytes: u64,
    },
    /// The downloaded bytes could not be stored.
    #[error("what was downloaded could not be stored: {source}")]
    Sink {
        /// The cause.
        #[source]
        source: std::io::Error,
    },
}

impl ClientError {
    /// Returns the stable code: for an answer, the server's own.
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

    /// Returns whether the same call may succeed later without intervention.
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

    /// Returns the HTTP status, if the server answered.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Api { status, .. } | Self::NotUnderstood { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Returns the error in the form of the API: the server's own, or a converted one.
    #[must_use]
    pub fn to_api_error(&self) -> ApiError {
        match self {
            Self::Api { error, .. } => error.clone(),
            other => ApiError::new(other.code(), other.to_string()),
        }
    }
}
