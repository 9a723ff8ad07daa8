//! The one writer: it owns the only connection that writes, and commits whatever is waiting in one transaction.
//!
//! Operations come through a bounded channel. The task takes all that wait, at most [`MAX_BATCH`], opens one
//! `BEGIN IMMEDIATE` transaction, runs each operation in a savepoint of its own, commits, and only then answers. One
//! fsync is shared by the whole batch; an operation that fails undoes itself and nobody else. When the commit fails,
//! nothing of the batch is there and everybody is told so.

use std::path::{Path, PathBuf};

use futures::future::BoxFuture;
use nightshift_engine::store::StoreError;
use sqlx::{Connection, SqliteConnection};
use tokio::sync::{mpsc, oneshot};

use super::failure::Failure;
use super::lock::ProcessLock;

/// Operations that share one commit, at most.
pub(crate) const MAX_BATCH: usize = 512;
/// Operations that wait; who comes later waits for a place.
pub(crate) const MAX_QUEUE: usize = 1_024;

/// The way to the writing task.
#[derive(Debug, Clone)]
pub(crate) struct Writer {
    sender: mpsc::Sender<Message>,
}

/// What the task is told.
enum Message {
    /// Do this.
    Operation(Box<dyn Operation>),
    /// Finish, tidy up, answer, end.
    Close(oneshot::Sender<Result<(), StoreError>>),
}

impl Writer {
    /// Starts the task. The lock is given back when the connection is closed.
    pub(crate) fn start(connection: SqliteConnection, lock: ProcessLock, database: PathBuf) -> Self {
        let (sender, receiver) = mpsc::channel(MAX_QUEUE);
        tokio::spawn(run(connection, lock, database, receiver));
        Self { sender }
    }

    /// Has `work` done in a savepoint of the next transaction, and gives its answer after the commit.
    pub(crate) async fn write<T, W>(&self, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, Failure>> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let operation = Box::new(Pending { work: Some(work), answer: None, reply });
        self.sender.send(Message::Operation(operation)).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }

    /// Ends the task after what is already waiting. Closing twice is fine.
    pub(crate) async fn close(&self) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        if self.sender.send(Message::Close(reply)).await.is_err() {
            return Ok(());
        }
        answer.await.unwrap_or(Ok(()))
    }
}

fn closed() -> StoreError {
    StoreError::Other("the store is closed".to_owned())
}

/// An operation with the place for its answer.
trait Operation: Send {
    /// Does it. After an error its savepoint has to be undone.
    fn apply<'a>(
        &'a mut self,
        connection: &'a mut SqliteConnection,
        database: &'a Path,
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Answers after the commit; with the error of the whole batch, when there was one.
    fn answer(self: Box<Self>, batch: Result<(), StoreError>);
}

struct Pending<T, W> {
    work: Option<W>,
    answer: Option<Result<T, StoreError>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, W> Operation for Pending<T, W>
where
    T: Send,
    W: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, Failure>> + Send,
{
    fn apply<'a>(
        &'a mut self,
        connection: &'a mut SqliteConnection,
        database: &'a Path,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let Some(work) = self.work.take() else { return Err(closed()) };
            let answer = work(connection).await.map_err(|failure| failure.tell(database));
            self.answer.insert(answer).as_ref().map(|_| ()).map_err(Clone::clone)
        })
    }

    fn answer(self: Box<Self>, batch: Result<(), StoreError>) {
        let answer = match (batch, self.answer) {
            (Err(error), _) => Err(error),
            (Ok(()), Some(answer)) => answer,
            (Ok(()), None) => Err(closed()),
        };
        // Whoever asked may have gone: what is committed stays committed.
        let _gone = self.reply.send(answer);
    }
}

async fn run(
    mut connection: SqliteConnection,
    lock: ProcessLock,
    database: PathBuf,
    mut receiver: mpsc::Receiver<Message>,
) {
    let mut messages = Vec::with_capacity(MAX_BATCH);
    let mut closing = None;
    while closing.is_none() && receiver.recv_many(&mut messages, MAX_BATCH).await > 0 {
        let mut batch = Vec::with_capacity(messages.len());
        for message in messages.drain(..) {
            match message {
                Message::Operation(operation) if closing.is_none() => batch.push(operation),
                // Dropped unanswered: it came after the end and reads that the store is closed.
                Message::Operation(_) => {}
                Message::Close(reply) => closing = Some(reply),
            }
        }
        if !batch.is_empty() {
            commit(&mut connection, batch, &database).await;
        }
    }
    let ended = end(connection).await.map_err(|failure| failure.tell(&database));
    if let Err(error) = &ended {
        tracing::warn!(error = %error, "the database could not be tidied up at the end; nothing is lost");
    }
    drop(lock);
    if let Some(reply) = closing {
        let _gone = reply.send(ended);
    }
}

/// Brings the write-ahead log into the database and empties it.
pub(crate) async fn checkpoint(connection: &mut SqliteConnection) -> Result<(), Failure> {
    sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut *connection).await?;
    Ok(())
}

async fn end(mut connection: SqliteConnection) -> Result<(), Failure> {
    let checkpointed = checkpoint(&mut connection).await;
    connection.close().await?;
    checkpointed
}

async fn commit(connection: &mut SqliteConnection, mut batch: Vec<Box<dyn Operation>>, database: &Path) {
    let outcome = match apply_all(connection, &mut batch, database).await {
        Ok(()) => Ok(()),
        Err(error) => {
            // SQLite may have rolled back by itself, for example on a full disk; then there is nothing left to undo.
            let _nothing_left = sqlx::query("ROLLBACK").execute(&mut *connection).await;
            Err(error)
        }
    };
    for operation in batch {
        operation.answer(outcome.clone());
    }
}

async fn apply_all(
    connection: &mut SqliteConnection,
    batch: &mut [Box<dyn Operation>],
    database: &Path,
) -> Result<(), StoreError> {
    let tell = |error: sqlx::Error| Failure::from(error).tell(database);
    execute(connection, "BEGIN IMMEDIATE").await.map_err(tell)?;
    for operation in batch.iter_mut() {
        execute(connection, "SAVEPOINT operation").await.map_err(tell)?;
        if let Err(error) = operation.apply(connection, database).await {
            // Where the savepoint is gone, the error was one of those that end the whole transaction; it says why.
            execute(connection, "ROLLBACK TO operation").await.map_err(|_| error)?;
        }
        execute(connection, "RELEASE operation").await.map_err(tell)?;
    }
    execute(connection, "COMMIT").await.map_err(tell)
}

async fn execute(connection: &mut SqliteConnection, sql: &'static str) -> Result<(), sqlx::Error> {
    sqlx::query(sql).execute(connection).await?;
    Ok(())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
mod tests {
    use futures::future::{join_all, try_join_all};
    use sqlx::ConnectOptions;
    use sqlx::sqlite::SqliteConnectOptions;

    use super::*;

    struct Bench {
        folder: tempfile::TempDir,
        writer: Writer,
    }

    async fn bench() -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("test.db");
        let mut connection =
            SqliteConnectOptions::new().filename(&database).create_if_missing(true).connect().await.unwrap();
        sqlx::query("CREATE TABLE t (n INTEGER UNIQUE)").execute(&mut connection).await.unwrap();
        let lock = ProcessLock::take(folder.path()).unwrap();
        Bench { writer: Writer::start(connection, lock, database), folder }
    }

    async fn insert(connection: &mut SqliteConnection, n: i64) -> Result<(), Failure> {
        sqlx::query("INSERT INTO t VALUES (?1)").bind(n).execute(connection).await?;
        Ok(())
    }

    impl Bench {
        async fn insert(&self, n: i64) -> Result<(), StoreError> {
            self.writer.write(move |connection| Box::pin(insert(connection, n))).await
        }

        async fn stored(&self) -> Vec<i64> {
            let options = SqliteConnectOptions::new().filename(self.folder.path().join("test.db"));
            let mut connection = options.connect().await.unwrap();
            sqlx::query_scalar("SELECT n FROM t ORDER BY n").fetch_all(&mut connection).await.unwrap()
        }
    }

    #[tokio::test]
    async fn an_operation_that_fails_undoes_itself_and_nobody_else() {
        let bench = bench().await;
        let failing = bench.writer.write(|connection| {
            Box::pin(async move {
                insert(connection, 2).await?;
                insert(connection, 1).await
            })
        });
        let (first, failed, last) = tokio::join!(bench.insert(1), failing, bench.insert(3));
        assert!(first.is_ok() && last.is_ok());
        assert!(failed.unwrap_err().to_string().contains("UNIQUE"));
        assert_eq!(bench.stored().await, [1, 3]);
    }

    #[tokio::test]
    async fn what_waits_together_shares_one_transaction_and_its_fate() {
        let bench = bench().await;
        let breaking = bench.writer.write(|connection| {
            Box::pin(async move {
                sqlx::query("ROLLBACK").execute(connection).await?;
                Ok(())
            })
        });
        let (first, broken, last) = tokio::join!(bench.insert(1), breaking, bench.insert(2));
        assert!(first.is_err() && broken.is_err() && last.is_err(), "nobody is told of a commit that was none");
        assert_eq!(bench.stored().await, Vec::<i64>::new());
        bench.insert(4).await.unwrap();
        assert_eq!(bench.stored().await, [4]);
    }

    #[tokio::test]
    async fn more_than_fits_the_queue_is_done_all_the_same() {
        let bench = bench().await;
        let many = i64::try_from(MAX_QUEUE).unwrap() + 100;
        try_join_all((0..many).map(|n| bench.insert(n))).await.unwrap();
        assert_eq!(bench.stored().await.len(), MAX_QUEUE + 100);
    }

    #[tokio::test]
    async fn closing_finishes_what_waits_and_refuses_what_comes_later() {
        let bench = bench().await;
        let waiting = join_all((0..10).map(|n| bench.insert(n)));
        let (waited, closed) = tokio::join!(waiting, bench.writer.close());
        assert!(waited.iter().all(Result::is_ok));
        closed.unwrap();
        assert!(bench.insert(11).await.unwrap_err().to_string().contains("closed"));
        assert_eq!(bench.stored().await.len(), 10);
        ProcessLock::take(bench.folder.path()).unwrap();
    }
}
