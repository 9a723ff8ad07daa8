//! The tasks that commit. All changes that wait when a task is free share one transaction and one wait for the disk.
//!
//! On SQLite, one task on a thread of its own has the only connection that writes. Hot changes and rare operations go
//! through it, and each group of changes and each operation succeeds or fails on its own. On Postgres, the tasks handle
//! hot changes only, and a rare operation has a short transaction of its own (`redo.rs`). Answers follow the commit. If
//! the commit fails, nothing is stored and every caller gets the error.

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
mod tests;

use std::sync::Arc;

use futures::future::BoxFuture;
use nightshift_engine::store::{Change, Changed, StoreError};
use tokio::sync::{Mutex, mpsc, oneshot};

use crate::connection::Connection;
use crate::failure::{Failure, Place};
use crate::scheduling;
use crate::surroundings::Surroundings;
use crate::transaction::Transaction;

/// Maximum number of groups and operations per commit.
pub(crate) const MAX_BATCH: usize = 512;
/// Capacity of the queue. Further callers wait for a place.
pub(crate) const MAX_QUEUE: usize = 1_024;

/// Maximum number of repetitions of a whole batch that lost against another server's transaction.
const MAX_REDONE: u32 = 5;

/// The body of a rare operation. It may run again after a rollback.
pub(crate) type Work<T> =
    Box<dyn for<'t, 'c> Fn(&'t mut Transaction<'c>) -> BoxFuture<'t, Result<T, Failure>> + Send + Sync>;

type Answered = Result<Vec<Changed>, StoreError>;

/// Receiver of the end of a task.
pub(crate) type Closing = oneshot::Sender<Result<(), StoreError>>;

/// A message to a task.
pub(crate) enum Message {
    /// Hot changes of one caller.
    Group(Vec<Change>, oneshot::Sender<Answered>),
    /// A rare operation; on SQLite only.
    Operation(Box<dyn Operation>),
    /// Finish, clean up, answer, end.
    Close(Closing),
}

/// The handle to the tasks.
#[derive(Debug, Clone)]
pub(crate) struct Writer {
    sender: mpsc::Sender<Message>,
}

impl Writer {
    /// Creates the handle and the receiver for the tasks.
    pub(crate) fn new() -> (Self, mpsc::Receiver<Message>) {
        let (sender, receiver) = mpsc::channel(MAX_QUEUE);
        (Self { sender }, receiver)
    }

    /// Commits hot changes.
    pub(crate) async fn commit(&self, changes: Vec<Change>) -> Answered {
        let (reply, answer) = oneshot::channel();
        self.sender.send(Message::Group(changes, reply)).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }

    /// Runs an operation.
    pub(crate) async fn write<T: Send + 'static>(&self, work: Work<T>) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let operation = Box::new(Pending { work, answer: None, reply });
        self.sender.send(Message::Operation(operation)).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }

    /// Ends one task after its pending work. Closing again has no effect.
    pub(crate) async fn close(&self) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        if self.sender.send(Message::Close(reply)).await.is_err() {
            return Ok(());
        }
        answer.await.unwrap_or(Ok(()))
    }
}

pub(crate) fn closed() -> StoreError {
    StoreError::Other("the store is closed".to_owned())
}

/// An operation with the channel for its answer.
pub(crate) trait Operation: Send {
    /// Runs the operation. After an error its changes must be rolled back.
    fn apply<'a>(
        &'a mut self,
        transaction: &'a mut Transaction<'_>,
        place: &'a Place,
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Answers after the commit, with the error of the whole transaction if it failed.
    fn answer(self: Box<Self>, outcome: Result<(), StoreError>);
}

struct Pending<T> {
    work: Work<T>,
    answer: Option<Result<T, StoreError>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T: Send> Operation for Pending<T> {
    fn apply<'a>(
        &'a mut self,
        transaction: &'a mut Transaction<'_>,
        place: &'a Place,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let answer = (self.work)(transaction).await.map_err(|failure| failure.into_store_error(place));
            self.answer.insert(answer).as_ref().map(|_| ()).map_err(Clone::clone)
        })
    }

    fn answer(self: Box<Self>, outcome: Result<(), StoreError>) {
        let answer = match (outcome, self.answer) {
            (Err(error), _) => Err(error),
            (Ok(()), Some(answer)) => answer,
            (Ok(()), None) => Err(closed()),
        };
        // The caller may be gone. The commit stands.
        let _gone = self.reply.send(answer);
    }
}

/// Changes and operations of one commit.
#[derive(Default)]
struct Batch {
    groups: Vec<Vec<Change>>,
    replies: Vec<oneshot::Sender<Answered>>,
    operations: Vec<Box<dyn Operation>>,
}

/// The loop of a task. Returns its source, and the receivers that wait for its end.
pub(crate) async fn run<S: Source>(
    mut source: S,
    around: Surroundings,
    receiver: Arc<Mutex<mpsc::Receiver<Message>>>,
) -> (S, Option<Closing>) {
    let mut messages = Vec::with_capacity(MAX_BATCH);
    loop {
        if gather(&mut source, &mut *receiver.lock().await, &mut messages).await == 0 {
            return (source, None);
        }
        let mut batch = Batch::default();
        let mut closing = None;
        for message in messages.drain(..) {
            match message {
                // Dropped without an answer: it arrived after the end, and the caller gets the error that the store is
                // closed.
                _ if closing.is_some() => {}
                Message::Group(changes, reply) => {
                    batch.groups.push(changes);
                    batch.replies.push(reply);
                }
                Message::Operation(operation) => batch.operations.push(operation),
                Message::Close(reply) => closing = Some(reply),
            }
        }
        if !batch.replies.is_empty() || !batch.operations.is_empty() {
            match begin(&mut source).await {
                Ok(connection) => commit(&mut source, connection, batch, &around).await,
                Err(failure) => batch.refuse(&failure.into_store_error(&around.place)),
            }
        }
        if closing.is_some() {
            return (source, closing);
        }
    }
}

/// Collects pending work, after callers that just got an answer had the chance to add more: a commit costs nearly the
/// same for one change as for many.
///
/// It yields to other tasks and never waits, so a single caller is not delayed.
async fn gather<S: Source>(
    source: &mut S,
    receiver: &mut mpsc::Receiver<Message>,
    messages: &mut Vec<Message>,
) -> usize {
    let mut count = receiver.recv_many(messages, MAX_BATCH).await;
    while (1..MAX_BATCH).contains(&count) {
        source.let_others_run().await;
        if receiver.is_empty() {
            break;
        }
        count += receiver.recv_many(messages, MAX_BATCH - count).await;
    }
    count
}

/// Returns a connection with an open transaction. A connection that broke while idle is replaced.
async fn begin<S: Source>(source: &mut S) -> Result<Connection, Failure> {
    let mut connection = source.take().await?;
    let Err(failure) = connection.begin().await else { return Ok(connection) };
    source.give_back(connection, false).await;
    let mut connection = source.take().await?;
    if connection.begin().await.is_ok() {
        return Ok(connection);
    }
    source.give_back(connection, false).await;
    Err(failure)
}

/// Source of a task's connection.
pub(crate) trait Source: Send {
    /// Yields to tasks that can run, without waiting.
    fn let_others_run(&mut self) -> impl Future<Output = ()> + Send;

    /// Returns a connection without an open transaction.
    fn take(&mut self) -> impl Future<Output = Result<Connection, Failure>> + Send;

    /// Returns a connection to the source. An unsound one may have an open transaction.
    fn give_back(&mut self, connection: Connection, sound: bool) -> impl Future<Output = ()> + Send;
}

impl Batch {
    fn refuse(self, error: &StoreError) {
        for reply in self.replies {
            let _gone = reply.send(Err(error.clone()));
        }
        for operation in self.operations {
            operation.answer(Err(error.clone()));
        }
    }
}

/// Commits a batch in the open transaction, answers, and returns the connection.
async fn commit<S: Source>(source: &mut S, mut connection: Connection, mut batch: Batch, around: &Surroundings) {
    let mut outcome = together(&mut connection, &mut batch, around).await;
    if outcome.as_ref().is_err_and(Failure::is_of_the_connection) && connection.is_unanswered() {
        // It broke while idle.
        source.give_back(connection, false).await;
        connection = match begin(source).await {
            Ok(connection) => connection,
            Err(failure) => return batch.refuse(&failure.into_store_error(&around.place)),
        };
        outcome = together(&mut connection, &mut batch, around).await;
    }
    let (answers, sound) = settle(&mut connection, &mut batch, around, outcome).await;
    match answers {
        Ok(answers) => {
            for (reply, answer) in batch.replies.into_iter().zip(answers) {
                let _gone = reply.send(answer);
            }
            for operation in batch.operations {
                operation.answer(Ok(()));
            }
        }
        Err(failure) => batch.refuse(&failure.into_store_error(&around.place)),
    }
    source.give_back(connection, sound).await;
}

/// Completes a batch after its first attempt. Returns the result, and whether the connection is sound.
async fn settle(
    connection: &mut Connection,
    batch: &mut Batch,
    around: &Surroundings,
    mut outcome: Result<Vec<Answered>, Failure>,
) -> (Result<Vec<Answered>, Failure>, bool) {
    let mut sound = true;
    let mut redone = 0;
    while redone < MAX_REDONE && outcome.as_ref().is_err_and(Failure::asks_for_redo) {
        // It lost against another server's transaction, and is repeated as a whole.
        redone += 1;
        let begun = match connection.rollback().await {
            Ok(()) => connection.begin().await,
            Err(failure) => Err(failure),
        };
        outcome = match begun {
            Ok(()) => together(connection, batch, around).await,
            Err(failure) => Err(failure),
        };
    }
    if outcome.is_err() {
        // SQLite may have rolled back by itself, for example on a full disk. Then nothing is left to roll back.
        sound = connection.rollback().await.is_ok() || connection.is_idle().await;
        if sound && !batch.groups.is_empty() {
            outcome = one_by_one(connection, batch, around).await;
            if outcome.is_err() {
                sound = connection.rollback().await.is_ok() || connection.is_idle().await;
            }
        }
    }
    (outcome, sound)
}

/// The regular path: all groups with a fixed number of statements, then each operation.
async fn together(
    connection: &mut Connection,
    batch: &mut Batch,
    around: &Surroundings,
) -> Result<Vec<Answered>, Failure> {
    let mut transaction = Transaction::new(connection, &around.memory);
    let mut answers = Vec::new();
    let mut wrote = !batch.operations.is_empty();
    if !batch.groups.is_empty() {
        let groups: Vec<&[Change]> = batch.groups.iter().map(Vec::as_slice).collect();
        let flushed = scheduling::flush(&mut transaction, &groups).await?;
        answers = flushed.answers;
        wrote |= flushed.wrote;
    }
    operate(&mut transaction, &mut batch.operations, around).await?;
    finish(transaction, wrote, around).await?;
    Ok(answers)
}

/// The path after a failure: each group in a savepoint of its own, so that the failing one fails alone.
async fn one_by_one(
    connection: &mut Connection,
    batch: &mut Batch,
    around: &Surroundings,
) -> Result<Vec<Answered>, Failure> {
    connection.begin().await?;
    let mut transaction = Transaction::new(connection, &around.memory);
    let mut answers = Vec::with_capacity(batch.groups.len());
    for group in &batch.groups {
        transaction.connection.mark().await?;
        let before = transaction.take_effects();
        match scheduling::flush(&mut transaction, &[group.as_slice()]).await {
            Ok(mut flushed) => {
                transaction.connection.keep().await?;
                transaction.add_effects(before);
                answers.push(flushed.answers.pop().unwrap_or_else(|| Err(closed())));
            }
            Err(failure) => {
                // A missing savepoint means that the failure ended the whole transaction.
                let undone = transaction.connection.undo().await;
                transaction.take_effects();
                transaction.add_effects(before);
                if undone.is_err() {
                    return Err(failure);
                }
                answers.push(Err(failure.into_store_error(&around.place)));
            }
        }
    }
    operate(&mut transaction, &mut batch.operations, around).await?;
    finish(transaction, true, around).await?;
    Ok(answers)
}

/// Runs each operation in a savepoint of its own.
async fn operate(
    transaction: &mut Transaction<'_>,
    operations: &mut [Box<dyn Operation>],
    around: &Surroundings,
) -> Result<(), Failure> {
    for operation in operations {
        transaction.connection.mark().await?;
        let before = transaction.take_effects();
        match operation.apply(transaction, &around.place).await {
            Ok(()) => {
                transaction.connection.keep().await?;
                transaction.add_effects(before);
            }
            Err(error) => {
                transaction.take_effects();
                transaction.add_effects(before);
                // A missing savepoint means that the error ended the whole transaction. Report that error.
                transaction.connection.undo().await.map_err(|_| error)?;
            }
        }
    }
    Ok(())
}

async fn finish(transaction: Transaction<'_>, wrote: bool, around: &Surroundings) -> Result<(), Failure> {
    if wrote {
        transaction.connection.commit().await?;
        transaction.publish(around);
    } else {
        transaction.connection.rollback().await?;
    }
    Ok(())
}
