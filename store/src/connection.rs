//! A connection to either database. Only four places distinguish the databases: this file, opening, error messages, and
//! the statements of the hot path.
//!
//! Parameters are `$1`, `$2`, … on both databases. Statements are prepared once per connection and cached.

use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use sea_query::{PostgresQueryBuilder, SelectStatement, SqliteQueryBuilder};
use sea_query_sqlx::SqlxBinder as _;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, Postgres};
use sqlx::query::Query;
use sqlx::sqlite::{Sqlite, SqliteArguments};
use sqlx::{AssertSqlSafe, Executor as _, PgConnection, SqliteConnection};

use crate::failure::Failure;
use crate::postgres::hot::Hot;
use crate::row::Row;
use crate::sqlite::writer::{Parameter, SqliteWriter};
use crate::value::{Value, as_json};

/// A statement: one text for both databases, or two texts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sql {
    /// Text for SQLite.
    pub(crate) sqlite: &'static str,
    /// Text for Postgres.
    pub(crate) postgres: &'static str,
}

impl From<&'static str> for Sql {
    fn from(both: &'static str) -> Self {
        Self { sqlite: both, postgres: both }
    }
}

/// The kind of database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    /// A file.
    Sqlite,
    /// A database server.
    Postgres,
}

/// A dedicated connection, or one of a pool.
pub(crate) enum Connection {
    /// The writer's connection on SQLite.
    SqliteWriter(Box<SqliteWriter>),
    /// A reader's connection on SQLite.
    SqlitePooled(PoolConnection<Sqlite>),
    /// A pooled connection on Postgres.
    Postgres(PoolConnection<Postgres>),
    /// A hot path connection on Postgres.
    Hot(Box<Hot>),
}

/// The borrowed driver connection.
enum Borrowed<'c> {
    SqliteWriter(&'c mut SqliteWriter),
    Sqlite(&'c mut SqliteConnection),
    Postgres(&'c mut PgConnection),
}

impl Connection {
    /// Returns the kind of database.
    pub(crate) fn backend(&self) -> Backend {
        match self {
            Self::SqliteWriter(_) | Self::SqlitePooled(_) => Backend::Sqlite,
            Self::Postgres(_) | Self::Hot(_) => Backend::Postgres,
        }
    }

    async fn borrowed(&mut self) -> Result<Borrowed<'_>, Failure> {
        Ok(match self {
            Self::SqliteWriter(connection) => Borrowed::SqliteWriter(connection),
            Self::SqlitePooled(connection) => Borrowed::Sqlite(connection),
            Self::Postgres(connection) => Borrowed::Postgres(connection),
            Self::Hot(connection) => Borrowed::Postgres(connection.caught_up().await?),
        })
    }

    /// Executes a statement. Returns the number of changed rows.
    pub(crate) async fn execute(&mut self, sql: impl Into<Sql>, values: Vec<Value>) -> Result<u64, Failure> {
        let sql = sql.into();
        Ok(match self.borrowed().await? {
            Borrowed::SqliteWriter(connection) => connection.execute(sql.sqlite, &values)?,
            Borrowed::Sqlite(connection) => {
                sqlite(sqlx::query(sql.sqlite), values).execute(connection).await?.rows_affected()
            }
            Borrowed::Postgres(connection) => {
                postgres(sqlx::query(sql.postgres), values).execute(connection).await?.rows_affected()
            }
        })
    }

    /// Returns all rows.
    pub(crate) async fn fetch_all(&mut self, sql: impl Into<Sql>, values: Vec<Value>) -> Result<Vec<Row>, Failure> {
        let sql = sql.into();
        Ok(match self.borrowed().await? {
            Borrowed::SqliteWriter(connection) => connection.fetch_named(sql.sqlite, &values, usize::MAX)?,
            Borrowed::Sqlite(connection) => wrap(sqlite(sqlx::query(sql.sqlite), values).fetch_all(connection).await?),
            Borrowed::Postgres(connection) => {
                wrap_postgres(postgres(sqlx::query(sql.postgres), values).fetch_all(connection).await?)
            }
        })
    }

    /// Streams all rows, with a few in memory at a time, except on the connection that writes.
    pub(crate) async fn stream(
        &mut self,
        sql: &'static str,
        values: Vec<Value>,
    ) -> Result<BoxStream<'_, Result<Row, Failure>>, Failure> {
        Ok(match self.borrowed().await? {
            Borrowed::SqliteWriter(connection) => {
                stream::iter(connection.fetch_named(sql, &values, usize::MAX)?.into_iter().map(Ok)).boxed()
            }
            Borrowed::Sqlite(connection) => {
                sqlite(sqlx::query(sql), values).fetch(connection).map(|row| Ok(Row::Sqlite(row?))).boxed()
            }
            Borrowed::Postgres(connection) => {
                postgres(sqlx::query(sql), values).fetch(connection).map(|row| Ok(Row::Postgres(row?))).boxed()
            }
        })
    }

    /// Returns the first row, if any.
    pub(crate) async fn fetch_optional(
        &mut self,
        sql: impl Into<Sql>,
        values: Vec<Value>,
    ) -> Result<Option<Row>, Failure> {
        let sql = sql.into();
        Ok(match self.borrowed().await? {
            Borrowed::SqliteWriter(connection) => connection.fetch_named(sql.sqlite, &values, 1)?.pop(),
            Borrowed::Sqlite(connection) => {
                sqlite(sqlx::query(sql.sqlite), values).fetch_optional(connection).await?.map(Row::Sqlite)
            }
            Borrowed::Postgres(connection) => {
                postgres(sqlx::query(sql.postgres), values).fetch_optional(connection).await?.map(Row::Postgres)
            }
        })
    }

    /// Returns the only row.
    pub(crate) async fn fetch_one(&mut self, sql: impl Into<Sql>, values: Vec<Value>) -> Result<Row, Failure> {
        self.fetch_optional(sql, values).await?.ok_or_else(|| Failure::Database(sqlx::Error::RowNotFound))
    }

    /// Like [`Self::execute`], for a generated text that is used repeatedly: it stays prepared. It must contain only
    /// our own literals.
    pub(crate) async fn execute_built(&mut self, sql: &Arc<str>, values: Vec<Value>) -> Result<u64, Failure> {
        let safe = AssertSqlSafe(Arc::clone(sql));
        Ok(match self.borrowed().await? {
            Borrowed::SqliteWriter(connection) => connection.execute(sql, &values)?,
            Borrowed::Sqlite(connection) => {
                sqlite(sqlx::query(safe), values).execute(connection).await?.rows_affected()
            }
            Borrowed::Postgres(connection) => {
                postgres(sqlx::query(safe), values).execute(connection).await?.rows_affected()
            }
        })
    }

    /// Like [`Self::fetch_all`], for a generated text; see [`Self::execute_built`].
    pub(crate) async fn fetch_built(&mut self, sql: &Arc<str>, values: Vec<Value>) -> Result<Vec<Row>, Failure> {
        let safe = AssertSqlSafe(Arc::clone(sql));
        Ok(match self.borrowed().await? {
            Borrowed::SqliteWriter(connection) => connection.fetch(sql, &values, usize::MAX)?,
            Borrowed::Sqlite(connection) => wrap(sqlite(sqlx::query(safe), values).fetch_all(connection).await?),
            Borrowed::Postgres(connection) => {
                wrap_postgres(postgres(sqlx::query(safe), values).fetch_all(connection).await?)
            }
        })
    }

    /// Executes a statement of SQLite once per row of parameters, which [`SqliteWriter`] binds without copying.
    pub(crate) fn execute_rows<'r>(
        &mut self,
        sql: &str,
        (count, width): (usize, usize),
        parameter: impl Fn(usize, usize) -> Parameter<'r>,
    ) -> Result<(), Failure> {
        match self {
            Self::SqliteWriter(connection) => connection.execute_rows(sql, count, width, parameter),
            Self::SqlitePooled(_) | Self::Postgres(_) | Self::Hot(_) => {
                Err(Failure::unreadable("a table", &"it was to be written by a connection that does not"))
            }
        }
    }

    /// Returns the rows of a Postgres statement without parameters, sent together with pending statements. Its texts
    /// are literals of `postgres/literal.rs`.
    pub(crate) async fn fetch_at_once(&mut self, sql: &str) -> Result<Vec<Row>, Failure> {
        match self {
            Self::Hot(connection) => Ok(wrap_postgres(connection.fetch_all(sql).await?)),
            Self::SqliteWriter(_) | Self::SqlitePooled(_) | Self::Postgres(_) => Err(Failure::unreadable(
                "the rows of a flush",
                &"they were asked of a connection that is not the hot path's",
            )),
        }
    }

    /// Returns the rows of a sea-query statement for both databases, for example with the filters of a list. For
    /// connections that read.
    pub(crate) async fn fetch_query(&mut self, statement: &SelectStatement) -> Result<Vec<Row>, Failure> {
        Ok(match self.borrowed().await? {
            Borrowed::SqliteWriter(_) => {
                return Err(Failure::unreadable("a list", &"it was asked of the connection that writes"));
            }
            Borrowed::Sqlite(connection) => {
                // Built by sea-query: values are bound, and names are our own literals.
                let (sql, values) = statement.build_sqlx(SqliteQueryBuilder);
                wrap(sqlx::query_with(AssertSqlSafe(sql), values).fetch_all(connection).await?)
            }
            Borrowed::Postgres(connection) => {
                let (sql, values) = statement.build_sqlx(PostgresQueryBuilder);
                wrap_postgres(sqlx::query_with(AssertSqlSafe(sql), values).fetch_all(connection).await?)
            }
        })
    }

    /// Begins a transaction. On SQLite it is a write transaction from the start.
    pub(crate) async fn begin(&mut self) -> Result<(), Failure> {
        match self {
            Self::Hot(connection) => {
                connection.begin();
                Ok(())
            }
            _ => self.control(Sql { sqlite: "BEGIN IMMEDIATE", postgres: "BEGIN" }).await,
        }
    }

    /// Returns whether the database has not answered yet in this transaction.
    pub(crate) fn is_unanswered(&self) -> bool {
        matches!(self, Self::Hot(connection) if connection.is_unanswered())
    }

    /// Commits the transaction.
    pub(crate) async fn commit(&mut self) -> Result<(), Failure> {
        self.control("COMMIT").await
    }

    /// Rolls the transaction back.
    pub(crate) async fn rollback(&mut self) -> Result<(), Failure> {
        match self {
            Self::Hot(connection) => Ok(connection.rollback().await?),
            _ => self.control("ROLLBACK").await,
        }
    }

    /// Begins a read-only transaction on a consistent snapshot.
    pub(crate) async fn begin_snapshot(&mut self) -> Result<(), Failure> {
        self.control(Sql { sqlite: "BEGIN", postgres: "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" }).await
    }

    /// Closes the connection, and with it any open transaction.
    pub(crate) async fn discard(self) {
        // The connection was unsound, so an error while closing does not matter.
        let _ended = match self {
            Self::SqliteWriter(_) => Ok(()),
            Self::SqlitePooled(connection) => connection.close().await,
            Self::Postgres(connection) => connection.close().await,
            Self::Hot(connection) => connection.close().await,
        };
    }

    /// Returns whether the connection works and has no open transaction.
    pub(crate) async fn is_idle(&mut self) -> bool {
        // A connection that sends `BEGIN` with its first statement needs an answer as proof.
        self.begin().await.is_ok() && self.borrowed().await.is_ok() && self.rollback().await.is_ok()
    }

    /// Creates a savepoint for [`Self::undo`].
    pub(crate) async fn mark(&mut self) -> Result<(), Failure> {
        self.control("SAVEPOINT operation").await
    }

    /// Rolls back to the savepoint of [`Self::mark`] and releases it.
    pub(crate) async fn undo(&mut self) -> Result<(), Failure> {
        self.control("ROLLBACK TO operation").await?;
        self.keep().await
    }

    /// Keeps the changes since [`Self::mark`] and releases the savepoint.
    pub(crate) async fn keep(&mut self) -> Result<(), Failure> {
        self.control("RELEASE operation").await
    }

    /// Executes a statement without parameters and result, in one round trip on Postgres.
    async fn control(&mut self, sql: impl Into<Sql>) -> Result<(), Failure> {
        let sql = sql.into();
        if let Self::Hot(connection) = self {
            return Ok(connection.control(sql.postgres).await?);
        }
        match self.borrowed().await? {
            Borrowed::SqliteWriter(connection) => connection.execute(sql.sqlite, &[]).map(|_| ())?,
            Borrowed::Sqlite(connection) => sqlx::query(sql.sqlite).execute(connection).await.map(|_| ())?,
            Borrowed::Postgres(connection) => connection.execute(sql.postgres).await.map(|_| ())?,
        }
        Ok(())
    }
}

fn wrap(rows: Vec<sqlx::sqlite::SqliteRow>) -> Vec<Row> {
    rows.into_iter().map(Row::Sqlite).collect()
}

fn wrap_postgres(rows: Vec<sqlx::postgres::PgRow>) -> Vec<Row> {
    rows.into_iter().map(Row::Postgres).collect()
}

fn sqlite(mut query: Query<'_, Sqlite, SqliteArguments>, values: Vec<Value>) -> Query<'_, Sqlite, SqliteArguments> {
    for value in values {
        query = match value {
            Value::I64(value) => query.bind(value),
            Value::OptI64(value) => query.bind(value),
            Value::Text(value) => query.bind(value),
            Value::OptText(value) => query.bind(value),
            Value::Bytes(value) => query.bind(value),
            Value::OptBytes(value) => query.bind(value),
            Value::I64s(list) => query.bind(as_json(&list)),
            Value::OptI64s(list) => query.bind(as_json(&list)),
            Value::Texts(list) => query.bind(as_json(&list)),
            Value::OptTexts(list) => query.bind(as_json(&list)),
            Value::OptByteses(list) => query.bind(as_json(&list)),
        };
    }
    query
}

fn postgres(mut query: Query<'_, Postgres, PgArguments>, values: Vec<Value>) -> Query<'_, Postgres, PgArguments> {
    for value in values {
        query = match value {
            Value::I64(value) => query.bind(value),
            Value::OptI64(value) => query.bind(value),
            Value::Text(value) => query.bind(value),
            Value::OptText(value) => query.bind(value),
            Value::Bytes(value) => query.bind(value),
            Value::OptBytes(value) => query.bind(value),
            Value::I64s(list) => query.bind(list),
            Value::OptI64s(list) => query.bind(list),
            Value::Texts(list) => query.bind(list),
            Value::OptTexts(list) => query.bind(list),
            Value::OptByteses(list) => query.bind(list),
        };
    }
    query
}
