//! A connection of the hot path. It sends `BEGIN` together with the first statement, which saves a round trip.

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgRow, Postgres};
use sqlx::{AssertSqlSafe, PgConnection};

const BEGIN: &str = "BEGIN; ";

/// The connection. See the module.
pub(crate) struct Hot {
    connection: PoolConnection<Postgres>,
    /// Pending statements that are sent before the next one.
    unsent: &'static str,
    /// Whether the server has answered since the transaction began.
    was_answered: bool,
    /// Number of round trips, for tests.
    #[cfg(test)]
    pub(crate) round_trips: u64,
}

impl Hot {
    /// Wraps a connection of a pool.
    pub(crate) fn new(connection: PoolConnection<Postgres>) -> Self {
        Self {
            connection,
            unsent: "",
            was_answered: false,
            #[cfg(test)]
            round_trips: 0,
        }
    }

    /// Begins a transaction.
    pub(crate) fn begin(&mut self) {
        (self.unsent, self.was_answered) = (BEGIN, false);
    }

    /// Returns whether the server has not answered since the transaction began.
    ///
    /// A connection that fails then may have been broken before, and nothing was done on it.
    pub(crate) fn is_unanswered(&self) -> bool {
        !self.was_answered
    }

    /// Rolls the transaction back.
    pub(crate) async fn rollback(&mut self) -> Result<(), sqlx::Error> {
        if std::mem::take(&mut self.unsent).is_empty() { self.control("ROLLBACK").await } else { Ok(()) }
    }

    /// Executes a statement without parameters and result.
    pub(crate) async fn control(&mut self, sql: &str) -> Result<(), sqlx::Error> {
        let sql = AssertSqlSafe(format!("{}{sql}", std::mem::take(&mut self.unsent)));
        let done = sqlx::raw_sql(sql).execute(&mut *self.connection).await;
        self.heard(&done);
        done.map(|_| ())
    }

    /// Returns the rows of a statement without parameters. Its texts are literals of `literal.rs`.
    pub(crate) async fn fetch_all(&mut self, sql: &str) -> Result<Vec<PgRow>, sqlx::Error> {
        let sql = AssertSqlSafe(format!("{}{sql}", std::mem::take(&mut self.unsent)));
        let rows = sqlx::raw_sql(sql).fetch_all(&mut *self.connection).await;
        self.heard(&rows);
        rows
    }

    /// Sends pending statements and returns the plain connection.
    pub(crate) async fn caught_up(&mut self) -> Result<&mut PgConnection, sqlx::Error> {
        if !self.unsent.is_empty() {
            self.control("").await?;
        }
        #[cfg(test)]
        {
            self.round_trips += 1;
        }
        Ok(&mut self.connection)
    }

    /// Closes the connection.
    pub(crate) async fn close(self) -> Result<(), sqlx::Error> {
        self.connection.close().await
    }

    fn heard<T>(&mut self, answer: &Result<T, sqlx::Error>) {
        self.was_answered |= answer.is_ok();
        #[cfg(test)]
        {
            self.round_trips += 1;
        }
    }
}
