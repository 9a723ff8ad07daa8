//! What the sweeper has to do, and when: it sleeps until then instead of asking the store again and again.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use nightshift_protocol::id::WorkerId;
use nightshift_protocol::time::TimestampMs;
use tokio::sync::Notify;

/// Workers whose leases are watched; those beyond are found by the pulse.
const MAX_WATCHED: usize = 20_000;

/// The sweeper's agenda.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    entries: Mutex<Entries>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Entries {
    leases: bool,
    timers: bool,
    next_timer: Option<TimestampMs>,
    watched: HashMap<WorkerId, Ends>,
}

/// When a worker's leases end, as far as this server gave or extended them.
#[derive(Debug, Clone, Copy)]
struct Ends {
    first: TimestampMs,
    last: TimestampMs,
}

/// What is to be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Due {
    /// Leases may have run out.
    pub(crate) leases: bool,
    /// Timers may be due.
    pub(crate) timers: bool,
    /// When to look at the agenda again.
    pub(crate) next: Option<TimestampMs>,
}

impl Agenda {
    /// Leases have run out, or servers are dead.
    pub(crate) fn leases_ran_out(&self) {
        self.change(|entries| entries.leases = true);
    }

    /// Timers were set: the next one may be due earlier than it was.
    pub(crate) fn timers_changed(&self) {
        self.change(|entries| entries.timers = true);
    }

    /// When the next timer is due, as the store says.
    pub(crate) fn next_timer(&self, due: Option<TimestampMs>) {
        self.change(|entries| entries.next_timer = due);
    }

    /// A worker was given a lease that ends then.
    pub(crate) fn leased(&self, worker: &WorkerId, ends: TimestampMs) {
        self.change(|entries| {
            if let Some(known) = entries.watched.get_mut(worker) {
                known.last = known.last.max(ends);
            } else if entries.watched.len() < MAX_WATCHED {
                entries.watched.insert(worker.clone(), Ends { first: ends, last: ends });
            }
        });
    }

    /// A worker extended all its leases until then; none when it holds nothing.
    pub(crate) fn extended(&self, worker: &WorkerId, ends: Option<TimestampMs>) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        // Later than before: the sweeper looks again by itself when the earlier moment comes.
        match ends {
            None => {
                entries.watched.remove(worker);
            }
            Some(ends) if entries.watched.contains_key(worker) || entries.watched.len() < MAX_WATCHED => {
                entries.watched.insert(worker.clone(), Ends { first: ends, last: ends });
            }
            Some(_) => {}
        }
    }

    /// Takes what is due now from the agenda.
    pub(crate) fn take(&self, now: TimestampMs) -> Due {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let mut due = Due {
            leases: std::mem::take(&mut entries.leases),
            timers: std::mem::take(&mut entries.timers) || entries.next_timer.is_some_and(|at| at <= now),
            next: None,
        };
        entries.watched.retain(|_, ends| {
            // A lease that ends now is still good now.
            if ends.first < now {
                due.leases = true;
                ends.first = ends.last;
            }
            ends.last >= now
        });
        let timer = entries.next_timer.filter(|at| *at > now);
        let lease = entries.watched.values().map(|ends| ends.first.plus_ms(1)).min();
        due.next = timer.into_iter().chain(lease).min();
        due
    }

    /// Waits for an entry. One sweeper per process: one that came before the call is kept.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn change(&self, change: impl FnOnce(&mut Entries)) {
        change(&mut self.entries.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn worker(number: u128) -> WorkerId {
        WorkerId::from_uuid(Uuid::from_u128(number))
    }

    #[test]
    fn a_lease_that_nobody_extends_is_looked_at_when_it_has_run_out() {
        let agenda = Agenda::default();
        agenda.leased(&worker(1), TimestampMs(100));
        assert_eq!(agenda.take(TimestampMs(100)), Due { next: Some(TimestampMs(101)), ..Due::default() });
        assert_eq!(agenda.take(TimestampMs(101)), Due { leases: true, ..Due::default() });
        assert_eq!(agenda.take(TimestampMs(102)), Due::default());
    }

    #[test]
    fn a_heartbeat_moves_the_end_and_the_last_lease_ends_it() {
        let agenda = Agenda::default();
        agenda.leased(&worker(1), TimestampMs(100));
        agenda.extended(&worker(1), Some(TimestampMs(200)));
        agenda.leased(&worker(1), TimestampMs(250));
        assert_eq!(agenda.take(TimestampMs(150)).next, Some(TimestampMs(201)));
        let due = agenda.take(TimestampMs(201));
        assert_eq!((due.leases, due.next), (true, Some(TimestampMs(251))));
        agenda.extended(&worker(1), None);
        assert_eq!(agenda.take(TimestampMs(1_000)), Due::default());
    }

    #[test]
    fn a_timer_is_due_when_its_moment_has_come() {
        let agenda = Agenda::default();
        agenda.next_timer(Some(TimestampMs(50)));
        assert_eq!(agenda.take(TimestampMs(49)), Due { next: Some(TimestampMs(50)), ..Due::default() });
        assert!(agenda.take(TimestampMs(50)).timers);
        agenda.next_timer(None);
        assert_eq!(agenda.take(TimestampMs(60)), Due::default());
        agenda.timers_changed();
        assert!(agenda.take(TimestampMs(60)).timers);
    }
}
