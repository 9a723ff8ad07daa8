//! Errors of the server, and their conversion into answers.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::response::{IntoResponse, Response};
use nightshift_engine::store::StoreError;
use nightshift_engine::workflow::WorkflowError;
use nightshift_protocol::error::{ApiError, PROBLEM_CONTENT_TYPE, Problem};
use serde_json::Value;

/// Why a server did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// Another program uses the address.
    #[error(
        "the address {addr} is in use: stop the program that listens there, or choose another port with --bind (port 0 picks a free one)"
    )]
    PortInUse {
        /// The address.
        addr: SocketAddr,
    },
    /// The address cannot be used.
    #[error("the server cannot listen on {addr}: {source}; choose another address with --bind")]
    Bind {
        /// The address.
        addr: SocketAddr,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A setting is invalid.
    #[error("{0}")]
    Config(String),
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It ended without a request to stop.
    #[error("the server ended unexpectedly: {0}")]
    Ended(String),
}

impl ServerError {
    /// Returns the stable code; see `docs/reference/errors.md`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::PortInUse { .. } => "server.port_in_use",
            Self::Bind { .. } => "server.bind_failed",
            Self::Config(_) => "config.server",
            Self::Store(error) => error.code(),
            Self::Ended(_) => "server.ended",
        }
    }

    /// Returns the error in the form of the API.
    #[must_use]
    pub fn to_api_error(&self) -> ApiError {
        ApiError::new(self.code(), self.to_string())
    }
}

/// Accompanies an answer with a server error, for the log.
#[derive(Debug, Clone)]
pub(crate) struct Failed(pub(crate) ApiError);

/// An error answer of the API: problem details (RFC 9457).
#[derive(Debug)]
pub struct ApiFailure {
    status: StatusCode,
    error: ApiError,
    /// Whether a browser should ask for the token.
    challenge: bool,
    /// Delay before the next try.
    retry_after: Option<Duration>,
}

impl ApiFailure {
    /// Creates an error with a code of `docs/reference/errors.md`.
    #[must_use]
    pub fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Self {
        Self { status, error: ApiError::new(code, message), challenge: false, retry_after: None }
    }

    /// Creates the error for an invalid request.
    pub(crate) fn bad(code: &str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message)
    }

    pub(crate) fn not_found(code: &str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, code, message)
    }

    pub(crate) fn forbidden(code: &str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, code, message)
    }

    /// Creates the error for a missing or unknown token.
    pub(crate) fn unauthorized(code: &str, message: impl Into<String>) -> Self {
        Self { challenge: true, ..Self::new(StatusCode::UNAUTHORIZED, code, message) }
    }

    /// Creates an internal error: stored or generated data cannot be read.
    pub(crate) fn internal(code: &str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, code, message)
    }

    /// Adds a delay after which a retry may succeed.
    pub(crate) fn after(self, wait: Duration) -> Self {
        Self { retry_after: Some(wait), ..self }
    }

    /// Returns the message.
    pub(crate) fn message(&self) -> &str {
        &self.error.message
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) fn with_details(mut self, details: Value) -> Self {
        self.error.details = details;
        self
    }
}

impl IntoResponse for ApiFailure {
    fn into_response(self) -> Response {
        let failed = self.status.is_server_error().then(|| Failed(self.error.clone()));
        let problem = Problem::new(self.status.as_u16(), self.error);
        let mut response = (self.status, Json(problem)).into_response();
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_CONTENT_TYPE));
        if let Some(failed) = failed {
            response.extensions_mut().insert(failed);
        }
        if let Some(wait) = self.retry_after {
            // Whole seconds, rounded up.
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
        }
        if self.challenge {
            let challenge = HeaderValue::from_static("Bearer, Basic realm=\"nightshift\", charset=\"UTF-8\"");
            response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
        response
    }
}

impl From<StoreError> for ApiFailure {
    fn from(error: StoreError) -> Self {
        let status = match &error {
            StoreError::NotFound { .. } => StatusCode::NOT_FOUND,
            StoreError::Refused { code: "artifact.too_large", .. } => StatusCode::PAYLOAD_TOO_LARGE,
            // A cursor that is not of the list.
            StoreError::Refused { code: "request.invalid_query", .. } => StatusCode::BAD_REQUEST,
            StoreError::IdempotencyConflict { .. } | StoreError::Illegal(_) | StoreError::Refused { .. } => {
                StatusCode::CONFLICT
            }
            StoreError::Full(_) => StatusCode::INSUFFICIENT_STORAGE,
            StoreError::Locked(_) | StoreError::Unreachable(_) | StoreError::Other(_) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            StoreError::ReadOnly(_) | StoreError::Unusable(_) | StoreError::Corrupt(_) | StoreError::TooNew(_) => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        };
        Self::new(status, error.code(), error.to_string())
    }
}

impl From<WorkflowError> for ApiFailure {
    fn from(error: WorkflowError) -> Self {
        Self::internal("run.unreadable", error.to_string())
    }
}
