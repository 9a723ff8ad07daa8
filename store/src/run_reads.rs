//! Batches concurrent reads of single runs into one statement, because each read is a round trip and a transaction for
//! Postgres.
//!
//! Concurrent reads come from a driver that acquires many runs, and from observers after a commit that changed many. A
//! read that arrives during a statement is answered by the next one, so it sees every earlier commit.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nightshift_engine::store::{RunRecord, StoreError};
use nightshift_protocol::id::RunId;
use sqlx::postgres::PgPool;
use tokio::sync::oneshot;

use crate::catalog::run;
use crate::connection::Connection;
use crate::failure::{Failure, Place};
use crate::writer::closed;

/// Maximum number of runs per statement.
const MAX_AT_ONCE: usize = 64;

/// Result of a statement, by public id.
type Found = HashMap<String, Result<RunRecord, Failure>>;
type Asked = (RunId, oneshot::Sender<Result<RunRecord, StoreError>>);

/// The batching reader. See the module.
#[derive(Clone)]
pub(crate) struct RunReads {
    pool: PgPool,
    place: Place,
    queue: Arc<Mutex<Queue>>,
}

#[derive(Default)]
struct Queue {
    asked: Vec<Asked>,
    /// Whether a task is serving reads.
    is_served: bool,
}

impl RunReads {
    /// Creates a reader over a pool.
    pub(crate) fn new(pool: PgPool, place: Place) -> Self {
        Self { pool, place, queue: Arc::default() }
    }

    /// Loads one run with its state.
    pub(crate) async fn load(&self, run: &RunId) -> Result<RunRecord, StoreError> {
        let (reply, answer) = oneshot::channel();
        let begins = {
            let mut queue = self.queue();
            queue.asked.push((run.clone(), reply));
            !std::mem::replace(&mut queue.is_served, true)
        };
        if begins {
            // A separate task, so that a dropped caller does not affect the others.
            tokio::spawn(self.clone().serve());
        }
        answer.await.map_err(|_| closed())?
    }

    /// Serves reads until none is left.
    async fn serve(self) {
        loop {
            // Lets other receivers of the same notice add their reads.
            tokio::task::yield_now().await;
            let asked: Vec<Asked> = {
                let mut queue = self.queue();
                if queue.asked.is_empty() {
                    queue.is_served = false;
                    return;
                }
                let count = queue.asked.len().min(MAX_AT_ONCE);
                queue.asked.drain(..count).collect()
            };
            let runs: HashSet<&str> = asked.iter().map(|(run, _)| run.as_str()).collect();
            let found = self.read(runs.into_iter().map(str::to_owned).collect()).await;
            self.answer(asked, found);
        }
    }

    /// Reads runs, over another connection when one broke.
    async fn read(&self, runs: Vec<String>) -> Result<Found, Failure> {
        let mut broken = 0;
        loop {
            let mut reader = Connection::Postgres(self.pool.acquire().await?);
            match run::load_many(&mut reader, runs.clone()).await {
                Err(failure)
                    if failure.is_of_the_connection() && broken < self.pool.options().get_max_connections() =>
                {
                    reader.discard().await;
                    broken += 1;
                }
                done => return done,
            }
        }
    }

    fn answer(&self, asked: Vec<Asked>, found: Result<Found, Failure>) {
        let found = found.map_err(|failure| failure.into_store_error(&self.place)).map(|found| {
            let told =
                found.into_iter().map(|(id, run)| (id, run.map_err(|failure| failure.into_store_error(&self.place))));
            told.collect::<HashMap<_, _>>()
        });
        for (run, reply) in asked {
            let answer = match &found {
                Ok(found) => found
                    .get(run.as_str())
                    .cloned()
                    .unwrap_or_else(|| Err(StoreError::NotFound { noun: "run", id: run.as_str().to_owned() })),
                Err(error) => Err(error.clone()),
            };
            // The caller may be gone.
            let _gone = reply.send(answer);
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
