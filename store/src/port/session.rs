//! Browser sessions.

use async_trait::async_trait;
use nightshift_engine::store::{SessionLimits, SessionRecord, SessionStore, StoreError};
use nightshift_protocol::access::TokenView;
use nightshift_protocol::id::TokenId;
use nightshift_protocol::time::TimestampMs;

use crate::catalog::{session, token};
use crate::store::SqlStore;

#[async_trait]
impl SessionStore for SqlStore {
    async fn create_session(&self, session: SessionRecord, limits: SessionLimits) -> Result<(), StoreError> {
        transaction!(self, |tx, session, limits| session::create(tx, session, *limits))
    }

    async fn find_session(&self, secret_hash: &str) -> Result<Option<SessionRecord>, StoreError> {
        read!(self, |connection| session::find(connection, secret_hash))
    }

    async fn end_session(&self, secret_hash: &str) -> Result<bool, StoreError> {
        let secret_hash = secret_hash.to_owned();
        transaction!(self, |tx, secret_hash| session::end(tx, secret_hash))
    }

    async fn list_sessions(&self, at: TimestampMs, limit: u32) -> Result<Vec<SessionRecord>, StoreError> {
        read!(self, |connection| session::list(connection, at, limit))
    }

    async fn end_session_named(&self, beginning: &str) -> Result<bool, StoreError> {
        let beginning = beginning.to_owned();
        transaction!(self, |tx, beginning| session::end_named(tx, beginning))
    }

    async fn token_of_id(&self, id: &TokenId) -> Result<Option<TokenView>, StoreError> {
        read!(self, |connection| token::of_id(connection, id))
    }
}
