//! The database as a whole.

use async_trait::async_trait;
use futures::stream::BoxStream;
use nightshift_engine::store::{Database, Notice, StoreError, StoreGauges};
use nightshift_protocol::time::TimestampMs;

use crate::catalog::{gauge, server};
use crate::store::{Side, SqlStore};

#[async_trait]
impl Database for SqlStore {
    async fn gauges(&self) -> Result<StoreGauges, StoreError> {
        read!(self, |connection| gauge::gauges(connection))
    }

    async fn database_now(&self) -> Result<Option<TimestampMs>, StoreError> {
        match self.side {
            Side::Sqlite { .. } => Ok(None),
            Side::Postgres { .. } => read!(self, |connection| server::database_now(connection)).map(Some),
        }
    }

    fn notices(&self) -> BoxStream<'static, Notice> {
        self.around.notices.stream()
    }

    fn kind(&self) -> &'static str {
        match self.side {
            Side::Sqlite { .. } => "sqlite",
            Side::Postgres { .. } => "postgres",
        }
    }
}
