//! The only connection that writes.

use crate::connection::Connection;
use crate::failure::Failure;
use crate::sqlite::open::CHECKPOINT;
use crate::sqlite::own::Own;
use crate::writer::{Source, closed};

/// Holds it while it is not used.
pub(crate) struct Sole {
    connection: Option<Connection>,
}

impl Sole {
    /// Over the connection that writes.
    pub(crate) fn new(connection: Own) -> Self {
        Self { connection: Some(Connection::Own(Box::new(connection))) }
    }

    /// Empties the write-ahead log and closes the file.
    pub(crate) fn end(self) -> Result<(), Failure> {
        let Some(Connection::Own(mut connection)) = self.connection else { return Ok(()) };
        connection.execute(CHECKPOINT, &[]).map(|_| ())
    }
}

impl Source for Sole {
    /// Those who were answered run on other threads.
    async fn let_others_run(&mut self) {
        std::thread::yield_now();
    }

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
