//! Opens and closes a store, and provides its connections. The operations are in `port/`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;
use nightshift_engine::store::StoreError;
use sqlx::postgres::PgPool;
use sqlx::sqlite::SqlitePool;
use tokio::sync::{Mutex, mpsc};
use tokio::task::AbortHandle;

use crate::attempt::refresh::ColumnCache;
use crate::connection::Connection;
use crate::failure::{Failure, Place};
use crate::invariants;
use crate::notices::Notices;
use crate::objects::{ARTIFACT_FOLDER, ArtifactOptions, Objects};
use crate::postgres::open::PostgresOptions;
use crate::process_cache::ProcessCache;
use crate::run_reads::RunReads;
use crate::source::postgres::PooledSource;
use crate::source::sqlite::SingleSource;
use crate::sqlite::open::OpenOptions;
use crate::surroundings::Surroundings;
use crate::writer::{self, Message, Work, Writer, closed};
use crate::{postgres, redo, sqlite};

/// Number of tasks of the hot path on Postgres, each with its own connection. Each commits many changes at once. With
/// more than one, a task would work while another waits for the disk.
const BATCHERS: u32 = 1;

/// The store, on either database.
pub struct SqlStore {
    pub(crate) side: Side,
    pub(crate) writer: Writer,
    pub(crate) around: Surroundings,
    /// The index of attempts in memory.
    pub(crate) attempts: ColumnCache,
    /// How artifacts are stored.
    pub(crate) artifacts: ArtifactOptions,
    /// Background tasks, which end with the store.
    tasks: Vec<AbortHandle>,
}

/// The source of connections for reads and, on Postgres, rare writes.
pub(crate) enum Side {
    /// Connections that cannot write.
    Sqlite { database: PathBuf, readers: SqlitePool },
    /// A pool for reads and writes, the batching reader over it, and the pool of the hot path, to be closed with it.
    Postgres { pool: PgPool, runs: RunReads, hot: PgPool },
}

impl SqlStore {
    /// Opens the database of a data folder, or creates it.
    ///
    /// - `Locked`: another process uses the folder. The message names it.
    /// - `ReadOnly`, `Full`: the folder or the disk.
    /// - `Unusable`: the path of the folder or database holds something else.
    /// - `Corrupt`: the file is damaged or not a Nightshift database. It stays unchanged.
    /// - `TooNew`: a newer release wrote it. It stays unchanged.
    /// - `NotFound`: it does not exist, and [`OpenOptions::create`] is off.
    pub async fn open_sqlite(data_dir: &Path, options: OpenOptions) -> Result<Self, StoreError> {
        let opened = sqlite::open::open(data_dir, &options).await?;
        let mut artifacts = options.artifacts;
        if artifacts.objects.is_none() {
            artifacts.objects = Some(Objects::folder(&data_dir.join(ARTIFACT_FOLDER))?);
        }
        let (writer, receiver) = Writer::new();
        let place = Place::file(&opened.database);
        let around = Surroundings { memory: Arc::new(ProcessCache::default()), notices: Notices::local(), place };
        let source = SingleSource::new(opened.writer);
        let writing = write_to_sqlite(source, opened.lock, around.clone(), receiver);
        let runtime = tokio::runtime::Handle::current();
        std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || runtime.block_on(writing))
            .map_err(|error| StoreError::Other(format!("the thread that writes the database cannot begin: {error}")))?;
        let side = Side::Sqlite { database: opened.database, readers: opened.readers };
        Self { side, writer, around, attempts: ColumnCache::default(), artifacts, tasks: Vec::new() }.remember().await
    }

    /// Opens a database of a Postgres server and migrates its schema. `url` is `DATABASE_URL`:
    /// `postgres://user:password@host:5432/database`.
    ///
    /// - `Unreachable`: no server answers, it refuses the login, or it has no such database.
    /// - `Unusable`: it contains tables of another program, which stay unchanged, or the URL is invalid.
    /// - `TooNew`: a newer release wrote it. It stays unchanged.
    /// - `ReadOnly`: it is a standby, or its user may not create tables.
    pub async fn open_postgres(url: &str, options: PostgresOptions) -> Result<Self, StoreError> {
        let opened = postgres::open::open(url, &options, BATCHERS).await?;
        let (writer, receiver) = Writer::new();
        let (notices, bundles) = Notices::shared();
        let around = Surroundings { memory: Arc::new(ProcessCache::default()), notices, place: opened.place };
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..BATCHERS {
            let source = PooledSource::new(opened.hot.clone());
            tokio::spawn(write_to_postgres(source, around.clone(), Arc::clone(&receiver)));
        }
        let me = opened.me;
        let sending = tokio::spawn(postgres::notify::send_batches(opened.connect.clone(), me.clone(), bundles));
        let receiving = tokio::spawn(postgres::notify::receive(opened.connect, me, around.notices.clone()));
        let tasks = vec![sending.abort_handle(), receiving.abort_handle()];
        let runs = RunReads::new(opened.pool.clone(), around.place.clone());
        let side = Side::Postgres { pool: opened.pool, runs, hot: opened.hot };
        Self { side, writer, around, attempts: ColumnCache::default(), artifacts: options.artifacts, tasks }
            .remember()
            .await
    }

    /// Restores the virtual time of earlier servers.
    async fn remember(self) -> Result<Self, StoreError> {
        let mut reader = self.reader().await?;
        let row = reader.fetch_one("SELECT coalesce(MAX(virtual_now), 0) FROM server", vec![]).await;
        let virtual_now = row.and_then(|row| row.i64(0)).map_err(|failure| self.store_error(failure))?;
        drop(reader);
        self.around.memory.raise_virtual_now(virtual_now);
        Ok(self)
    }

    /// Returns the database file, on SQLite.
    #[must_use]
    pub fn database(&self) -> Option<&Path> {
        match &self.side {
            Side::Sqlite { database, .. } => Some(database),
            Side::Postgres { .. } => None,
        }
    }

    /// Finishes pending writes and releases the database. On SQLite it also truncates the write-ahead log.
    ///
    /// Later calls fail, except for closing again. A process that does not close loses no data.
    pub async fn close(&self) -> Result<(), StoreError> {
        let ended = match &self.side {
            Side::Sqlite { readers, .. } => {
                // An active reader would keep the log from being truncated.
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

    /// Finds contradictions in the stored data, one sentence each. It reads everything.
    pub async fn find_violations(&self) -> Result<Vec<String>, StoreError> {
        let mut found = self.read_one_moment(|connection| Box::pin(invariants::violations(connection))).await?;
        found.extend(self.find_missing_objects().await?);
        Ok(found)
    }

    /// Returns a connection that reads.
    pub(crate) async fn reader(&self) -> Result<Connection, StoreError> {
        let acquired = match &self.side {
            Side::Sqlite { readers, .. } => readers.acquire().await.map(Connection::SqlitePooled),
            Side::Postgres { pool, .. } => pool.acquire().await.map(Connection::Postgres),
        };
        acquired.map_err(|error| self.store_error(error.into()))
    }

    /// Returns how often a read is repeated on another connection because its own broke.
    pub(crate) fn spare_connections(&self) -> u32 {
        match &self.side {
            Side::Sqlite { .. } => 0,
            Side::Postgres { pool, .. } => pool.options().get_max_connections(),
        }
    }

    /// Runs a read on a consistent snapshot.
    pub(crate) async fn read_one_moment<T: Send + 'static>(
        &self,
        read: impl for<'c> FnOnce(&'c mut Connection) -> BoxFuture<'c, Result<T, Failure>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let mut reader = self.reader().await?;
        // A separate task, so that a dropped caller leaves no open transaction behind.
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
        task.await.map_err(|_| closed())?.map_err(|failure| self.store_error(failure))
    }

    /// Runs a rare operation.
    pub(crate) async fn write<T: Send + 'static>(&self, work: Work<T>) -> Result<T, StoreError> {
        match &self.side {
            Side::Sqlite { .. } => self.writer.write(work).await,
            Side::Postgres { pool, .. } => redo::write(pool, &self.around, work).await,
        }
    }

    /// Converts a failure into an error for the caller.
    pub(crate) fn store_error(&self, failure: Failure) -> StoreError {
        failure.into_store_error(&self.around.place)
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

/// Spawns the task of SQLite on a thread of its own, because its statements block on the disk. The lock is released
/// when the file is closed.
async fn write_to_sqlite(
    source: SingleSource,
    lock: sqlite::lock::ProcessLock,
    around: Surroundings,
    receiver: mpsc::Receiver<Message>,
) {
    let place = around.place.clone();
    let (source, closing) = writer::run(source, around, Arc::new(Mutex::new(receiver))).await;
    let ended = source.end().map_err(|failure| failure.into_store_error(&place));
    if let Err(error) = &ended {
        tracing::warn!(error = %error, "the write-ahead log could not be truncated at the end; no data is lost");
    }
    drop(lock);
    if let Some(closing) = closing {
        let _gone = closing.send(ended);
    }
}

/// Spawns a task of Postgres.
async fn write_to_postgres(source: PooledSource, around: Surroundings, receiver: Arc<Mutex<mpsc::Receiver<Message>>>) {
    let (source, closing) = writer::run(source, around, receiver).await;
    drop(source);
    if let Some(closing) = closing {
        let _gone = closing.send(Ok(()));
    }
}
