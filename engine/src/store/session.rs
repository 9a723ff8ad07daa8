//! The part of the port about browsers that are signed in.

use async_trait::async_trait;
use nightshift_protocol::access::TokenView;
use nightshift_protocol::id::{ShareId, TokenId};
use nightshift_protocol::time::TimestampMs;

use super::StoreError;

/// A browser that is signed in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRecord {
    /// blake3 of what its cookie holds, as hexadecimal digits.
    pub secret_hash: String,
    /// What it stands for.
    pub holder: SessionHolder,
    /// When it began.
    pub created_at: TimestampMs,
    /// When it ends by itself.
    pub expires_at: TimestampMs,
}

/// What a session stands for: it can do what that can, for as long as that holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionHolder {
    /// A token that the server was started with. The proof holds together with the cookie and that token alone.
    Configured {
        /// As hexadecimal digits.
        proof: String,
    },
    /// A stored token.
    Token(TokenId),
    /// A link to read one thing.
    Share(ShareId),
}

/// Sessions.
#[async_trait]
pub trait SessionStore: Send + Sync {
    /// Keeps a session, and deletes those that are over at its beginning. Refuses (`auth.too_many_sessions`) when there
    /// are `limit` already.
    async fn create_session(&self, session: SessionRecord, limit: u32) -> Result<(), StoreError>;

    /// The session of this cookie, also when it is over.
    async fn find_session(&self, secret_hash: &str) -> Result<Option<SessionRecord>, StoreError>;

    /// Ends a session; ending it again is fine.
    async fn end_session(&self, secret_hash: &str) -> Result<(), StoreError>;

    /// Sessions that are not over at that moment, the latest first.
    async fn list_sessions(&self, at: TimestampMs, limit: u32) -> Result<Vec<SessionRecord>, StoreError>;

    /// Ends the session whose hash begins so; whether there was one.
    async fn end_session_named(&self, beginning: &str) -> Result<bool, StoreError>;

    /// The token of this id, revoked and expired ones too.
    async fn token_of_id(&self, id: &TokenId) -> Result<Option<TokenView>, StoreError>;
}
