//! Tokens.

use async_trait::async_trait;
use nightshift_engine::store::{StoreError, TokenStore};
use nightshift_protocol::access::TokenView;
use nightshift_protocol::id::TokenId;
use nightshift_protocol::time::TimestampMs;

use crate::catalog::token;
use crate::store::SqlStore;

#[async_trait]
impl TokenStore for SqlStore {
    async fn list_tokens(&self) -> Result<Vec<TokenView>, StoreError> {
        read!(self, |connection| token::list(connection))
    }

    async fn revoke_token(&self, id: &TokenId, at: TimestampMs) -> Result<(), StoreError> {
        let id = id.clone();
        transaction!(self, |tx, id, at| token::revoke(tx, id, *at))
    }

    async fn find_token(&self, secret_hash: &str) -> Result<Option<TokenView>, StoreError> {
        read!(self, |connection| token::find(connection, secret_hash))
    }

    async fn touch_token(&self, id: &TokenId, at: TimestampMs) -> Result<(), StoreError> {
        let id = id.clone();
        transaction!(self, |tx, id, at| token::touch(tx, id, *at))
    }
}
