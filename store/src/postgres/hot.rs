//! A connection of the hot path, whose transactions begin with their first statement: `BEGIN` has no answer that anybody
//! waits for, so it is no round trip of its own.

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgRow, Postgres};
use sqlx::{AssertSqlSafe, PgConnection};

const BEGIN: &str = "BEGIN; ";

/// See the module.
pub(crate) struct Hot {
    connection: PoolConnection<Postgres>,
    /// What goes out in front of the next statement.
    unsent: &'static str,
    /// Whether anything was answered since the transaction began.
    was_answered: bool,
    /// Waits for an answer, for tests.
    #[cfg(test)]
    pub(crate) round_trips: u64,
}

impl Hot {
    /// Over a connection of a pool.
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

    /// Whether nothing was answered since the transaction began: a connection that broke may have been broken before, and
    /// nothing was done on it.
    pub(crate) fn is_unanswered(&self) -> bool {
        !self.was_answered
    }

    /// Undoes what was done since then.
    pub(crate) async fn rollback(&mut self) -> Result<(), sqlx::Error> {
        if std::mem::take(&mut self.unsent).is_empty() { self.control("ROLLBACK").await } else { Ok(()) }
    }

    /// A statement without parameters and answer.
    pub(crate) async fn control(&mut self, sql: &str) -> Result<(), sqlx::Error> {
        let sql = AssertSqlSafe(format!("{}{sql}", std::mem::take(&mut self.unsent)));
        let done = sqlx::raw_sql(sql).execute(&mut *self.connection).await;
        self.heard(&done);
        done.map(|_| ())
    }

    /// The rows of a statement without parameters. Texts in it are literals of `literal.rs`.
    pub(crate) async fn fetch_all(&mut self, sql: &str) -> Result<Vec<PgRow>, sqlx::Error> {
        let sql = AssertSqlSafe(format!("{}{sql}", std::mem::take(&mut self.unsent)));
        let rows = sqlx::raw_sql(sql).fetch_all(&mut *self.connection).await;
        self.heard(&rows);
        rows
    }

    /// The connection as everybody else uses it, with nothing left to be sent.
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

    /// Closes it.
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
