//! The connection that writes. Its statements run on the calling thread, because the writer has a thread of its own.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use rusqlite::{OpenFlags, Statement};

use crate::failure::Failure;
use crate::row::{Cell, CopiedRow, Row};
use crate::value::{Value, as_json};

/// Number of cached prepared statements.
const STATEMENT_CACHE: usize = 512;

/// The connection. See the module.
pub(crate) struct SqliteWriter {
    connection: rusqlite::Connection,
    /// Names of columns, by the address of the statement's text.
    names: HashMap<(usize, usize), Arc<[String]>>,
}

impl SqliteWriter {
    /// Opens an existing database. The settings are statements.
    pub(crate) fn open(database: &Path, settings: &str, busy_timeout: Duration) -> Result<Self, Failure> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = rusqlite::Connection::open_with_flags(database, flags)?;
        connection.busy_timeout(busy_timeout)?;
        connection.execute_batch(settings)?;
        connection.set_prepared_statement_cache_capacity(STATEMENT_CACHE);
        Ok(Self { connection, names: HashMap::new() })
    }

    /// Executes a statement. Returns the number of changed rows.
    pub(crate) fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, Failure> {
        let mut statement = self.connection.prepare_cached(sql)?;
        bind(&mut statement, values)?;
        let mut rows = statement.raw_query();
        while rows.next()?.is_some() {}
        drop(rows);
        Ok(if statement.readonly() { 0 } else { self.connection.changes() })
    }

    /// Returns at most `most` rows of a statement, without the names of their columns.
    pub(crate) fn fetch(&mut self, sql: &str, values: &[Value], most: usize) -> Result<Vec<Row>, Failure> {
        self.rows(sql, values, most, &Arc::default())
    }

    /// Like [`Self::fetch`], with the names.
    pub(crate) fn fetch_named(
        &mut self,
        sql: &'static str,
        values: &[Value],
        most: usize,
    ) -> Result<Vec<Row>, Failure> {
        let place = (sql.as_ptr().addr(), sql.len());
        let names = if let Some(names) = self.names.get(&place) {
            Arc::clone(names)
        } else {
            let statement = self.connection.prepare_cached(sql)?;
            let names: Arc<[String]> = statement.column_names().into_iter().map(str::to_owned).collect();
            self.names.insert(place, Arc::clone(&names));
            names
        };
        self.rows(sql, values, most, &names)
    }

    fn rows(&mut self, sql: &str, values: &[Value], most: usize, names: &Arc<[String]>) -> Result<Vec<Row>, Failure> {
        let mut statement = self.connection.prepare_cached(sql)?;
        bind(&mut statement, values)?;
        let width = statement.column_count();
        let mut rows = statement.raw_query();
        let mut found = Vec::new();
        while found.len() < most
            && let Some(row) = rows.next()?
        {
            let mut cells = Vec::with_capacity(width);
            for place in 0..width {
                cells.push(cell(row.get_ref(place)?)?);
            }
            found.push(Row::Copied(CopiedRow { cells, names: Arc::clone(names) }));
        }
        Ok(found)
    }

    /// Executes a statement once per row of parameters.
    pub(crate) fn execute_rows<'r>(
        &mut self,
        sql: &str,
        count: usize,
        width: usize,
        parameter: impl Fn(usize, usize) -> Parameter<'r>,
    ) -> Result<(), Failure> {
        let mut statement = self.connection.prepare_cached(sql)?;
        for row in 0..count {
            for column in 0..width {
                statement.raw_bind_parameter(column + 1, parameter(row, column))?;
            }
            statement.raw_execute()?;
        }
        Ok(())
    }
}

/// A parameter that is bound without copying.
pub(crate) enum Parameter<'r> {
    I64(Option<i64>),
    Text(Option<&'r str>),
    Bytes(Option<&'r [u8]>),
}

impl ToSql for Parameter<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::I64(Some(value)) => ValueRef::Integer(*value),
            Self::Text(Some(text)) => ValueRef::Text(text.as_bytes()),
            Self::Bytes(Some(bytes)) => ValueRef::Blob(bytes),
            Self::I64(None) | Self::Text(None) | Self::Bytes(None) => ValueRef::Null,
        }))
    }
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let json = |text: String| Ok(ToSqlOutput::Owned(rusqlite::types::Value::Text(text)));
        Ok(ToSqlOutput::Borrowed(match self {
            Self::I64(value) | Self::OptI64(Some(value)) => ValueRef::Integer(*value),
            Self::Text(text) | Self::OptText(Some(text)) => ValueRef::Text(text.as_bytes()),
            Self::Bytes(bytes) | Self::OptBytes(Some(bytes)) => ValueRef::Blob(bytes),
            Self::OptI64(None) | Self::OptText(None) | Self::OptBytes(None) => ValueRef::Null,
            Self::I64s(list) => return json(as_json(list)),
            Self::OptI64s(list) => return json(as_json(list)),
            Self::Texts(list) => return json(as_json(list)),
            Self::OptTexts(list) => return json(as_json(list)),
            Self::OptByteses(list) => return json(as_json(list)),
        }))
    }
}

/// Binds parameters named `$1`, `$2`, … SQLite treats these as names and numbers them in the order of their first
/// appearance.
fn bind(statement: &mut Statement<'_>, values: &[Value]) -> Result<(), Failure> {
    for index in 1..=statement.parameter_count() {
        let name = statement.parameter_name(index);
        let number = name.and_then(|name| name.get(1..)?.parse::<usize>().ok()).unwrap_or(index);
        let value = number.checked_sub(1).and_then(|place| values.get(place));
        match value {
            Some(value) => statement.raw_bind_parameter(index, value)?,
            None => statement.raw_bind_parameter(index, rusqlite::types::Null)?,
        }
    }
    Ok(())
}

fn cell(value: ValueRef<'_>) -> Result<Cell, Failure> {
    Ok(match value {
        ValueRef::Null => Cell::Null,
        ValueRef::Integer(number) => Cell::I64(number),
        ValueRef::Real(_) => Cell::Real,
        ValueRef::Text(bytes) => {
            let text = std::str::from_utf8(bytes).map_err(|error| Failure::unreadable("a stored text", &error))?;
            Cell::Text(text.to_owned())
        }
        ValueRef::Blob(bytes) => Cell::Bytes(bytes.to_owned()),
    })
}
