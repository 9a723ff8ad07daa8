//! The queue of waiting workers, grouped by kind. All workers of a kind can take the same steps, so one look at the
//! store answers for all of them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nightshift_protocol::id::WorkerId;
use nightshift_protocol::machine::Needs;
use tokio::sync::Notify;

use super::reach::{Reach, Taker};

/// Maximum number of kinds without waiting workers.
const MAX_IDLE_KINDS: usize = 1_024;
/// Maximum number of known routes, those with the lowest ranks.
pub(super) const MAX_ROUTES: u32 = 10_000;
/// Number of refreshes after which a route without ready steps is removed. Until then, a claim with a report names the
/// route and gets the step that this report makes ready.
const KEPT_REFRESHES: u64 = 150;

/// A waiting worker.
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

    /// Returns whether it was woken since its last look, and resets the flag.
    pub(super) fn take_woken(&self) -> bool {
        self.woken.swap(false, Ordering::SeqCst)
    }

    fn wake(&self) {
        self.woken.store(true, Ordering::SeqCst);
        self.bell.notify_one();
    }
}

/// A look into the store that may find steps.
pub(super) struct Look {
    pub(super) reach: Arc<Reach>,
    /// Version at its start.
    pub(super) version: u64,
}

struct Kind {
    taker: Taker,
    reach: Arc<Reach>,
    /// Counts changes that may have made a step ready for this kind.
    version: u64,
    /// The version at which no step was ready.
    empty_at: Option<u64>,
    waiting: BTreeMap<u64, Arc<Waiter>>,
}

/// Facts about a route.
struct Route {
    needs: Needs,
    /// The last refresh at which, or after which, steps of it were ready.
    heard_at: u64,
    /// Its place among the routes of ready steps at the last refresh.
    place: usize,
}

/// The queue.
#[derive(Default)]
pub(super) struct Queue {
    routes: HashMap<String, Route>,
    refreshes: u64,
    kinds: HashMap<String, Kind>,
    last_ticket: u64,
}

impl Queue {
    /// Updates the routes of all ready steps, lowest rank first, and removes stale ones. Unreadable routes are skipped.
    pub(super) fn refresh(&mut self, ready: &[String]) {
        self.refreshes += 1;
        for route in self.routes.values_mut() {
            route.place = usize::MAX;
        }
        let mut changed = false;
        for (place, text) in ready.iter().enumerate() {
            if let Some(route) = self.routes.get_mut(text) {
                (route.heard_at, route.place) = (self.refreshes, place);
            } else if let Ok(needs) = Needs::parse_route(text) {
                self.routes.insert(text.clone(), Route { needs, heard_at: self.refreshes, place });
                changed = true;
            }
        }
        let known = self.routes.len();
        let kept = if self.is_full() { 0 } else { KEPT_REFRESHES };
        self.routes.retain(|_, route| route.heard_at + kept >= self.refreshes);
        changed |= self.routes.len() < known;
        if changed || self.kinds.values().any(|kind| kind.reach.is_full()) {
            let routes = in_order(&self.routes);
            for kind in self.kinds.values_mut() {
                kind.reach = Arc::new(Reach::new(&kind.taker, routes.iter().copied()));
                kind.version += 1;
            }
        }
    }

    /// Adds one route. If too many are known, the next refresh adds it.
    fn learn(&mut self, text: &str) {
        if let Some(route) = self.routes.get_mut(text) {
            route.heard_at = self.refreshes;
            return;
        }
        let Ok(needs) = Needs::parse_route(text) else { return };
        if self.is_full() {
            return;
        }
        for kind in self.kinds.values_mut() {
            Arc::make_mut(&mut kind.reach).add(&kind.taker, text, &needs);
        }
        self.routes.insert(text.to_owned(), Route { needs, heard_at: self.refreshes, place: usize::MAX });
    }

    fn is_full(&self) -> bool {
        self.routes.len() >= usize::try_from(MAX_ROUTES).unwrap_or(usize::MAX)
    }

    /// Appends a waiter to the queue. Returns its ticket.
    pub(super) fn join(&mut self, key: &str, taker: &Taker, waiter: &Arc<Waiter>) -> u64 {
        self.last_ticket += 1;
        if !self.kinds.contains_key(key) {
            self.forget_idle_kinds();
            let reach = Arc::new(Reach::new(taker, in_order(&self.routes).into_iter()));
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

    /// Returns the look that a waiter of this kind should take, or none if no step is known to be ready.
    pub(super) fn look(&self, key: &str, woken: bool) -> Option<Look> {
        let kind = self.kinds.get(key)?;
        let known_empty = kind.empty_at == Some(kind.version) && !woken;
        (!known_empty && !kind.reach.is_empty()).then(|| Look { reach: kind.reach.clone(), version: kind.version })
    }

    /// Records that a look from this version found nothing.
    pub(super) fn found_nothing(&mut self, key: &str, version: u64) {
        if let Some(kind) = self.kinds.get_mut(key) {
            kind.empty_at = Some(version);
        }
    }

    /// Wakes the longest waiting worker after steps of this route became ready.
    pub(super) fn ready(&mut self, route: &str) {
        self.learn(route);
        for kind in self.kinds.values_mut().filter(|kind| kind.reach.contains(route)) {
            kind.version += 1;
        }
        self.wake_one(route);
    }

    /// Wakes the longest waiting worker that can take a step of this route.
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

    /// Wakes one worker of each kind because unknown steps may be ready. It wakes others when it finds a step.
    pub(super) fn probe(&mut self) {
        for kind in self.kinds.values_mut() {
            kind.version += 1;
            if let Some((_, waiter)) = kind.waiting.pop_first() {
                waiter.wake();
            }
        }
    }

    /// Wakes the next waiter of this kind, because a woken one left without a look.
    pub(super) fn pass_on(&mut self, key: &str) {
        if let Some(kind) = self.kinds.get_mut(key)
            && let Some((_, waiter)) = kind.waiting.pop_first()
        {
            waiter.wake();
        }
    }

    /// Wakes this worker, which then reads its message.
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

    /// Returns all waiting workers.
    pub(super) fn waiting(&self) -> HashSet<WorkerId> {
        self.kinds.values().flat_map(|kind| kind.waiting.values().map(|waiter| waiter.worker.clone())).collect()
    }

    fn forget_idle_kinds(&mut self) {
        if self.kinds.len() >= MAX_IDLE_KINDS {
            self.kinds.retain(|_, kind| !kind.waiting.is_empty());
        }
    }
}

/// Returns the routes in the order in which they fill a reach.
fn in_order(routes: &HashMap<String, Route>) -> Vec<(&str, &Needs)> {
    let mut order: Vec<_> = routes.iter().collect();
    order.sort_unstable_by_key(|(_, route)| route.place);
    order.into_iter().map(|(text, route)| (text.as_str(), &route.needs)).collect()
}

#[cfg(test)]
mod tests {
    use nightshift_protocol::machine::DeviceUse;
    use nightshift_protocol::task::Target;
    use uuid::Uuid;

    use super::super::reach::MAX_REACH;
    use super::*;

    /// Returns an agent's route per number, distinguished by the label.
    fn routes(numbers: std::ops::Range<usize>) -> Vec<String> {
        numbers.map(|number| format!("agent/-/none?labels=n{number}")).collect()
    }

    /// Returns a queue in which agents wait.
    fn queue() -> (Queue, Arc<Waiter>) {
        let mut queue = Queue::default();
        let waiter = Arc::new(Waiter::new(WorkerId::from_uuid(Uuid::nil())));
        queue.join("agents", &Taker::Agents { slots: 1 }, &waiter);
        (queue, waiter)
    }

    fn reaches(queue: &Queue, route: &str) -> bool {
        queue.look("agents", true).is_some_and(|look| look.reach.contains(route))
    }

    #[test]
    fn a_reach_is_bounded_and_holds_the_first_ranks() {
        let (mut queue, _) = queue();
        let all = routes(0..MAX_REACH * 3);
        queue.refresh(&all);
        assert!(all.iter().enumerate().all(|(n, route)| reaches(&queue, route) == (n < MAX_REACH)));
        // After the steps with the lowest ranks are taken, the next ones follow.
        queue.refresh(&all[MAX_REACH * 2..]);
        assert!(all.iter().enumerate().all(|(n, route)| reaches(&queue, route) == (n >= MAX_REACH * 2)));
    }

    #[test]
    fn routes_that_do_not_fit_take_no_room() {
        let (mut queue, _) = queue();
        let worker =
            |number| Needs { device_memory_bytes: Some(number), ..Needs::worker(Target::Cuda, DeviceUse::Exclusive) };
        let mut ready: Vec<String> = (0..2_000).map(|number| worker(number).route()).collect();
        ready.extend(routes(0..1));
        queue.refresh(&ready);
        assert!(reaches(&queue, &ready[2_000]));
    }

    #[test]
    fn a_route_is_forgotten_when_it_has_no_ready_steps_for_long() {
        let (mut queue, _) = queue();
        let all = routes(0..2);
        queue.refresh(&all);
        for _ in 0..KEPT_REFRESHES {
            queue.refresh(&all[1..]);
        }
        assert!(reaches(&queue, &all[0]));
        queue.refresh(&all[1..]);
        assert!(!reaches(&queue, &all[0]) && reaches(&queue, &all[1]));
    }

    #[test]
    fn a_route_is_learnt_however_many_were_known_before() {
        let (mut queue, waiter) = queue();
        let most = usize::try_from(MAX_ROUTES).unwrap_or(usize::MAX);
        queue.refresh(&routes(0..most));
        let new = routes(most..most + 1);
        queue.ready(&new[0]);
        assert!(!reaches(&queue, &new[0]));
        queue.refresh(&new);
        queue.ready(&new[0]);
        assert!(reaches(&queue, &new[0]) && waiter.take_woken());
        assert_eq!(queue.routes.len(), 1, "what has no ready steps makes room");
    }
}
