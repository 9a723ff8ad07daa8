//! Opening and closing a store, and the ways to its connections. What it does is in `port.rs`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;
use nightshift_engine::store::StoreError;
use sqlx::postgres::PgPool;
use sqlx::sqlite::SqlitePool;
use tokio::sync::{Mutex, mpsc};
use tokio::task::AbortHandle;

use crate::attempt::refresh::Kept;
use crate::connection::Connection;
use crate::failure::{Failure, Place};
use crate::invariants;
use crate::memory::Memory;
use crate::notices::Notices;
use crate::postgres::open::PostgresOptions;
use crate::postgres::run_reads::RunReads;
use crate::sqlite::open::OpenOptions;
use crate::writer::{self, Message, Surroundings, Work, Writer, closed};
use crate::{postgres, sqlite};

/// Tasks of the hot path on Postgres, each with a connection of its own: while one waits for the disk, another one
/// works. On SQLite there is one, for there is one connection that writes.
const BATCHERS: u32 = 1;

/// The store, on either database.
pub struct SqlStore {
    pub(crate) side: Side,
    pub(crate) writer: Writer,
    pub(crate) around: Surroundings,
    /// The columns of attempts.
    pub(crate) attempts: Kept,
    /// What runs beside it, and ends with it.
    tasks: Vec<AbortHandle>,
}

/// Where reads, and on Postgres rare writes, have their connections from.
pub(crate) enum Side {
    /// Connections that cannot write.
    Sqlite { database: PathBuf, readers: SqlitePool },
    /// Connections for both, reads of single runs that share them; and the pool of the hot path, to be closed with it.
    Postgres { pool: PgPool, runs: RunReads, hot: PgPool },
}

impl SqlStore {
    /// Opens the database of a data folder, or makes it.
    ///
    /// - `Locked`: another process uses the folder; the message names it.
    /// - `ReadOnly`, `Full`: the folder or the disk.
    /// - `Unusable`: something else is in the place of folder or database.
    /// - `Corrupt`: the file is damaged or not ours. It is left as it is.
    /// - `TooNew`: a newer release wrote it. It is left as it is.
    /// - `NotFound`: there is none, and [`OpenOptions::create`] is off.
    pub async fn open_sqlite(data_dir: &Path, options: OpenOptions) -> Result<Self, StoreError> {
        let opened = sqlite::open::open(data_dir, &options).await?;
        let (writer, receiver) = Writer::new();
        let place = Place::file(&opened.database);
        let around = Surroundings { memory: Arc::new(Memory::default()), notices: Notices::local(), place };
        let source = sqlite::source::Sole::new(opened.writer);
        let writing = write_to_sqlite(source, opened.lock, around.clone(), receiver);
        let runtime = tokio::runtime::Handle::current();
        std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || runtime.block_on(writing))
            .map_err(|error| StoreError::Other(format!("the thread that writes the database cannot begin: {error}")))?;
        let side = Side::Sqlite { database: opened.database, readers: opened.readers };
        Self { side, writer, around, attempts: Kept::default(), tasks: Vec::new() }.remember().await
    }

    /// Opens a database of a Postgres server and brings its schema up to date. `url` is `DATABASE_URL`:
    /// `postgres://user:password@host:5432/database`.
    ///
    /// - `Unreachable`: no server answers there, it does not let us in, or has no such database.
    /// - `Unusable`: the tables of another program are in it. They are left as they are. Or the URL is none.
    /// - `TooNew`: a newer release wrote it. It is left as it is.
    /// - `ReadOnly`: it is a standby, or its user may not make tables.
    pub async fn open_postgres(url: &str, options: PostgresOptions) -> Result<Self, StoreError> {
        let opened = postgres::open::open(url, &options, BATCHERS).await?;
        let (writer, receiver) = Writer::new();
        let (notices, bundles) = Notices::shared();
        let around = Surroundings { memory: Arc::new(Memory::default()), notices, place: opened.place };
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..BATCHERS {
            let source = postgres::source::Kept::new(opened.hot.clone());
            tokio::spawn(write_to_postgres(source, around.clone(), Arc::clone(&receiver)));
        }
        let me = opened.me;
        let tell = tokio::spawn(postgres::notify::tell(opened.connect.clone(), me.clone(), bundles));
        let hear = tokio::spawn(postgres::notify::hear(opened.connect, me, around.notices.clone()));
        let tasks = vec![tell.abort_handle(), hear.abort_handle()];
        let runs = RunReads::new(opened.pool.clone(), around.place.clone());
        let side = Side::Postgres { pool: opened.pool, runs, hot: opened.hot };
        Self { side, writer, around, attempts: Kept::default(), tasks }.remember().await
    }

    /// Reads what earlier lives of servers knew of the virtual time.
    async fn remember(self) -> Result<Self, StoreError> {
        let mut reader = self.reader().await?;
        let row = reader.fetch_one("SELECT coalesce(MAX(virtual_now), 0) FROM server", vec![]).await;
        let virtual_now = row.and_then(|row| row.i64(0)).map_err(|failure| self.tell(failure))?;
        drop(reader);
        self.around.memory.raise_virtual_now(virtual_now);
        Ok(self)
    }

    /// The database file, on SQLite.
    #[must_use]
    pub fn database(&self) -> Option<&Path> {
        match &self.side {
            Side::Sqlite { database, .. } => Some(database),
            Side::Postgres { .. } => None,
        }
    }

    /// Finishes what is waiting and gives the database free; on SQLite it also empties the write-ahead log. Later calls
    /// fail; closing again does not. Not closing loses nothing.
    pub async fn close(&self) -> Result<(), StoreError> {
        let ended = match &self.side {
            Side::Sqlite { readers, .. } => {
                // A reader in the middle of a statement would keep the log from being emptied.
                readers.close().await;
                self.writer.close().await
            }
            Side::Postgres { pool, hot, .. } => {
                let mut ended = Ok(());
                for _ in 0..BATCHERS {
                    ended = ended.and(self.writer.close().await);
                }
                hot.close().await;
                pool.close().await;
                ended
            }
        };
        for task in &self.tasks {
            task.abort();
        }
        ended
    }

    /// Looks for contradictions in the stored data: one sentence each, none when all is well. It reads everything.
    pub async fn find_violations(&self) -> Result<Vec<String>, StoreError> {
        self.read_one_moment(|connection| Box::pin(invariants::violations(connection))).await
    }

    /// A connection that reads.
    pub(crate) async fn reader(&self) -> Result<Connection, StoreError> {
        let acquired = match &self.side {
            Side::Sqlite { readers, .. } => readers.acquire().await.map(Connection::SqlitePooled),
            Side::Postgres { pool, .. } => pool.acquire().await.map(Connection::Postgres),
        };
        acquired.map_err(|error| self.tell(error.into()))
    }

    /// How often a read takes another connection because its own broke.
    pub(crate) fn spare_connections(&self) -> u32 {
        match &self.side {
            Side::Sqlite { .. } => 0,
            Side::Postgres { pool, .. } => pool.options().get_max_connections(),
        }
    }

    /// Has something read that must come from one moment.
    pub(crate) async fn read_one_moment<T: Send + 'static>(
        &self,
        read: impl for<'c> FnOnce(&'c mut Connection) -> BoxFuture<'c, Result<T, Failure>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let mut reader = self.reader().await?;
        // In a task of its own: a caller who goes away leaves no open transaction behind.
        let task = tokio::spawn(async move {
            let done = match reader.begin_snapshot().await {
                Ok(()) => read(&mut reader).await,
                Err(failure) => Err(failure),
            };
            if reader.rollback().await.is_err() {
                reader.discard().await;
            }
            done
        });
        task.await.map_err(|_| closed())?.map_err(|failure| self.tell(failure))
    }

    /// Has a rare operation done.
    pub(crate) async fn write<T: Send + 'static>(&self, work: Work<T>) -> Result<T, StoreError> {
        match &self.side {
            Side::Sqlite { .. } => self.writer.write(work).await,
            Side::Postgres { pool, .. } => postgres::redo::write(pool, &self.around, work).await,
        }
    }

    /// A failure in the caller's words.
    pub(crate) fn tell(&self, failure: Failure) -> StoreError {
        failure.tell(&self.around.place)
    }
}

impl Drop for SqlStore {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl std::fmt::Debug for SqlStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqlStore").field("place", &self.around.place).finish_non_exhaustive()
    }
}

/// The task of SQLite, on a thread of its own: its statements wait for the disk where they are called. The lock is given back when the file is closed.
async fn write_to_sqlite(
    source: sqlite::source::Sole,
    lock: sqlite::lock::ProcessLock,
    around: Surroundings,
    receiver: mpsc::Receiver<Message>,
) {
    let place = around.place.clone();
    let (source, closing) = writer::run(source, around, Arc::new(Mutex::new(receiver))).await;
    let ended = source.end().map_err(|failure| failure.tell(&place));
    if let Err(error) = &ended {
        tracing::warn!(error = %error, "the database could not be tidied up at the end; nothing is lost");
    }
    drop(lock);
    if let Some(closing) = closing {
        let _gone = closing.send(ended);
    }
}

/// A task of Postgres.
async fn write_to_postgres(
    source: postgres::source::Kept,
    around: Surroundings,
    receiver: Arc<Mutex<mpsc::Receiver<Message>>>,
) {
    let (source, closing) = writer::run(source, around, receiver).await;
    drop(source);
    if let Some(closing) = closing {
        let _gone = closing.send(Ok(()));
    }
}
