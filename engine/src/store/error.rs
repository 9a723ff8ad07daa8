//! Errors of the store.

use nightshift_protocol::run::IllegalTransition;

/// An error of the store. The code is stable; see `docs/reference/errors.md`.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// Another process has locked the database.
    #[error("{0}")]
    Locked(String),
    /// The folder or file is not writable.
    #[error("{0}")]
    ReadOnly(String),
    /// The path holds something else than a data folder with a database.
    #[error("{0}")]
    Unusable(String),
    /// No space is left.
    #[error("{0}")]
    Full(String),
    /// The file is damaged or not a Nightshift database.
    #[error("{0}")]
    Corrupt(String),
    /// A newer release wrote the database.
    #[error("{0}")]
    TooNew(String),
    /// It does not exist.
    #[error("{noun} `{id}` does not exist")]
    NotFound {
        /// Kind of the missing object.
        noun: &'static str,
        /// The requested id.
        id: String,
    },
    /// The idempotency key was used with another request.
    #[error("the idempotency key `{key}` was used for another request: choose a new key, or repeat the first request")]
    IdempotencyConflict {
        /// The key.
        key: String,
    },
    /// The request conflicts with the stored state. The message says why and what to do.
    #[error("{message}")]
    Refused {
        /// Stable code.
        code: &'static str,
        /// The reason, and what to do.
        message: String,
    },
    /// The database server cannot be reached, or refuses the connection.
    #[error("{0}")]
    Unreachable(String),
    /// The current status does not allow the transition.
    #[error(transparent)]
    Illegal(#[from] IllegalTransition),
    /// Anything else.
    #[error("the database failed: {0}")]
    Other(String),
}

impl StoreError {
    /// Returns the stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Locked(_) => "store.locked",
            Self::ReadOnly(_) => "store.read_only",
            Self::Unusable(_) => "store.unusable",
            Self::Full(_) => "store.full",
            Self::Corrupt(_) => "store.corrupt",
            Self::TooNew(_) => "store.too_new",
            Self::NotFound { noun: "campaign", .. } => "campaign.not_found",
            Self::NotFound { noun: "run", .. } => "run.not_found",
            Self::NotFound { noun: "step", .. } => "step.not_found",
            Self::NotFound { noun: "artifact", .. } => "artifact.not_found",
            Self::NotFound { noun: "worker", .. } => "worker.not_found",
            Self::NotFound { noun: "server", .. } => "server.not_found",
            Self::NotFound { noun: "token", .. } => "token.not_found",
            Self::NotFound { noun: "device", .. } => "device.not_found",
            Self::NotFound { noun: "webhook", .. } => "webhook.not_found",
            Self::NotFound { noun: "delivery", .. } => "delivery.not_found",
            Self::NotFound { noun: "request", .. } => "request.not_found",
            Self::NotFound { noun: "handover", .. } => "handover.not_found",
            Self::NotFound { noun: "note", .. } => "note.not_found",
            Self::NotFound { noun: "view", .. } => "view.not_found",
            Self::NotFound { noun: "share", .. } => "share.not_found",
            Self::NotFound { noun: "attempt", .. } => "attempt.not_found",
            Self::NotFound { .. } => "store.not_found",
            Self::IdempotencyConflict { .. } => "request.idempotency_conflict",
            Self::Refused { code, .. } => code,
            Self::Unreachable(_) => "store.unreachable",
            Self::Illegal(_) => "request.illegal_transition",
            Self::Other(_) => "store.failed",
        }
    }

    /// Returns whether the same call may succeed later without intervention.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Other(_) | Self::Full(_) | Self::Unreachable(_))
    }
}

/// Returns the error for a store whose answer does not match the request.
pub(super) fn mismatch() -> StoreError {
    StoreError::Other("the store's answer does not match the request; this is a defect of the program".to_owned())
}
