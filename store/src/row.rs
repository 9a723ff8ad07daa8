//! What statements give.

use std::sync::Arc;

use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;
use sqlx::{ColumnIndex, Row as _};

use crate::failure::Failure;

/// A row. Columns are named by their position or their name.
pub(crate) enum Row {
    /// Of SQLite, from the connection that writes.
    Own(OwnRow),
    /// Of SQLite, from one that reads.
    Sqlite(SqliteRow),
    /// Of Postgres.
    Postgres(PgRow),
}

/// A row that was copied out of SQLite.
pub(crate) struct OwnRow {
    pub(crate) cells: Vec<Cell>,
    pub(crate) names: Arc<[String]>,
}

/// A value of it.
pub(crate) enum Cell {
    Null,
    I64(i64),
    /// No column of ours has this type.
    Real,
    Text(String),
    Bytes(Vec<u8>),
}

/// A column's position or name.
pub(crate) trait Column: ColumnIndex<SqliteRow> + ColumnIndex<PgRow> {
    /// Where it is among columns of these names.
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

/// What a cell is read as; none when it holds something else.
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

impl OwnRow {
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
                Self::Own(row) => row.get(&column)?,
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
        /// A text that is read where it lies.
        str -> &str,
        /// A text or nothing, read where it lies.
        opt_str -> Option<&str>,
    }

    /// A truth value: 0 or 1.
    pub(crate) fn flag(&self, column: impl Column) -> Result<bool, Failure> {
        Ok(self.i64(column)? != 0)
    }
}
