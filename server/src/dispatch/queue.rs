//! Who waits for steps, by kind: all workers of one kind can take the same, so one look answers for all of them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nightshift_protocol::id::WorkerId;
use nightshift_protocol::machine::Needs;
use tokio::sync::Notify;

use super::reach::{Reach, Taker};

/// Kinds that are remembered while nobody of them waits.
const MAX_IDLE_KINDS: usize = 1_024;
/// Routes that are remembered. Steps of further ones are found by nobody's wake-up, only by a claim that names them.
const MAX_ROUTES: usize = 10_000;

/// Somebody who waits.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) worker: WorkerId,
    pub(super) bell: Notify,
    woken: AtomicBool,
}

impl Waiter {
    pub(super) fn new(worker: WorkerId) -> Self {
        Self { worker, bell: Notify::new(), woken: AtomicBool::new(false) }
    }

    /// Whether it was woken since it looked last.
    pub(super) fn take_woken(&self) -> bool {
        self.woken.swap(false, Ordering::SeqCst)
    }

    fn wake(&self) {
        self.woken.store(true, Ordering::SeqCst);
        self.bell.notify_one();
    }
}

/// A look into the store that is worth it.
pub(super) struct Look {
    pub(super) reach: Arc<Reach>,
    /// What was known when it began.
    pub(super) version: u64,
}

struct Kind {
    taker: Taker,
    reach: Arc<Reach>,
    /// Counts what may have made a step ready for this kind.
    version: u64,
    /// The version at which nothing was there.
    empty_at: Option<u64>,
    waiting: BTreeMap<u64, Arc<Waiter>>,
}

/// The queue.
#[derive(Default)]
pub(super) struct Queue {
    routes: HashMap<String, Needs>,
    kinds: HashMap<String, Kind>,
    last_ticket: u64,
}

impl Queue {
    /// Learns of routes; those that cannot be read are nobody's.
    pub(super) fn learn<'a>(&mut self, routes: impl IntoIterator<Item = &'a str>) {
        let mut news = false;
        for route in routes {
            if self.routes.len() < MAX_ROUTES
                && !self.routes.contains_key(route)
                && let Ok(needs) = Needs::parse_route(route)
            {
                self.routes.insert(route.to_owned(), needs);
                news = true;
            }
        }
        if news {
            for kind in self.kinds.values_mut() {
                kind.reach = Arc::new(reach(&self.routes, &kind.taker));
                kind.version += 1;
            }
        }
    }

    /// Queues up behind the others, and gives the ticket.
    pub(super) fn join(&mut self, key: &str, taker: &Taker, waiter: &Arc<Waiter>) -> u64 {
        self.last_ticket += 1;
        if !self.kinds.contains_key(key) {
            self.forget_idle_kinds();
            let reach = Arc::new(reach(&self.routes, taker));
            let kind = Kind { taker: taker.clone(), reach, version: 0, empty_at: None, waiting: BTreeMap::new() };
            self.kinds.insert(key.to_owned(), kind);
        }
        if let Some(kind) = self.kinds.get_mut(key) {
            kind.waiting.insert(self.last_ticket, waiter.clone());
        }
        self.last_ticket
    }

    pub(super) fn leave(&mut self, key: &str, ticket: u64) {
        if let Some(kind) = self.kinds.get_mut(key) {
            kind.waiting.remove(&ticket);
        }
    }

    pub(super) fn is_queued(&self, key: &str, ticket: u64) -> bool {
        self.kinds.get(key).is_some_and(|kind| kind.waiting.contains_key(&ticket))
    }

    /// The look that somebody of this kind should take: none when it is known that nothing is there.
    pub(super) fn look(&self, key: &str, woken: bool) -> Option<Look> {
        let kind = self.kinds.get(key)?;
        let known_empty = kind.empty_at == Some(kind.version) && !woken;
        (!known_empty && !kind.reach.is_empty()).then(|| Look { reach: kind.reach.clone(), version: kind.version })
    }

    /// A look that began at this version found nothing.
    pub(super) fn found_nothing(&mut self, key: &str, version: u64) {
        if let Some(kind) = self.kinds.get_mut(key) {
            kind.empty_at = Some(version);
        }
    }

    /// Steps of this route became ready: wakes whoever waits longest for one of them.
    pub(super) fn ready(&mut self, route: &str) {
        self.learn([route]);
        for kind in self.kinds.values_mut().filter(|kind| kind.reach.contains(route)) {
            kind.version += 1;
        }
        self.wake_one(route);
    }

    /// Wakes whoever waits longest among those who can take a step of this route.
    pub(super) fn wake_one(&mut self, route: &str) -> bool {
        let fitting = self.kinds.values_mut().filter(|kind| kind.reach.contains(route));
        let longest = fitting
            .filter_map(|kind| Some((*kind.waiting.first_key_value()?.0, kind)))
            .min_by_key(|(ticket, _)| *ticket);
        let Some((_, kind)) = longest else { return false };
        if let Some((_, waiter)) = kind.waiting.pop_first() {
            waiter.wake();
        }
        true
    }

    /// Something may be ready, it is not known what: one of each kind looks, and wakes others when it finds something.
    pub(super) fn probe(&mut self) {
        for kind in self.kinds.values_mut() {
            kind.version += 1;
            if let Some((_, waiter)) = kind.waiting.pop_first() {
                waiter.wake();
            }
        }
    }

    /// Somebody of this kind was woken and went away without looking: the next one looks.
    pub(super) fn pass_on(&mut self, key: &str) {
        if let Some(kind) = self.kinds.get_mut(key)
            && let Some((_, waiter)) = kind.waiting.pop_first()
        {
            waiter.wake();
        }
    }

    /// Wakes this worker, so that it hears what it was told.
    pub(super) fn wake_worker(&mut self, worker: &WorkerId) {
        for kind in self.kinds.values_mut() {
            kind.waiting.retain(|_, waiter| {
                let stays = waiter.worker != *worker;
                if !stays {
                    waiter.wake();
                }
                stays
            });
        }
    }

    /// Everybody who waits.
    pub(super) fn waiting(&self) -> HashSet<WorkerId> {
        self.kinds.values().flat_map(|kind| kind.waiting.values().map(|waiter| waiter.worker.clone())).collect()
    }

    fn forget_idle_kinds(&mut self) {
        if self.kinds.len() >= MAX_IDLE_KINDS {
            self.kinds.retain(|_, kind| !kind.waiting.is_empty());
        }
    }
}

fn reach(routes: &HashMap<String, Needs>, taker: &Taker) -> Reach {
    Reach::new(taker, routes.iter().map(|(route, needs)| (route.as_str(), needs)))
}
