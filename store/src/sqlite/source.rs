//! The only connection that writes.

use crate::connection::Connection;
use crate::failure::Failure;
use crate::writer::{Source, closed};

/// Holds it while it is not used.
pub(crate) struct Sole {
    connection: Option<Connection>,
}

impl Sole {
    /// Over the connection that writes.
    pub(crate) fn new(connection: sqlx::SqliteConnection) -> Self {
        Self { connection: Some(Connection::Sqlite(Box::new(connection))) }
    }

    /// Empties the write-ahead log and closes the file.
    pub(crate) async fn end(self) -> Result<(), Failure> {
        use sqlx::Connection as _;
        let Some(Connection::Sqlite(mut connection)) = self.connection else { return Ok(()) };
        let checkpointed = super::open::checkpoint(&mut connection).await;
        connection.close().await?;
        checkpointed
    }
}

impl Source for Sole {
    async fn take(&mut self) -> Result<Connection, Failure> {
        self.connection.take().ok_or_else(|| Failure::Answer(closed()))
    }

    async fn give_back(&mut self, connection: Connection, sound: bool) {
        let mut connection = connection;
        if !sound {
            // There is no other one: what is left of the transaction is undone, or the next one says why it cannot begin.
            let _nothing_left = connection.rollback().await;
        }
        self.connection = Some(connection);
    }
}
