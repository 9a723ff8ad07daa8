//! Tokens of the API.

use async_trait::async_trait;
use nightshift_protocol::access::TokenView;
use nightshift_protocol::id::TokenId;
use nightshift_protocol::time::TimestampMs;

use super::StoreError;

/// A token with the hash of its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRecord {
    /// The view in lists.
    pub view: TokenView,
    /// blake3 of the secret, as hexadecimal digits.
    pub secret_hash: String,
}

/// Tokens of the API.
#[async_trait]
pub trait TokenStore: Send + Sync {
    /// Lists tokens, newest first.
    async fn list_tokens(&self) -> Result<Vec<TokenView>, StoreError>;

    /// Revokes a token. Repeating it changes nothing.
    async fn revoke_token(&self, id: &TokenId, at: TimestampMs) -> Result<(), StoreError>;

    /// Finds the token by the hash of its secret, including revoked and expired tokens.
    async fn find_token(&self, secret_hash: &str) -> Result<Option<TokenView>, StoreError>;

    /// Records that a token was used.
    async fn touch_token(&self, id: &TokenId, at: TimestampMs) -> Result<(), StoreError>;
}
