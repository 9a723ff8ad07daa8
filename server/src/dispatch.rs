//! Gives ready steps to those who wait for them, first come, first served, and without a herd: a step that becomes ready
//! wakes one worker that can take it. One that found something wakes two more, because a notice does not say how many
//! there are; one that found nothing wakes nobody. The pulse is the truth behind the notices.

mod queue;
mod reach;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nightshift_engine::store::{StepRecord, Store, StoreError};
use nightshift_protocol::id::WorkerId;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(crate) use self::reach::{Reach, Taker};

use self::queue::{MAX_ROUTES, Queue, Waiter};

/// Who is woken for each one that found something.
const FAN_OUT: usize = 2;

/// The dispatcher.
#[derive(Default)]
pub(crate) struct Dispatcher {
    queue: Mutex<Queue>,
}

impl Dispatcher {
    /// Reads the routes of ready steps from the store, and forgets those that had none for long.
    pub(crate) async fn refresh_routes(&self, store: &dyn Store) -> Result<(), StoreError> {
        let ready = store.ready_routes(MAX_ROUTES).await?;
        self.queue().refresh(&ready);
        Ok(())
    }

    /// Steps of this route became ready.
    pub(crate) fn ready(&self, route: &str) {
        self.queue().ready(route);
    }

    /// Steps may be ready, it is not known which.
    pub(crate) fn probe(&self) {
        self.queue().probe();
    }

    /// This worker was told something.
    pub(crate) fn wake_worker(&self, worker: &WorkerId) {
        self.queue().wake_worker(worker);
    }

    /// Workers that wait.
    pub(crate) fn waiting(&self) -> HashSet<WorkerId> {
        self.queue().waiting()
    }

    /// What this taker can take, for a claim that does not wait.
    pub(crate) fn reach(&self, worker: &WorkerId, taker: &Taker) -> Arc<Reach> {
        let place = self.join(worker, taker);
        let look = self.queue().look(&place.key, true);
        look.map(|look| look.reach).unwrap_or_default()
    }

    /// Queues up for steps. Leaving the place leaves the queue.
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
    /// Calls `claim` whenever something may be there, until it gives something or the time is over. Ends early, with
    /// nothing, when nothing is to be claimed any more: because of `stop`, or because `told` says so when the worker is
    /// woken. A claim that was begun is never broken off by either.
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
                let looking = Looking { place: &*self, done: false };
                let claimed = claim(look.reach).await;
                // After an error nobody else tries at once: the pulse does when the store works again.
                looking.done();
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
                // Whoever is woken in this very moment passes it on when it leaves.
                () = tokio::time::sleep_until(until) => return Ok(Vec::new()),
            }
        }
    }

    /// Where one step was, there may be more.
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

    /// Whoever was woken has lost the place.
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

/// A look that is going on: when it is broken off, somebody else has to look.
struct Looking<'a, 'b> {
    place: &'a Place<'b>,
    done: bool,
}

impl Looking<'_, '_> {
    fn done(mut self) {
        self.done = true;
    }
}

impl Drop for Looking<'_, '_> {
    fn drop(&mut self) {
        if !self.done {
            self.place.dispatcher.queue().pass_on(&self.place.key);
        }
    }
}
