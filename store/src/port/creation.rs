//! Records that are created at most once per idempotency key.

use async_trait::async_trait;
use nightshift_engine::store::{Creation, CreationStore, Once, StoreError};

use crate::catalog::creation;
use crate::store::SqlStore;

#[async_trait]
impl CreationStore for SqlStore {
    async fn create(&self, creation: Creation, once: Option<Once>) -> Result<Option<String>, StoreError> {
        transaction!(self, |tx, creation, once| creation::create(tx, creation, once.as_ref()))
    }
}
