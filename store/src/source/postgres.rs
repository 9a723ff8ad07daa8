//! The connection of a task of the hot path, kept between its transactions.

use sqlx::postgres::PgPool;

use crate::connection::Connection;
use crate::failure::Failure;
use crate::postgres::hot::Hot;
use crate::writer::Source;

/// Takes a connection from the pool and keeps it while it is sound.
pub(crate) struct PooledSource {
    pool: PgPool,
    connection: Option<Connection>,
}

impl PooledSource {
    /// Creates a source over a pool that no other task uses.
    pub(crate) fn new(pool: PgPool) -> Self {
        Self { pool, connection: None }
    }
}

impl Source for PooledSource {
    async fn let_others_run(&mut self) {
        tokio::task::yield_now().await;
    }

    async fn take(&mut self) -> Result<Connection, Failure> {
        match self.connection.take() {
            Some(connection) => Ok(connection),
            None => Ok(Connection::Hot(Box::new(Hot::new(self.pool.acquire().await?)))),
        }
    }

    async fn give_back(&mut self, connection: Connection, sound: bool) {
        if sound {
            self.connection = Some(connection);
        } else {
            connection.discard().await;
        }
    }
}
