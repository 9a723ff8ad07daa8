//! What calls of the API create, each at most once for a key of its caller.

use nightshift_protocol::api::{Remark, SavedView};
use nightshift_protocol::time::TimestampMs;

use super::{ShareRecord, TokenRecord, WebhookRecord, WorkerRecord};

/// Something to be created. Campaigns have a method of their own.
#[derive(Debug, Clone)]
pub enum Creation {
    /// A token.
    Token(TokenRecord),
    /// A link by which others read a campaign or a run.
    Share(ShareRecord),
    /// A note.
    Note(Remark),
    /// A saved view. Refused (`view.too_many`) when its owner has `limit` already.
    View {
        /// The view.
        view: SavedView,
        /// The most that its owner may have.
        limit: u32,
    },
    /// A webhook. Refused (`webhook.too_many`) when there are `limit` already.
    Webhook {
        /// The webhook.
        webhook: WebhookRecord,
        /// The most that there may be.
        limit: u32,
    },
    /// A worker.
    Worker(WorkerRecord),
}

impl Creation {
    /// Returns the noun of what is created. Keys of different nouns are different keys.
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

/// The idempotency key of a request, kept with what the request creates in one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Once {
    /// The caller's key.
    pub key: String,
    /// Digest of the request: another one with the same key is refused.
    pub digest: String,
    /// The answer to a repetition.
    pub answer: String,
    /// When it was asked.
    pub at: TimestampMs,
}
