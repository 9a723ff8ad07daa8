//! Dispatches ready steps to waiting workers in FIFO order, without a thundering herd.
//!
//! A step that becomes ready wakes one worker that can take it. A worker that found a step wakes two more, because a
//! notice does not contain the number of steps. One that found nothing wakes no other. The heartbeat covers lost
//! notices.

mod claim;
mod queue;
mod reach;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nightshift_engine::store::{QueueStore, StepRecord, StoreError};
use nightshift_protocol::id::WorkerId;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(crate) use self::claim::Dispatch;
pub(crate) use self::reach::{Reach, Taker};

use self::queue::{MAX_ROUTES, Queue, Waiter};

/// Number of workers to wake after one found a step.
const FAN_OUT: usize = 2;

/// The dispatcher.
#[derive(Default)]
pub(crate) struct Dispatcher {
    queue: Mutex<Queue>,
}

impl Dispatcher {
    /// Reads the routes of ready steps from the store, and removes routes without steps for long.
    pub(crate) async fn refresh_routes(&self, queue: &dyn QueueStore) -> Result<(), StoreError> {
        let ready = queue.ready_routes(MAX_ROUTES).await?;
        self.queue().refresh(&ready);
        Ok(())
    }

    /// Wakes a worker after steps of this route became ready.
    pub(crate) fn ready(&self, route: &str) {
        self.queue().ready(route);
    }

    /// Wakes workers because steps of unknown routes may be ready.
    pub(crate) fn probe(&self) {
        self.queue().probe();
    }

    /// Wakes this worker because it has a message.
    pub(crate) fn wake_worker(&self, worker: &WorkerId) {
        self.queue().wake_worker(worker);
    }

    /// Returns the waiting workers.
    pub(crate) fn waiting(&self) -> HashSet<WorkerId> {
        self.queue().waiting()
    }

    /// Returns the routes that this taker can take, for a claim that does not wait.
    pub(crate) fn reach(&self, worker: &WorkerId, taker: &Taker) -> Arc<Reach> {
        let place = self.join(worker, taker);
        let look = self.queue().look(&place.key, true);
        look.map(|look| look.reach).unwrap_or_default()
    }

    /// Joins the queue. Dropping the place leaves the queue.
    pub(crate) fn join(&self, worker: &WorkerId, taker: &Taker) -> Place<'_> {
        let key = taker.kind();
        let waiter = Arc::new(Waiter::new(worker.clone()));
        let ticket = self.queue().join(&key, taker, &waiter);
        Place { dispatcher: self, key, taker: taker.clone(), waiter, ticket }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in the queue.
pub(crate) struct Place<'a> {
    dispatcher: &'a Dispatcher,
    key: String,
    taker: Taker,
    waiter: Arc<Waiter>,
    ticket: u64,
}

impl Place<'_> {
    /// Calls `claim` whenever steps may be ready, until it returns steps or the time is over.
    ///
    /// Returns none early when `stop` is cancelled, or when `told` says so after a wake-up. Neither aborts a claim in
    /// progress.
    pub(crate) async fn steps<F, C>(
        &mut self,
        until: Instant,
        stop: &CancellationToken,
        told: impl Fn() -> bool,
        mut claim: C,
    ) -> Result<Vec<StepRecord>, StoreError>
    where
        F: Future<Output = Result<Vec<StepRecord>, StoreError>>,
        C: FnMut(Arc<Reach>) -> F,
    {
        loop {
            let woken = self.waiter.take_woken();
            if stop.is_cancelled() || told() {
                return Ok(Vec::new());
            }
            let look = self.dispatcher.queue().look(&self.key, woken);
            if let Some(look) = look {
                let attempt = ClaimAttempt { place: &*self, done: false };
                let claimed = claim(look.reach).await;
                // After an error no other worker retries at once; the heartbeat wakes them when the store works again.
                attempt.done();
                let steps = claimed?;
                if !steps.is_empty() {
                    self.found(&steps);
                    return Ok(steps);
                }
                self.dispatcher.queue().found_nothing(&self.key, look.version);
            }
            if Instant::now() >= until {
                return Ok(Vec::new());
            }
            self.queue_up();
            tokio::select! {
                () = stop.cancelled() => return Ok(Vec::new()),
                () = self.waiter.bell.notified() => {}
                // A waiter that is woken at this moment passes the wake-up on when it leaves.
                () = tokio::time::sleep_until(until) => return Ok(Vec::new()),
            }
        }
    }

    /// After a step was found, more may be ready.
    fn found(&self, steps: &[StepRecord]) {
        let mut queue = self.dispatcher.queue();
        queue.leave(&self.key, self.ticket);
        let routes: HashSet<&str> = steps.iter().map(|step| step.route.as_str()).collect();
        for route in routes {
            for _ in 0..FAN_OUT {
                if !queue.wake_one(route) {
                    break;
                }
            }
        }
    }

    /// A woken waiter has lost its place.
    fn queue_up(&mut self) {
        let mut queue = self.dispatcher.queue();
        if !queue.is_queued(&self.key, self.ticket) {
            self.ticket = queue.join(&self.key, &self.taker, &self.waiter);
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut queue = self.dispatcher.queue();
        queue.leave(&self.key, self.ticket);
        if self.waiter.take_woken() {
            queue.pass_on(&self.key);
        }
    }
}

/// A claim attempt in progress. If it is aborted, another waiter has to try.
struct ClaimAttempt<'a, 'b> {
    place: &'a Place<'b>,
    done: bool,
}

impl ClaimAttempt<'_, '_> {
    fn done(mut self) {
        self.done = true;
    }
}

impl Drop for ClaimAttempt<'_, '_> {
    fn drop(&mut self) {
        if !self.done {
            self.place.dispatcher.queue().pass_on(&self.place.key);
        }
    }
}
