//! Rows and columns of query results.

use std::sync::Arc;

use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;
use sqlx::{ColumnIndex, Row as _};

use crate::failure::Failure;

/// A row. Columns are addressed by position or name.
pub(crate) enum Row {
    /// A row of the SQLite connection that writes.
    Copied(CopiedRow),
    /// A row of a SQLite connection that reads.
    Sqlite(SqliteRow),
    /// A row of Postgres.
    Postgres(PgRow),
}

/// A row that was copied out of SQLite.
pub(crate) struct CopiedRow {
    pub(crate) cells: Vec<Cell>,
    pub(crate) names: Arc<[String]>,
}

/// A value of an [`CopiedRow`].
pub(crate) enum Cell {
    Null,
    I64(i64),
    /// No column of the schema has this type.
    Real,
    Text(String),
    Bytes(Vec<u8>),
}

/// A column's position or name.
pub(crate) trait Column: ColumnIndex<SqliteRow> + ColumnIndex<PgRow> {
    /// Returns the position among columns of these names.
    fn place(&self, names: &[String]) -> Option<usize>;
}

impl Column for usize {
    fn place(&self, _: &[String]) -> Option<usize> {
        Some(*self)
    }
}

impl Column for &str {
    fn place(&self, names: &[String]) -> Option<usize> {
        names.iter().position(|name| name == self)
    }
}

/// Conversion from a cell. Returns none for another type.
trait FromCell<'c>: Sized {
    fn from_cell(cell: &'c Cell) -> Option<Self>;
}

macro_rules! from_cell {
    ($($type:ty: $variant:ident => |$value:ident| $read:expr),* $(,)?) => {
        $(impl<'c> FromCell<'c> for $type {
            fn from_cell(cell: &'c Cell) -> Option<Self> {
                match cell {
                    Cell::$variant($value) => Some($read),
                    _ => None,
                }
            }
        }

        impl<'c> FromCell<'c> for Option<$type> {
            fn from_cell(cell: &'c Cell) -> Option<Self> {
                match cell {
                    Cell::Null => Some(None),
                    cell => <$type>::from_cell(cell).map(Some),
                }
            }
        })*
    };
}
from_cell! {
    i64: I64 => |value| *value,
    String: Text => |value| value.clone(),
    &'c str: Text => |value| value,
    Vec<u8>: Bytes => |value| value.clone(),
}

impl CopiedRow {
    fn get<'c, T: FromCell<'c>>(&'c self, column: &impl Column) -> Result<T, Failure> {
        let cell = column.place(&self.names).and_then(|place| self.cells.get(place));
        cell.and_then(T::from_cell)
            .ok_or_else(|| Failure::unreadable("a stored row", &"a column is missing or of another type"))
    }
}

macro_rules! getters {
    ($($(#[$doc:meta])* $name:ident -> $type:ty),* $(,)?) => {
        $($(#[$doc])*
        pub(crate) fn $name(&self, column: impl Column) -> Result<$type, Failure> {
            Ok(match self {
                Self::Copied(row) => row.get(&column)?,
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
        /// A number or null.
        opt_i64 -> Option<i64>,
        /// A text.
        text -> String,
        /// A text or null.
        opt_text -> Option<String>,
        /// Bytes.
        bytes -> Vec<u8>,
        /// Bytes or null.
        opt_bytes -> Option<Vec<u8>>,
        /// A borrowed text.
        str -> &str,
        /// A borrowed text or null.
        opt_str -> Option<&str>,
    }

    /// Returns a boolean stored as 0 or 1.
    pub(crate) fn flag(&self, column: impl Column) -> Result<bool, Failure> {
        Ok(self.i64(column)? != 0)
    }
}
