//! A connection to either database. The match on the backend exists here, in opening, in telling failures, and in the
//! statements of the hot path; nowhere else.
//!
//! Parameters are written `$1`, `$2`, … on both. Statements are prepared once per connection and kept.

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
use crate::sqlite::own::{Own, Parameter};
use crate::value::Value;

/// A statement: one text where it runs on both databases, else two.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sql {
    /// On SQLite.
    pub(crate) sqlite: &'static str,
    /// On Postgres.
    pub(crate) postgres: &'static str,
}

impl From<&'static str> for Sql {
    fn from(both: &'static str) -> Self {
        Self { sqlite: both, postgres: both }
    }
}

/// Which database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    /// One file.
    Sqlite,
    /// A server.
    Postgres,
}

/// A connection of its own, or one of a pool.
pub(crate) enum Connection {
    /// The writer's of SQLite.
    Own(Box<Own>),
    /// A reader's.
    SqlitePooled(PoolConnection<Sqlite>),
    /// Of a pool.
    Postgres(PoolConnection<Postgres>),
    /// The hot path's of Postgres.
    Hot(Box<Hot>),
}

/// The connection of its database, borrowed.
enum Borrowed<'c> {
    Own(&'c mut Own),
    Sqlite(&'c mut SqliteConnection),
    Postgres(&'c mut PgConnection),
}

impl Connection {
    /// Which database it leads to.
    pub(crate) fn backend(&self) -> Backend {
        match self {
            Self::Own(_) | Self::SqlitePooled(_) => Backend::Sqlite,
            Self::Postgres(_) | Self::Hot(_) => Backend::Postgres,
        }
    }

    async fn borrowed(&mut self) -> Result<Borrowed<'_>, Failure> {
        Ok(match self {
            Self::Own(connection) => Borrowed::Own(connection),
            Self::SqlitePooled(connection) => Borrowed::Sqlite(connection),
            Self::Postgres(connection) => Borrowed::Postgres(connection),
            Self::Hot(connection) => Borrowed::Postgres(connection.caught_up().await?),
        })
    }

    /// Carries out a statement; how many rows it changed.
    pub(crate) async fn execute(&mut self, sql: impl Into<Sql>, values: Vec<Value>) -> Result<u64, Failure> {
        let sql = sql.into();
        Ok(match self.borrowed().await? {
            Borrowed::Own(connection) => connection.execute(sql.sqlite, &values)?,
            Borrowed::Sqlite(connection) => {
                sqlite(sqlx::query(sql.sqlite), values).execute(connection).await?.rows_affected()
            }
            Borrowed::Postgres(connection) => {
                postgres(sqlx::query(sql.postgres), values).execute(connection).await?.rows_affected()
            }
        })
    }

    /// All rows.
    pub(crate) async fn fetch_all(&mut self, sql: impl Into<Sql>, values: Vec<Value>) -> Result<Vec<Row>, Failure> {
        let sql = sql.into();
        Ok(match self.borrowed().await? {
            Borrowed::Own(connection) => connection.fetch_named(sql.sqlite, &values, usize::MAX)?,
            Borrowed::Sqlite(connection) => wrap(sqlite(sqlx::query(sql.sqlite), values).fetch_all(connection).await?),
            Borrowed::Postgres(connection) => {
                wrap_postgres(postgres(sqlx::query(sql.postgres), values).fetch_all(connection).await?)
            }
        })
    }

    /// All rows, one after the other: no more than a few are in memory, except on the connection that writes.
    pub(crate) async fn stream(
        &mut self,
        sql: &'static str,
        values: Vec<Value>,
    ) -> Result<BoxStream<'_, Result<Row, Failure>>, Failure> {
        Ok(match self.borrowed().await? {
            Borrowed::Own(connection) => {
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

    /// The first row, if any.
    pub(crate) async fn fetch_optional(
        &mut self,
        sql: impl Into<Sql>,
        values: Vec<Value>,
    ) -> Result<Option<Row>, Failure> {
        let sql = sql.into();
        Ok(match self.borrowed().await? {
            Borrowed::Own(connection) => connection.fetch_named(sql.sqlite, &values, 1)?.pop(),
            Borrowed::Sqlite(connection) => {
                sqlite(sqlx::query(sql.sqlite), values).fetch_optional(connection).await?.map(Row::Sqlite)
            }
            Borrowed::Postgres(connection) => {
                postgres(sqlx::query(sql.postgres), values).fetch_optional(connection).await?.map(Row::Postgres)
            }
        })
    }

    /// The only row.
    pub(crate) async fn fetch_one(&mut self, sql: impl Into<Sql>, values: Vec<Value>) -> Result<Row, Failure> {
        self.fetch_optional(sql, values).await?.ok_or_else(|| Failure::Database(sqlx::Error::RowNotFound))
    }

    /// As [`Self::execute`], for a text that was built for this backend and is used again and again: it is kept
    /// prepared. Only literals of ours may be in it.
    pub(crate) async fn execute_built(&mut self, sql: &Arc<str>, values: Vec<Value>) -> Result<u64, Failure> {
        let safe = AssertSqlSafe(Arc::clone(sql));
        Ok(match self.borrowed().await? {
            Borrowed::Own(connection) => connection.execute(sql, &values)?,
            Borrowed::Sqlite(connection) => {
                sqlite(sqlx::query(safe), values).execute(connection).await?.rows_affected()
            }
            Borrowed::Postgres(connection) => {
                postgres(sqlx::query(safe), values).execute(connection).await?.rows_affected()
            }
        })
    }

    /// As [`Self::fetch_all`], for a text that was built for this backend; see [`Self::execute_built`].
    pub(crate) async fn fetch_built(&mut self, sql: &Arc<str>, values: Vec<Value>) -> Result<Vec<Row>, Failure> {
        let safe = AssertSqlSafe(Arc::clone(sql));
        Ok(match self.borrowed().await? {
            Borrowed::Own(connection) => connection.fetch(sql, &values, usize::MAX)?,
            Borrowed::Sqlite(connection) => wrap(sqlite(sqlx::query(safe), values).fetch_all(connection).await?),
            Borrowed::Postgres(connection) => {
                wrap_postgres(postgres(sqlx::query(safe), values).fetch_all(connection).await?)
            }
        })
    }

    /// Carries a statement of SQLite out once for each row of parameters, which [`Own`] binds where they lie.
    pub(crate) fn execute_rows<'r>(
        &mut self,
        sql: &str,
        (count, width): (usize, usize),
        parameter: impl Fn(usize, usize) -> Parameter<'r>,
    ) -> Result<(), Failure> {
        match self {
            Self::Own(connection) => connection.execute_rows(sql, count, width, parameter),
            Self::SqlitePooled(_) | Self::Postgres(_) | Self::Hot(_) => {
                Err(Failure::unreadable("a table", &"it was to be written by a connection that does not"))
            }
        }
    }

    /// The rows of a statement of Postgres without parameters, sent together with what is to go out before it. Texts in
    /// it are literals of `postgres/literal.rs`.
    pub(crate) async fn fetch_at_once(&mut self, sql: &str) -> Result<Vec<Row>, Failure> {
        match self {
            Self::Hot(connection) => Ok(wrap_postgres(connection.fetch_all(sql).await?)),
            Self::Own(_) | Self::SqlitePooled(_) | Self::Postgres(_) => Err(Failure::unreadable(
                "the rows of a flush",
                &"they were asked of a connection that is not the hot path's",
            )),
        }
    }

    /// The rows of a statement that was built for both databases, for example from the filters of a list; for
    /// connections that read.
    pub(crate) async fn fetch_query(&mut self, statement: &SelectStatement) -> Result<Vec<Row>, Failure> {
        Ok(match self.borrowed().await? {
            Borrowed::Own(_) => {
                return Err(Failure::unreadable("a list", &"it was asked of the connection that writes"));
            }
            Borrowed::Sqlite(connection) => {
                // Built by sea-query: values are bound, names are literals of ours.
                let (sql, values) = statement.build_sqlx(SqliteQueryBuilder);
                wrap(sqlx::query_with(AssertSqlSafe(sql), values).fetch_all(connection).await?)
            }
            Borrowed::Postgres(connection) => {
                let (sql, values) = statement.build_sqlx(PostgresQueryBuilder);
                wrap_postgres(sqlx::query_with(AssertSqlSafe(sql), values).fetch_all(connection).await?)
            }
        })
    }

    /// Begins a transaction; on SQLite it is the one that writes from its first moment.
    pub(crate) async fn begin(&mut self) -> Result<(), Failure> {
        match self {
            Self::Hot(connection) => {
                connection.begin();
                Ok(())
            }
            _ => self.control(Sql { sqlite: "BEGIN IMMEDIATE", postgres: "BEGIN" }).await,
        }
    }

    /// Whether the transaction was begun without a word from the database so far.
    pub(crate) fn is_unanswered(&self) -> bool {
        matches!(self, Self::Hot(connection) if connection.is_unanswered())
    }

    /// Commits it.
    pub(crate) async fn commit(&mut self) -> Result<(), Failure> {
        self.control("COMMIT").await
    }

    /// Undoes it.
    pub(crate) async fn rollback(&mut self) -> Result<(), Failure> {
        match self {
            Self::Hot(connection) => Ok(connection.rollback().await?),
            _ => self.control("ROLLBACK").await,
        }
    }

    /// Begins a transaction that sees one moment of the database and changes nothing.
    pub(crate) async fn begin_snapshot(&mut self) -> Result<(), Failure> {
        self.control(Sql { sqlite: "BEGIN", postgres: "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" }).await
    }

    /// Closes it: what may be open on it ends with it.
    pub(crate) async fn discard(self) {
        // It was unsound before: how its end went does not matter.
        let _ended = match self {
            Self::Own(_) => Ok(()),
            Self::SqlitePooled(connection) => connection.close().await,
            Self::Postgres(connection) => connection.close().await,
            Self::Hot(connection) => connection.close().await,
        };
    }

    /// Whether the connection works and no transaction is open on it.
    pub(crate) async fn is_idle(&mut self) -> bool {
        // What is begun is no proof yet on a connection that sends it with the first statement.
        self.begin().await.is_ok() && self.borrowed().await.is_ok() && self.rollback().await.is_ok()
    }

    /// Marks a place to which [`Self::undo`] goes back.
    pub(crate) async fn mark(&mut self) -> Result<(), Failure> {
        self.control("SAVEPOINT operation").await
    }

    /// Undoes what was done since [`Self::mark`] and forgets the mark.
    pub(crate) async fn undo(&mut self) -> Result<(), Failure> {
        self.control("ROLLBACK TO operation").await?;
        self.keep().await
    }

    /// Keeps what was done since [`Self::mark`] and forgets the mark.
    pub(crate) async fn keep(&mut self) -> Result<(), Failure> {
        self.control("RELEASE operation").await
    }

    /// A statement without parameters and answer; on Postgres in one round trip.
    async fn control(&mut self, sql: impl Into<Sql>) -> Result<(), Failure> {
        let sql = sql.into();
        if let Self::Hot(connection) = self {
            return Ok(connection.control(sql.postgres).await?);
        }
        match self.borrowed().await? {
            Borrowed::Own(connection) => connection.execute(sql.sqlite, &[]).map(|_| ())?,
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

/// Lists of numbers and texts always have a JSON form; were there none, the statement would find nothing.
pub(crate) fn as_json<T: serde::Serialize>(list: &[T]) -> String {
    serde_json::to_string(list).unwrap_or_else(|_| "[]".to_owned())
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
