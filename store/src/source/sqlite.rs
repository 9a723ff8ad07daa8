//! The only connection that writes.

use crate::connection::Connection;
use crate::failure::Failure;
use crate::sqlite::open::CHECKPOINT;
use crate::sqlite::writer::SqliteWriter;
use crate::writer::{Source, closed};

/// Holds the connection while it is idle.
pub(crate) struct SingleSource {
    connection: Option<Connection>,
}

impl SingleSource {
    /// Wraps the connection that writes.
    pub(crate) fn new(connection: SqliteWriter) -> Self {
        Self { connection: Some(Connection::SqliteWriter(Box::new(connection))) }
    }

    /// Truncates the write-ahead log and closes the file.
    pub(crate) fn end(self) -> Result<(), Failure> {
        let Some(Connection::SqliteWriter(mut connection)) = self.connection else { return Ok(()) };
        connection.execute(CHECKPOINT, &[]).map(|_| ())
    }
}

impl Source for SingleSource {
    /// Callers that got an answer run on other threads.
    async fn let_others_run(&mut self) {
        std::thread::yield_now();
    }

    async fn take(&mut self) -> Result<Connection, Failure> {
        self.connection.take().ok_or_else(|| Failure::Answer(closed()))
    }

    async fn give_back(&mut self, connection: Connection, sound: bool) {
        let mut connection = connection;
        if !sound {
            // There is no other connection. If this rollback fails, the next transaction reports why it cannot begin.
            let _nothing_left = connection.rollback().await;
        }
        self.connection = Some(connection);
    }
}
