//! Server leases.

use async_trait::async_trait;
use nightshift_engine::store::{Pulse, ServerRecord, ServerStore, StoreError};
use nightshift_protocol::id::ServerId;
use nightshift_protocol::time::TimestampMs;

use crate::catalog::server;
use crate::store::SqlStore;

#[async_trait]
impl ServerStore for SqlStore {
    async fn register_server(&self, server: ServerRecord, sole: bool) -> Result<(), StoreError> {
        transaction!(self, |tx, server, sole| server::register(tx, server, *sole))
    }

    async fn pulse(&self, server: &ServerId, at: TimestampMs, expires_at: TimestampMs) -> Result<Pulse, StoreError> {
        let server = server.clone();
        transaction!(self, |tx, server, at, expires_at| server::pulse(tx, server, *at, *expires_at))
    }

    async fn retire_server(&self, server: &ServerId, at: TimestampMs) -> Result<(), StoreError> {
        let server = server.clone();
        transaction!(self, |tx, server, at| server::retire(tx, server, *at))
    }

    async fn reap_servers(&self, at: TimestampMs) -> Result<u64, StoreError> {
        transaction!(self, |tx, at| server::reap(tx, *at))
    }

    async fn list_servers(&self) -> Result<Vec<ServerRecord>, StoreError> {
        read!(self, |connection| server::list(connection))
    }
}
