//! Writes rows of one table with one statement.
//!
//! On SQLite a statement is prepared once and executed per row. It runs on the calling thread, so a row costs no round
//! trip. On Postgres each column is an array, and one statement with a part per table writes all tables of a
//! transaction.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use crate::connection::{Backend, Connection};
use crate::failure::Failure;
use crate::sqlite::writer::Parameter;
use crate::value::Value;

/// A table, with the operation on its rows.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) verb: Verb,
    pub(crate) table: &'static str,
    /// Columns of the rows. The first one is never null.
    pub(crate) columns: &'static [(&'static str, Type)],
}

/// The operation of a [`Target`].
#[derive(Debug)]
pub(crate) enum Verb {
    /// Inserts the rows. `conflict` is the clause for an expected conflict.
    Insert { conflict: &'static str },
    /// Updates the row with the key in the first column. `set` refers to the row as `d`.
    Update { set: &'static str },
    /// Updates the row with the key in the first two columns.
    UpdateOfTwo { set: &'static str },
    /// Deletes rows by the first column.
    Delete,
    /// Deletes rows by the first two columns.
    DeleteOfTwo,
}

/// Type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    I64,
    Text,
    Bytes,
}

impl Type {
    fn of_postgres(self) -> &'static str {
        match self {
            Self::I64 => "bigint[]",
            Self::Text => "text[]",
            Self::Bytes => "bytea[]",
        }
    }
}

/// Values of one column.
#[derive(Debug)]
enum Column {
    I64(Vec<Option<i64>>),
    Text(Vec<Option<String>>),
    Bytes(Vec<Option<Vec<u8>>>),
}

/// Rows of a target.
#[derive(Debug)]
pub(crate) struct Rows {
    target: &'static Target,
    columns: Vec<Column>,
    count: usize,
}

/// A value of a row.
#[derive(Debug)]
pub(crate) enum Cell {
    I64(Option<i64>),
    Text(Option<String>),
    Bytes(Option<Vec<u8>>),
}

macro_rules! cell_from {
    ($($from:ty => |$value:ident| $cell:expr),* $(,)?) => {
        $(impl From<$from> for Cell {
            fn from($value: $from) -> Self {
                $cell
            }
        })*
    };
}
cell_from! {
    i64 => |value| Self::I64(Some(value)),
    Option<i64> => |value| Self::I64(value),
    bool => |value| Self::I64(Some(i64::from(value))),
    String => |value| Self::Text(Some(value)),
    &str => |value| Self::Text(Some(value.to_owned())),
    Option<String> => |value| Self::Text(value),
    Option<Vec<u8>> => |value| Self::Bytes(value),
}

impl Rows {
    /// Creates an empty set of rows.
    pub(crate) fn of(target: &'static Target) -> Self {
        let columns = target.columns.iter().map(|(_, kind)| match kind {
            Type::I64 => Column::I64(Vec::new()),
            Type::Text => Column::Text(Vec::new()),
            Type::Bytes => Column::Bytes(Vec::new()),
        });
        Self { target, columns: columns.collect(), count: 0 }
    }

    /// Returns whether it is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns a borrowed parameter.
    fn parameter(&self, row: usize, column: usize) -> Parameter<'_> {
        match self.columns.get(column) {
            Some(Column::I64(list)) => Parameter::I64(list.get(row).copied().flatten()),
            Some(Column::Text(list)) => Parameter::Text(list.get(row).and_then(Option::as_deref)),
            Some(Column::Bytes(list)) => Parameter::Bytes(list.get(row).and_then(Option::as_deref)),
            None => Parameter::I64(None),
        }
    }

    /// Adds a row, with cells in the order of the target's columns.
    pub(crate) fn push<const N: usize>(&mut self, cells: [Cell; N]) {
        debug_assert_eq!(N, self.columns.len(), "{}", self.target.table);
        for (column, cell) in self.columns.iter_mut().zip(cells) {
            match (column, cell) {
                (Column::I64(list), Cell::I64(value)) => list.push(value),
                (Column::Text(list), Cell::Text(value)) => list.push(value),
                (Column::Bytes(list), Cell::Bytes(value)) => list.push(value),
                (column, cell) => debug_assert!(false, "{}: {cell:?} in {column:?}", self.target.table),
            }
        }
        self.count += 1;
    }
}

/// Adds a row of one or more cells: a short form of [`Rows::push`].
macro_rules! row {
    ($rows:expr; $($cell:expr),* $(,)?) => {
        $rows.push([$($crate::scheduling::table::Cell::from($cell)),*])
    };
}
pub(crate) use row;

/// Writes rows, in this order.
pub(crate) async fn write(connection: &mut Connection, tables: Vec<Rows>) -> Result<(), Failure> {
    let tables: Vec<Rows> = tables.into_iter().filter(|rows| !rows.is_empty()).collect();
    if tables.is_empty() {
        return Ok(());
    }
    match connection.backend() {
        Backend::Sqlite => {
            for rows in tables {
                let size = (rows.count, rows.columns.len());
                connection.execute_rows(&on_sqlite(rows.target), size, |row, column| rows.parameter(row, column))?;
            }
            Ok(())
        }
        Backend::Postgres => {
            let text = on_postgres(&tables);
            let mut parameters = Vec::with_capacity(tables.iter().map(|rows| rows.columns.len()).sum());
            for rows in tables {
                parameters.extend(rows.columns.into_iter().map(|column| match column {
                    Column::I64(list) => Value::OptI64s(list),
                    Column::Text(list) => Value::OptTexts(list),
                    Column::Bytes(list) => Value::OptByteses(list),
                }));
            }
            connection.execute_built(&text, parameters).await.map(|_| ())
        }
    }
}

/// Returns the statement for a row, whose values are its parameters.
fn on_sqlite(target: &'static Target) -> Arc<str> {
    static TEXTS: LazyLock<Mutex<HashMap<usize, Arc<str>>>> = LazyLock::new(Mutex::default);
    let address = std::ptr::from_ref(target).addr();
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    let text = texts.entry(address).or_insert_with(|| for_one_row(target).into());
    Arc::clone(text)
}

fn for_one_row(target: &Target) -> String {
    let table = target.table;
    let names: Vec<&str> = target.columns.iter().map(|(name, _)| *name).collect();
    let key = |index: usize| format!("{} = ?{}", names.get(index).copied().unwrap_or_default(), index + 1);
    match &target.verb {
        Verb::Insert { conflict } => {
            let places: Vec<String> = (1..=names.len()).map(|number| format!("?{number}")).collect();
            format!("INSERT INTO {table} ({}) VALUES ({}) {conflict}", names.join(", "), places.join(", "))
        }
        Verb::Update { set } => format!("UPDATE {table} SET {} WHERE {}", numbered(set, &names), key(0)),
        Verb::UpdateOfTwo { set } => {
            format!("UPDATE {table} SET {} WHERE {} AND {}", numbered(set, &names), key(0), key(1))
        }
        Verb::Delete => format!("DELETE FROM {table} WHERE {}", key(0)),
        Verb::DeleteOfTwo => format!("DELETE FROM {table} WHERE {} AND {}", key(0), key(1)),
    }
}

/// Replaces `d.name` with the numbered parameter of that name.
fn numbered(set: &str, names: &[&str]) -> String {
    let mut longest_first: Vec<(usize, &str)> = names.iter().copied().enumerate().collect();
    longest_first.sort_unstable_by_key(|(_, name)| std::cmp::Reverse(name.len()));
    longest_first
        .into_iter()
        .fold(set.to_owned(), |text, (index, name)| text.replace(&format!("d.{name}"), &format!("?{}", index + 1)))
}

/// Returns one statement for all tables.
fn on_postgres(tables: &[Rows]) -> Arc<str> {
    static TEXTS: LazyLock<Mutex<HashMap<Vec<usize>, Arc<str>>>> = LazyLock::new(Mutex::default);
    let addresses: Vec<usize> = tables.iter().map(|rows| std::ptr::from_ref(rows.target).addr()).collect();
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    let text = texts.entry(addresses).or_insert_with(|| {
        let mut text = String::from("WITH ");
        let mut parameter = 0;
        for (index, rows) in tables.iter().enumerate() {
            let target = rows.target;
            let arrays: Vec<String> = target
                .columns
                .iter()
                .map(|(_, kind)| {
                    parameter += 1;
                    format!("${parameter}::{}", kind.of_postgres())
                })
                .collect();
            let names: Vec<&str> = target.columns.iter().map(|(name, _)| *name).collect();
            let source = format!("unnest({}) AS d ({})", arrays.join(", "), names.join(", "));
            let comma = if index == 0 { "" } else { ", " };
            // Writing to a string cannot fail.
            let _written = write!(text, "{comma}w{index} AS ({})", statement(target, &source));
        }
        text.push_str(" SELECT 1");
        text.into()
    });
    Arc::clone(text)
}

fn statement(target: &Target, source: &str) -> String {
    let table = target.table;
    let names: Vec<&str> = target.columns.iter().map(|(name, _)| *name).collect();
    let key = |index: usize| format!("{table}.{0} = d.{0}", names.get(index).copied().unwrap_or_default());
    match &target.verb {
        Verb::Insert { conflict } => {
            let list = names.join(", ");
            format!("INSERT INTO {table} ({list}) SELECT {list} FROM {source} WHERE true {conflict}")
        }
        Verb::Update { set } => format!("UPDATE {table} SET {set} FROM {source} WHERE {}", key(0)),
        Verb::UpdateOfTwo { set } => format!("UPDATE {table} SET {set} FROM {source} WHERE {} AND {}", key(0), key(1)),
        Verb::Delete => format!("DELETE FROM {table} WHERE {0} IN (SELECT {0} FROM {source})", names.join(", ")),
        Verb::DeleteOfTwo => format!("DELETE FROM {table} WHERE ({0}) IN (SELECT {0} FROM {source})", names.join(", ")),
    }
}
