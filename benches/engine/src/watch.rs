//! Waits for the ends of runs: listens to the store as other parts of a process would, and believes only what it reads.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::ensure;
use futures::StreamExt as _;
use nightshift_engine::store::{Notice, Store, StoreError};
use nightshift_protocol::id::RunId;
use nightshift_protocol::run::RunStatus;
use sqlx::{Connection as _, PgConnection};
use tokio::sync::{Semaphore, mpsc};

use crate::trivial;

/// How often everything is looked at, whatever was heard.
const SWEEP: Duration = Duration::from_secs(2);
/// Time between two queries for runs that have ended, with several servers: their bundled notices cannot be counted.
const QUERY: Duration = Duration::from_millis(50);

/// A run that is waited for.
#[derive(Debug, Clone, Copy)]
struct Awaited {
    first: u64,
    began: Instant,
    /// Changes heard of since it began.
    heard: u64,
}

/// A run that has ended well.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended {
    pub(crate) took: Duration,
    pub(crate) at: Instant,
}

/// Runs in flight, and those that ended.
pub(crate) struct Watch {
    store: Store,
    steps: u64,
    awaited: Mutex<HashMap<RunId, Awaited>>,
    ended: mpsc::UnboundedSender<anyhow::Result<Ended>>,
    room: Arc<Semaphore>,
}

impl Watch {
    /// A watch over runs of this many steps; each that ends gives a place back to `room`.
    pub(crate) fn new(
        store: Store,
        steps: u64,
        room: Arc<Semaphore>,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<anyhow::Result<Ended>>) {
        let (ended, ends) = mpsc::unbounded_channel();
        (Arc::new(Self { store, steps, awaited: Mutex::default(), ended, room }), ends)
    }

    /// Waits for this run from now on.
    pub(crate) fn expect(&self, run: RunId, first: u64) {
        self.awaited().insert(run, Awaited { first, began: Instant::now(), heard: 0 });
    }

    /// Listens, until it is dropped.
    pub(crate) async fn listen(self: Arc<Self>) {
        let mut notices = self.store.database.notices();
        let mut sweep = tokio::time::interval_at(tokio::time::Instant::now() + SWEEP, SWEEP);
        loop {
            tokio::select! {
                notice = notices.next() => match notice {
                    Some(Notice::RunChanged(run)) => self.heard(run.id),
                    Some(Notice::Unknown) | None => self.look_at_all(),
                    Some(_) => {}
                },
                _ = sweep.tick() => self.look_at_all(),
            }
        }
    }

    /// Asks the database which runs have ended, until it is dropped.
    pub(crate) async fn query(self: Arc<Self>, url: String) {
        if let Err(error) = self.query_ended(&url).await {
            // The receiver is gone when the measurement has failed.
            let _ = self.ended.send(Err(error));
        }
    }

    async fn query_ended(self: &Arc<Self>, url: &str) -> anyhow::Result<()> {
        let mut connection = PgConnection::connect(url).await?;
        let mut tick = tokio::time::interval(QUERY);
        loop {
            tick.tick().await;
            let runs: Vec<String> = self.awaited().keys().map(ToString::to_string).collect();
            let ended: Vec<String> = sqlx::query_scalar(
                "SELECT public_id FROM run WHERE public_id = ANY ($1) AND finished_at_ms IS NOT NULL",
            )
            .bind(runs)
            .fetch_all(&mut connection)
            .await?;
            for run in ended {
                tokio::spawn(Arc::clone(self).look(run.parse()?));
            }
        }
    }

    /// A run changed. Its creation, the first decision and each of its steps are commits of their own, so there is nothing
    /// to read before the last of them.
    fn heard(self: &Arc<Self>, run: RunId) {
        let is_near_its_end = match self.awaited().get_mut(&run) {
            Some(awaited) => {
                awaited.heard += 1;
                awaited.heard >= self.steps + 2
            }
            None => false,
        };
        if is_near_its_end {
            tokio::spawn(Arc::clone(self).look(run));
        }
    }

    fn look_at_all(self: &Arc<Self>) {
        let runs: Vec<RunId> = self.awaited().keys().cloned().collect();
        for run in runs {
            tokio::spawn(Arc::clone(self).look(run));
        }
    }

    async fn look(self: Arc<Self>, run: RunId) {
        let read = self.read(&run).await;
        let result = match read {
            Ok(None) => return,
            Ok(Some(sum)) => Ok(sum),
            Err(error) => Err(error),
        };
        // Only the thread that removes it reports it.
        let Some(awaited) = self.awaited().remove(&run) else { return };
        let at = Instant::now();
        let result = result.and_then(|sum| {
            let expected = awaited.first + self.steps;
            ensure!(sum == expected, "the run of {} came to {sum} instead of {expected}", awaited.first);
            Ok(Ended { took: at.duration_since(awaited.began), at })
        });
        // The receiver is gone when the measurement has failed.
        let _ = self.ended.send(result);
        self.room.add_permits(1);
    }

    /// What a run has come to, once it is over.
    async fn read(&self, run: &RunId) -> anyhow::Result<Option<u64>> {
        let record = match self.store.runs.load_run(run).await {
            // It is waited for since before its creation was committed.
            Err(StoreError::NotFound { .. }) => return Ok(None),
            read => read?,
        };
        if !record.status.is_final() {
            return Ok(None);
        }
        ensure!(record.status == RunStatus::Completed, "a run ended as {:?}: {:?}", record.status, record.failure);
        let (sum, done) = trivial::outcome(&record.state.unwrap_or_default())?;
        ensure!(done == self.steps, "a run ended after {done} of {} steps", self.steps);
        Ok(Some(sum))
    }

    fn awaited(&self) -> MutexGuard<'_, HashMap<RunId, Awaited>> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
