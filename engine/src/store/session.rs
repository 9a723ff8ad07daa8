//! Browser sessions.

use async_trait::async_trait;
use nightshift_protocol::access::TokenView;
use nightshift_protocol::id::{ShareId, TokenId};
use nightshift_protocol::time::TimestampMs;

use super::StoreError;

/// A browser session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRecord {
    /// blake3 of the cookie's value, as hexadecimal digits.
    pub secret_hash: String,
    /// What the session acts for.
    pub holder: SessionHolder,
    /// Start of the session.
    pub created_at: TimestampMs,
    /// Expiry of the session.
    pub expires_at: TimestampMs,
}

/// What a session acts for. It has the same permissions, for as long as its holder is valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionHolder {
    /// A configured token of the server. The proof is valid only together with the cookie and that token.
    Configured {
        /// The proof, as hexadecimal digits.
        proof: String,
    },
    /// A stored token.
    Token(TokenId),
    /// A link that grants read access to one object.
    Share(ShareId),
}

/// How many sessions may exist.
#[derive(Debug, Clone, Copy)]
pub struct SessionLimits {
    /// Per token, per link, and of the configured tokens together. The next session replaces the oldest one.
    pub per_holder: u32,
    /// Of all tokens and links together. The next session is refused.
    pub in_total: u32,
}

/// Sessions.
#[async_trait]
pub trait SessionStore: Send + Sync {
    /// Stores a session. Deletes the sessions that have expired or whose holder has ended, and the oldest ones of its
    /// holder above the limit. Refuses a session of a token or a link (`auth.too_many_sessions`) when too many exist.
    async fn create_session(&self, session: SessionRecord, limits: SessionLimits) -> Result<(), StoreError>;

    /// Finds the session of this cookie, including an expired one.
    async fn find_session(&self, secret_hash: &str) -> Result<Option<SessionRecord>, StoreError>;

    /// Ends a session. Returns whether it existed. Repeating it changes nothing.
    async fn end_session(&self, secret_hash: &str) -> Result<bool, StoreError>;

    /// Lists sessions that are valid at `at`, the latest first.
    async fn list_sessions(&self, at: TimestampMs, limit: u32) -> Result<Vec<SessionRecord>, StoreError>;

    /// Ends the session whose hash begins with `beginning`. Returns whether it existed.
    async fn end_session_named(&self, beginning: &str) -> Result<bool, StoreError>;

    /// Finds the token of this id, including a revoked or expired one.
    async fn token_of_id(&self, id: &TokenId) -> Result<Option<TokenView>, StoreError>;
}
