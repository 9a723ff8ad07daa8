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

/// Sessions.
#[async_trait]
pub trait SessionStore: Send + Sync {
    /// Stores a session, and deletes expired ones. Refuses (`auth.too_many_sessions`) when `limit` sessions exist.
    async fn create_session(&self, session: SessionRecord, limit: u32) -> Result<(), StoreError>;

    /// Finds the session of this cookie, including an expired one.
    async fn find_session(&self, secret_hash: &str) -> Result<Option<SessionRecord>, StoreError>;

    /// Ends a session. Repeating it changes nothing.
    async fn end_session(&self, secret_hash: &str) -> Result<(), StoreError>;

    /// Lists sessions that are valid at `at`, the latest first.
    async fn list_sessions(&self, at: TimestampMs, limit: u32) -> Result<Vec<SessionRecord>, StoreError>;

    /// Ends the session whose hash begins with `beginning`. Returns whether it existed.
    async fn end_session_named(&self, beginning: &str) -> Result<bool, StoreError>;

    /// Finds the token of this id, including a revoked or expired one.
    async fn token_of_id(&self, id: &TokenId) -> Result<Option<TokenView>, StoreError>;
}
