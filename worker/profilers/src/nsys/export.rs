//! Reading what nsys exports: an SQLite file whose tables exist only when there was something to put into them, and whose
//! columns differ from version to version. The program under test could write to it, so that it is read like anything
//! that comes from there: without trust, and within limits.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nightshift_protocol::profile::CopyDirection;
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, Row};

use crate::activity::{Activity, ApiCall, Kernel, Span, Transfer, direction, without_version};

/// Largest export that is read, in bytes.
const MAX_EXPORT_BYTES: u64 = 256 << 20;

/// Maximum number of events of one kind that are read.
pub(super) const MAX_EVENTS: usize = 100_000;

/// Maximum number of names that are read.
const MAX_NAMES: usize = 50_000;

/// Maximum length of a name, in characters; names of templates can have any length.
const MAX_NAME_CHARS: usize = 512;

/// Maximum length of a value that SQLite returns, in bytes.
const MAX_VALUE_BYTES: i32 = 1 << 20;

/// Instructions of SQLite's machine after which it asks whether to go on, and how often the answer is yes.
const STEP: i32 = 10_000;
const MAX_STEPS: u32 = 20_000;

/// Name of what has none.
const NAMELESS: &str = "(nameless)";

/// The error of reading an export.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExportError {
    /// SQLite says no, also to what is no database at all.
    #[error("it is no database that can be read: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// There is no such file, or it is too large.
    #[error("{0}")]
    File(String),
    /// A table lacks a column that nothing can replace.
    #[error("the table {table} has no column `{column}`")]
    Column {
        /// The table.
        table: &'static str,
        /// The missing column.
        column: &'static str,
    },
    /// The export has no CUDA events.
    #[error("it holds no CUDA activity: the program started no device work, or the tool could not trace it")]
    Empty,
}

/// Reads the activity of an export.
pub(super) fn read(path: &Path) -> Result<Activity, ExportError> {
    let data = path.symlink_metadata().map_err(|error| ExportError::File(error.to_string()))?;
    // A journal beside it would be read along with it, and a link could lead to anything.
    let journals = ["-journal", "-wal", "-shm"].map(|ending| {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    });
    if !data.is_file() || journals.iter().any(|journal| journal.symlink_metadata().is_ok()) {
        return Err(ExportError::File("it is not one plain file".to_owned()));
    }
    let size_bytes = data.len();
    if size_bytes > MAX_EXPORT_BYTES {
        let (size, most) = (size_bytes >> 20, MAX_EXPORT_BYTES >> 20);
        return Err(ExportError::File(format!("it has {size} MiB, and at most {most} are read")));
    }
    let export = Export::open(path)?;
    let names = export.names()?;
    let name = |id: Option<i64>| id.and_then(|id| names.get(&id)).cloned();
    let mut activity = Activity::default();

    export.rows(&KERNELS, |row| {
        let text = name(integer(row, 5)).unwrap_or_else(|| NAMELESS.into());
        activity.kernels.push(Kernel {
            span: span(row)?,
            stream: number(row, 2),
            correlation: number(row, 3),
            short: name(integer(row, 4)).unwrap_or_else(|| text.clone()),
            name: text,
            mangled: name(integer(row, 6)),
            grid: [number(row, 7), number(row, 8), number(row, 9)],
            block: [number(row, 10), number(row, 11), number(row, 12)],
            registers: number(row, 13),
            shared_bytes: number(row, 14).saturating_add(number(row, 15)),
        });
        Some(())
    })?;
    export.rows(&COPIES, |row| {
        let direction = direction(integer(row, 5));
        activity.copies.push(Transfer { direction, ..transfer(row)? });
        Some(())
    })?;
    export.rows(&SETS, |row| {
        activity.copies.push(Transfer { direction: CopyDirection::Set, ..transfer(row)? });
        Some(())
    })?;
    export.rows(&CALLS, |row| {
        let called = name(integer(row, 4)).unwrap_or_else(|| NAMELESS.into());
        activity.api.push(ApiCall {
            span: span(row)?,
            thread: number(row, 2) & 0xff_ffff,
            correlation: number(row, 3),
            name: without_version(&called).into(),
        });
        Some(())
    })?;
    if activity.kernels.is_empty() && activity.copies.is_empty() && activity.api.is_empty() {
        return Err(ExportError::Empty);
    }
    // Copies and sets come from two tables.
    activity.cut =
        [activity.kernels.len(), activity.copies.len(), activity.api.len()].iter().any(|count| *count >= MAX_EVENTS);
    activity.kernels.sort_by_key(|kernel| kernel.span);
    activity.copies.sort_by_key(|copy| copy.span);
    activity.api.sort_by_key(|call| call.span);
    Ok(activity)
}

/// A table and the columns that are read of it. The first two are always `start` and `end`, which every event needs; for
/// any other, nothing is taken when there is no such column.
struct Table {
    name: &'static str,
    columns: &'static [&'static str],
}

const KERNELS: Table = Table {
    name: "CUPTI_ACTIVITY_KIND_KERNEL",
    columns: &[
        "start",
        "end",
        "streamId",
        "correlationId",
        "shortName",
        "demangledName",
        "mangledName",
        "gridX",
        "gridY",
        "gridZ",
        "blockX",
        "blockY",
        "blockZ",
        "registersPerThread",
        "staticSharedMemory",
        "dynamicSharedMemory",
    ],
};

const COPIES: Table = Table {
    name: "CUPTI_ACTIVITY_KIND_MEMCPY",
    columns: &["start", "end", "streamId", "correlationId", "bytes", "copyKind"],
};

const SETS: Table =
    Table { name: "CUPTI_ACTIVITY_KIND_MEMSET", columns: &["start", "end", "streamId", "correlationId", "bytes"] };

const CALLS: Table =
    Table { name: "CUPTI_ACTIVITY_KIND_RUNTIME", columns: &["start", "end", "globalTid", "correlationId", "nameId"] };

/// An open export.
struct Export {
    connection: Connection,
}

impl Export {
    fn open(path: &Path) -> Result<Self, ExportError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
        connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)?;
        let mut steps = 0;
        connection.progress_handler(
            STEP,
            Some(move || {
                steps += 1;
                steps > MAX_STEPS
            }),
        )?;
        Ok(Self { connection })
    }

    /// The columns of a table; none when there is no such table.
    fn columns(&self, table: &str) -> Result<Vec<String>, ExportError> {
        let mut statement = self.connection.prepare("SELECT name FROM pragma_table_info(?1) LIMIT 200")?;
        let found = statement.query_map([table], |row| row.get::<_, String>(0))?;
        Ok(found.collect::<Result<_, _>>()?)
    }

    /// Hands out each row of a table that exists. A row of which nothing can be made is passed over.
    fn rows(&self, table: &Table, mut take: impl FnMut(&Row<'_>) -> Option<()>) -> Result<(), ExportError> {
        let existing = self.columns(table.name)?;
        if existing.is_empty() {
            return Ok(());
        }
        let has = |column: &str| existing.iter().any(|name| name == column);
        if let Some(column) = table.columns.iter().take(2).find(|column| !has(column)) {
            return Err(ExportError::Column { table: table.name, column });
        }
        let columns: Vec<String> = table
            .columns
            .iter()
            .map(|column| if has(column) { format!("\"{column}\"") } else { "NULL".to_owned() })
            .collect();
        // The tool writes rows in any order, and only the earliest ones are read of a long trace.
        let query = format!("SELECT {} FROM {} ORDER BY start LIMIT {MAX_EVENTS}", columns.join(", "), table.name);
        let mut statement = self.connection.prepare(&query)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            take(row);
        }
        Ok(())
    }

    fn names(&self) -> Result<HashMap<i64, Arc<str>>, ExportError> {
        let columns = self.columns("StringIds")?;
        if !["id", "value"].iter().all(|wanted| columns.iter().any(|column| column == wanted)) {
            return Ok(HashMap::new());
        }
        let query = format!("SELECT id, substr(value, 1, {MAX_NAME_CHARS}) FROM StringIds LIMIT {MAX_NAMES}");
        let mut statement = self.connection.prepare(&query)?;
        let mut rows = statement.query([])?;
        let mut names = HashMap::new();
        while let Some(row) = rows.next()? {
            if let (Some(id), Some(text)) = (integer(row, 0), text(row, 1)) {
                names.insert(id, text.into());
            }
        }
        Ok(names)
    }
}

fn integer(row: &Row<'_>, index: usize) -> Option<i64> {
    match row.get_ref(index).ok()? {
        ValueRef::Integer(number) => Some(number),
        _ => None,
    }
}

fn number(row: &Row<'_>, index: usize) -> u64 {
    integer(row, index).and_then(|number| u64::try_from(number).ok()).unwrap_or(0)
}

fn text(row: &Row<'_>, index: usize) -> Option<String> {
    match row.get_ref(index).ok()? {
        ValueRef::Text(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    }
}

fn span(row: &Row<'_>) -> Option<Span> {
    let start_ns = u64::try_from(integer(row, 0)?).ok()?;
    let end_ns = u64::try_from(integer(row, 1)?).ok()?;
    (start_ns <= end_ns).then_some(Span { start_ns, end_ns })
}

fn transfer(row: &Row<'_>) -> Option<Transfer> {
    Some(Transfer {
        span: span(row)?,
        stream: number(row, 2),
        correlation: number(row, 3),
        bytes: number(row, 4),
        direction: CopyDirection::Other,
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
