//! Records that API calls create, each at most once per idempotency key.

use async_trait::async_trait;
use nightshift_protocol::api::{Remark, SavedView};
use nightshift_protocol::time::TimestampMs;

use super::{ShareRecord, StoreError, TokenRecord, WebhookRecord, WorkerRecord};

/// A record to create. Campaigns have a method of their own.
#[derive(Debug, Clone)]
pub enum Creation {
    /// A token.
    Token(TokenRecord),
    /// A link that grants read access to a campaign or a run.
    Share(ShareRecord),
    /// A note.
    Note(Remark),
    /// A saved view. Refused (`view.too_many`) when its owner has `limit` views already.
    View {
        /// The view.
        view: SavedView,
        /// Maximum number of views of the owner.
        limit: u32,
    },
    /// A webhook. Refused (`webhook.too_many`) when `limit` webhooks exist.
    Webhook {
        /// The webhook.
        webhook: WebhookRecord,
        /// Maximum number of webhooks.
        limit: u32,
    },
    /// A worker.
    Worker(WorkerRecord),
}

impl Creation {
    /// Returns the noun of the record. Each noun has its own key space.
    #[must_use]
    pub fn noun(&self) -> &'static str {
        match self {
            Self::Token(_) => "token",
            Self::Share(_) => "share",
            Self::Note(_) => "note",
            Self::View { .. } => "view",
            Self::Webhook { .. } => "webhook",
            Self::Worker(_) => "worker",
        }
    }
}

/// The idempotency key of a request, stored in one transaction with what the request creates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Once {
    /// The caller's key.
    pub key: String,
    /// Digest of the request. Another digest with the same key is refused.
    pub digest: String,
    /// The answer to a repeated request.
    pub answer: String,
    /// Time of the request.
    pub at: TimestampMs,
}

/// Records that API calls create, each at most once per idempotency key.
#[async_trait]
pub trait CreationStore: Send + Sync {
    /// Creates something, at most once per idempotency key.
    ///
    /// Repeating the request with its key creates nothing and returns the first answer. The same key with another
    /// request is [`StoreError::IdempotencyConflict`].
    async fn create(&self, creation: Creation, once: Option<Once>) -> Result<Option<String>, StoreError>;
}
