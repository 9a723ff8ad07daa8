//! What statements give.

use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;
use sqlx::{ColumnIndex, Row as _};

use crate::failure::Failure;

/// A row. Columns are named by their position or their name.
pub(crate) enum Row {
    /// Of SQLite.
    Sqlite(SqliteRow),
    /// Of Postgres.
    Postgres(PgRow),
}

/// A column's position or name.
pub(crate) trait Column: ColumnIndex<SqliteRow> + ColumnIndex<PgRow> {}

impl<C: ColumnIndex<SqliteRow> + ColumnIndex<PgRow>> Column for C {}

macro_rules! getters {
    ($($(#[$doc:meta])* $name:ident -> $type:ty),* $(,)?) => {
        $($(#[$doc])*
        pub(crate) fn $name(&self, column: impl Column) -> Result<$type, Failure> {
            Ok(match self {
                Self::Sqlite(row) => row.try_get(column)?,
                Self::Postgres(row) => row.try_get(column)?,
            })
        })*
    };
}

impl Row {
    getters! {
        /// A number.
        i64 -> i64,
        /// A number or nothing.
        opt_i64 -> Option<i64>,
        /// A text.
        text -> String,
        /// A text or nothing.
        opt_text -> Option<String>,
        /// Bytes.
        bytes -> Vec<u8>,
        /// Bytes or nothing.
        opt_bytes -> Option<Vec<u8>>,
    }

    /// A text that is read where it lies.
    pub(crate) fn str(&self, column: impl Column) -> Result<&str, Failure> {
        Ok(match self {
            Self::Sqlite(row) => row.try_get(column)?,
            Self::Postgres(row) => row.try_get(column)?,
        })
    }

    /// A text or nothing, read where it lies.
    pub(crate) fn opt_str(&self, column: impl Column) -> Result<Option<&str>, Failure> {
        Ok(match self {
            Self::Sqlite(row) => row.try_get(column)?,
            Self::Postgres(row) => row.try_get(column)?,
        })
    }

    /// A truth value: 0 or 1.
    pub(crate) fn flag(&self, column: impl Column) -> Result<bool, Failure> {
        Ok(self.i64(column)? != 0)
    }
}
