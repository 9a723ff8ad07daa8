//! Opens a database: inspect before changing anything, lock, connect with the settings required for durability,
//! migrate.

use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nightshift_engine::store::StoreError;
use sqlx::sqlite::{
    SqliteAutoVacuum, SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{ConnectOptions, Connection, SqliteConnection};

use super::lock::ProcessLock;
use super::writer::SqliteWriter;
use crate::failure::sqlite::{corrupt, io_error, unusable};
use crate::failure::{Failure, Place};
use crate::objects::ArtifactOptions;

/// Name of the database in the data folder.
pub const DATABASE_FILE: &str = "nightshift.db";

/// Mode of a new folder. It contains sources and replies, so only its owner has access. SQLite gives its other files
/// the database's mode.
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// Application id of a Nightshift database (`NSHT`). The first migration writes it.
const APPLICATION_ID: i64 = 1_314_080_852;
/// Maximum time to wait while other programs hold the database.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time to wait for a reader.
const READER_TIMEOUT: Duration = Duration::from_secs(30);
/// Pages in the write-ahead log after which a commit also checkpoints.
const WAL_AUTOCHECKPOINT_PAGES: &str = "4000";
/// Size of a page of a new database, in bytes. A step changes a few bytes on about twenty pages, and each is written whole
/// into the write-ahead log. The numbers are in `docs/evidence/campaign-cost.md`.
const PAGE_SIZE: u32 = 1024;
/// Page cache of the connection that writes, in KiB (negative by SQLite's convention).
const CACHE_SIZE: &str = "-65536";
/// Page cache of a connection that reads. Most misses hit the cache of the operating system, which all connections
/// share.
const READER_CACHE_SIZE: &str = "-512";

/// Maximum size of a file that is checked at each start, which takes about a second.
const MAX_CHECKED_BYTES: u64 = 256 * 1024 * 1024;

/// Prepared statements cached per connection.
const STATEMENT_CACHE: usize = 512;

/// Options for opening a database.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Create a missing folder or database. Without it, opening returns `NotFound`.
    pub create: bool,
    /// Number of connections that read, at least 1.
    pub readers: u32,
    /// An existing file up to this size is checked completely for damage. In a larger file, damage is found when a
    /// damaged page is read.
    pub max_checked_bytes: u64,
    /// Maximum size of the database. At the limit, writing returns `Full`. None means no limit.
    pub max_size_bytes: Option<u64>,
    /// How artifacts are stored: in the folder `artifacts` of the data folder, unless it names an object store.
    pub artifacts: ArtifactOptions,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            create: true,
            readers: 4,
            max_checked_bytes: MAX_CHECKED_BYTES,
            max_size_bytes: None,
            artifacts: ArtifactOptions::default(),
        }
    }
}

/// Result of opening.
pub(crate) struct Opened {
    pub(crate) database: PathBuf,
    pub(crate) lock: ProcessLock,
    pub(crate) writer: SqliteWriter,
    pub(crate) readers: SqlitePool,
}

pub(crate) async fn open(data_dir: &Path, options: &OpenOptions) -> Result<Opened, StoreError> {
    let database = data_dir.join(DATABASE_FILE);
    if data_dir.exists() && !data_dir.is_dir() {
        return Err(unusable(&data_dir.display(), "it is no folder"));
    }
    if database.is_dir() {
        return Err(unusable(&database.display(), "it is a folder"));
    }
    if !options.create && !database.exists() {
        return Err(StoreError::NotFound { noun: "database", id: database.display().to_string() });
    }
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(FOLDER_MODE)
        .create(data_dir)
        .map_err(|error| io_error(&error, data_dir, "cannot create"))?;
    let lock = ProcessLock::take(data_dir)?;
    if database.exists() {
        examine(&database, options.max_checked_bytes).await?;
    }
    if !database.exists() {
        let mut new = std::fs::OpenOptions::new();
        new.write(true).create_new(true).mode(FILE_MODE);
        new.open(&database).map_err(|error| io_error(&error, &database, "cannot create"))?;
    }
    let place = Place::file(&database);
    let tell = |failure: Failure| failure.into_store_error(&place);
    let mut first = writer_options(&database).connect().await.map_err(|error| tell(error.into()))?;
    let max_pages = prepare(&mut first, options).await.map_err(tell)?;
    first.close().await.map_err(|error| tell(error.into()))?;
    let writer = SqliteWriter::open(&database, &settings(max_pages), BUSY_TIMEOUT).map_err(tell)?;
    let readers = SqlitePoolOptions::new()
        .max_connections(options.readers.max(1))
        .acquire_timeout(READER_TIMEOUT)
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
        .connect_with(reader_options(&database))
        .await
        .map_err(|error| tell(error.into()))?;
    Ok(Opened { database, lock, writer, readers })
}

/// Moves the write-ahead log into the database and truncates it.
pub(crate) const CHECKPOINT: &str = "PRAGMA wal_checkpoint(TRUNCATE)";

/// Checks without changes whether an existing file is a sound Nightshift database.
async fn examine(database: &Path, max_checked_bytes: u64) -> Result<(), StoreError> {
    let size = std::fs::metadata(database).map_err(|error| io_error(&error, database, "cannot read"))?.len();
    let finding = findings(database, size <= max_checked_bytes)
        .await
        .map_err(|failure| failure.into_store_error(&Place::file(database)))?;
    finding.map_or(Ok(()), |finding| Err(corrupt(database, &finding)))
}

async fn findings(database: &Path, every_page: bool) -> Result<Option<String>, Failure> {
    let options = SqliteConnectOptions::new().filename(database).read_only(true).busy_timeout(BUSY_TIMEOUT);
    let mut connection = options.disable_statement_logging().connect().await?;
    let verdict: String = if every_page {
        sqlx::query_scalar("PRAGMA quick_check(1)").fetch_one(&mut connection).await?
    } else {
        "ok".to_owned()
    };
    let application_id: i64 = sqlx::query_scalar("PRAGMA application_id").fetch_one(&mut connection).await?;
    // A process that was killed while it created the database leaves at most the migrator's own table.
    let foreign_tables: i64 = sqlx::query_scalar(
        "SELECT COUNT(*) FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' \
         AND name <> '_sqlx_migrations'",
    )
    .fetch_one(&mut connection)
    .await?;
    connection.close().await?;
    if verdict != "ok" {
        return Ok(Some(verdict));
    }
    let ours = application_id == APPLICATION_ID || (application_id == 0 && foreign_tables == 0);
    Ok((!ours).then(|| "its tables belong to another program".to_owned()))
}

/// Migrates the schema. Returns the maximum number of pages, if limited.
async fn prepare(writer: &mut SqliteConnection, options: &OpenOptions) -> Result<Option<i64>, Failure> {
    let mut max_pages = None;
    if let Some(max_size_bytes) = options.max_size_bytes {
        let page_size: i64 = sqlx::query_scalar("PRAGMA page_size").fetch_one(&mut *writer).await?;
        let pages = (i64::try_from(max_size_bytes).unwrap_or(i64::MAX) / page_size.max(1)).max(1);
        let pragma = sqlx::AssertSqlSafe(format!("PRAGMA max_page_count = {pages}"));
        sqlx::query(pragma).execute(&mut *writer).await?;
        max_pages = Some(pages);
    }
    // A read-only file opens without an error, so test a write now.
    sqlx::query("BEGIN IMMEDIATE").execute(&mut *writer).await?;
    sqlx::query("ROLLBACK").execute(&mut *writer).await?;
    sqlx::query(CHECKPOINT).execute(&mut *writer).await?;
    sqlx::migrate!("../migrations/sqlite").run_direct(None, &mut *writer, false).await?;
    Ok(max_pages)
}

/// Returns the settings of the connection that writes, equal to those of [`common`].
fn settings(max_pages: Option<i64>) -> String {
    let max_pages = max_pages.map_or_else(String::new, |pages| format!("PRAGMA max_page_count = {pages};"));
    format!(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA fullfsync = 1; \
         PRAGMA cache_size = {CACHE_SIZE}; PRAGMA temp_store = MEMORY; \
         PRAGMA wal_autocheckpoint = {WAL_AUTOCHECKPOINT_PAGES}; {max_pages}"
    )
}

/// Returns the settings of every connection. As connect options they apply to every connection.
fn common(database: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(database)
        .busy_timeout(BUSY_TIMEOUT)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        // On macOS `fsync` alone leaves data in the drive's cache. Elsewhere this has no effect.
        .pragma("fullfsync", "1")
        .pragma("cache_size", CACHE_SIZE)
        .pragma("temp_store", "MEMORY")
        .pragma("wal_autocheckpoint", WAL_AUTOCHECKPOINT_PAGES)
        .statement_cache_capacity(STATEMENT_CACHE)
        // Hundreds of statements per second would flood the log.
        .disable_statement_logging()
}

fn writer_options(database: &Path) -> SqliteConnectOptions {
    common(database).create_if_missing(true).page_size(PAGE_SIZE).auto_vacuum(SqliteAutoVacuum::Incremental)
}

fn reader_options(database: &Path) -> SqliteConnectOptions {
    common(database).pragma("query_only", "1").pragma("cache_size", READER_CACHE_SIZE)
}

/// Returns a connection that writes, for tests that bypass the store.
#[cfg(test)]
pub(crate) async fn connect(database: &Path) -> Result<SqliteConnection, sqlx::Error> {
    writer_options(database).connect().await
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
mod tests {
    use super::*;

    /// The connection that writes has these settings before the migration too.
    const NAMES: [&str; 8] = [
        "journal_mode",
        "synchronous",
        "foreign_keys",
        "temp_store",
        "cache_size",
        "query_only",
        "busy_timeout",
        "wal_autocheckpoint",
    ];

    async fn pragmas(connection: &mut SqliteConnection) -> Vec<(&'static str, String)> {
        use sqlx::Row as _;
        let mut found = Vec::new();
        for name in NAMES {
            let sql = sqlx::AssertSqlSafe(format!("PRAGMA {name}"));
            let row = sqlx::query(sql).fetch_one(&mut *connection).await.unwrap();
            let value =
                row.try_get::<String, _>(0).or_else(|_| row.try_get::<i64, _>(0).map(|value| value.to_string()));
            found.push((name, value.unwrap()));
        }
        found
    }

    fn pragma_of_own(connection: &mut SqliteWriter, name: &str) -> String {
        let row = connection.fetch(&format!("PRAGMA {name}"), &[], 1).unwrap().pop().unwrap();
        row.text(0).unwrap_or_else(|_| row.i64(0).unwrap().to_string())
    }

    fn expected(cache_size: &str, query_only: &str) -> Vec<(&'static str, String)> {
        [
            ("journal_mode", "wal"),
            ("synchronous", "2"),
            ("foreign_keys", "1"),
            ("temp_store", "2"),
            ("cache_size", cache_size),
            ("query_only", query_only),
            ("busy_timeout", "5000"),
            ("wal_autocheckpoint", WAL_AUTOCHECKPOINT_PAGES),
        ]
        .map(|(name, value)| (name, value.to_owned()))
        .to_vec()
    }

    #[tokio::test]
    async fn every_connection_has_the_settings_that_durability_rests_on() {
        let folder = tempfile::tempdir().unwrap();
        let options = OpenOptions { readers: 3, ..OpenOptions::default() };
        let mut opened = open(folder.path(), &options).await.unwrap();
        let of_writer = NAMES.map(|name| (name, pragma_of_own(&mut opened.writer, name)));
        assert_eq!(of_writer.to_vec(), expected(CACHE_SIZE, "0"));
        assert_eq!(pragma_of_own(&mut opened.writer, "auto_vacuum"), "2");
        assert_eq!(pragma_of_own(&mut opened.writer, "page_size"), PAGE_SIZE.to_string());
        let mut readers = Vec::new();
        for _ in 0..3 {
            readers.push(opened.readers.acquire().await.unwrap());
        }
        for reader in &mut readers {
            assert_eq!(pragmas(reader).await, expected(READER_CACHE_SIZE, "1"));
        }
    }

    #[tokio::test]
    async fn a_database_of_an_earlier_release_keeps_its_page_size() {
        let folder = tempfile::tempdir().unwrap();
        let earlier = writer_options(&folder.path().join(DATABASE_FILE)).page_size(4096);
        let mut connection = earlier.connect().await.unwrap();
        sqlx::query("CREATE TABLE pages (id INTEGER)").execute(&mut connection).await.unwrap();
        sqlx::query("DROP TABLE pages").execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        let mut opened = open(folder.path(), &OpenOptions::default()).await.unwrap();
        assert_eq!(pragma_of_own(&mut opened.writer, "page_size"), "4096");
    }

    #[tokio::test]
    async fn every_table_is_strict() {
        let folder = tempfile::tempdir().unwrap();
        let opened = open(folder.path(), &OpenOptions::default()).await.unwrap();
        // The tables of a full-text search belong to SQLite and cannot be strict.
        let loose: Vec<String> = sqlx::query_scalar(
            "SELECT name FROM pragma_table_list WHERE strict = 0 AND schema = 'main' AND name NOT LIKE 'sqlite%' \
             AND substr(name, 1, 9) <> 'note_text' AND substr(name, 1, 11) <> 'search_text' \
             AND name <> '_sqlx_migrations'",
        )
        .fetch_all(&opened.readers)
        .await
        .unwrap();
        assert_eq!(loose, Vec::<String>::new());
    }

    #[tokio::test]
    async fn a_connection_that_reads_cannot_write() {
        let folder = tempfile::tempdir().unwrap();
        let opened = open(folder.path(), &OpenOptions::default()).await.unwrap();
        let mut reader = opened.readers.acquire().await.unwrap();
        let error = sqlx::query("DELETE FROM event").execute(&mut *reader).await.unwrap_err();
        assert_eq!(Failure::from(error).into_store_error(&Place::file(&opened.database)).code(), "store.read_only");
    }
}
