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
/// Routes that are remembered: those whose first ready step ranks first.
pub(super) const MAX_ROUTES: u32 = 10_000;
/// A route without ready steps is forgotten after so many refreshes, one each pulse while steps are ready. Until then a
/// claim that goes with a report names it, and gets the step that this very report makes ready.
const KEPT_REFRESHES: u64 = 150;

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

/// What is known of a route.
struct Route {
    needs: Needs,
    /// The refresh at which, or after which, steps of it were ready last.
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
    /// Takes in the routes of all ready steps, the lowest rank first, and forgets what was not heard of for long. Routes
    /// that cannot be read are skipped.
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

    /// Learns of one route. When too many are known, the next refresh does.
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

    /// Queues up behind the others, and gives the ticket.
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
        self.learn(route);
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

/// Routes in the order in which they fill a reach.
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

    /// An agent's route for each number; the label tells them apart.
    fn routes(numbers: std::ops::Range<usize>) -> Vec<String> {
        numbers.map(|number| format!("agent/-/none?labels=n{number}")).collect()
    }

    /// A queue in which agents wait.
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
        // Once the steps that rank first are gone, the next ones follow.
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
