//! Idempotency keys of requests that create something.

use nightshift_engine::store::StoreError;
use nightshift_protocol::time::TimestampMs;

use crate::connection::Connection;
use crate::failure::Failure;
use crate::json;
use crate::value::values;

/// A client's key with the digest of its request, without NUL characters.
pub(crate) struct Key {
    key: String,
    digest: String,
}

impl Key {
    /// Creates a key. Each noun has its own key space.
    pub(crate) fn new(noun: &str, key: &str, digest: &str) -> Self {
        Self { key: format!("{noun}:{}", json::clean(key)), digest: json::clean(digest).into_owned() }
    }

    /// Returns the answer to the first request with this key, if any. Another request with the same key is a conflict.
    pub(crate) async fn find(&self, connection: &mut Connection) -> Result<Option<String>, Failure> {
        let row = connection
            .fetch_optional("SELECT digest, answer FROM idempotency WHERE key = $1", values![self.key.as_str()])
            .await?;
        match row {
            None => Ok(None),
            Some(row) if row.str("digest")? == self.digest => Ok(Some(row.text("answer")?)),
            Some(_) => Err(StoreError::IdempotencyConflict { key: self.shown().to_owned() }.into()),
        }
    }

    /// Stores the answer of the request. Returns `false` if another request with this key was committed first.
    pub(crate) async fn insert(
        &self,
        connection: &mut Connection,
        answer: &str,
        at: TimestampMs,
    ) -> Result<bool, Failure> {
        let sql = "INSERT INTO idempotency (key, digest, answer, at_ms) VALUES ($1, $2, $3, $4) \
                   ON CONFLICT (key) DO NOTHING";
        let values = values![self.key.as_str(), self.digest.as_str(), answer, at.0];
        Ok(connection.execute(sql, values).await? == 1)
    }

    fn shown(&self) -> &str {
        self.key.split_once(':').map_or(&self.key, |(_, key)| key)
    }
}
