//! Schedule of the sweeper, which sleeps until work is due instead of polling the store.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use nightshift_protocol::id::WorkerId;
use nightshift_protocol::time::TimestampMs;
use tokio::sync::Notify;

/// Maximum number of workers whose leases are tracked. The heartbeat finds expired leases of others.
const MAX_WATCHED: usize = 20_000;

/// The sweeper's schedule.
#[derive(Debug, Default)]
pub(crate) struct SweeperSchedule {
    entries: Mutex<Entries>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Entries {
    leases: bool,
    timers: bool,
    /// The next timer according to the store, and the first one that was set since the last round.
    next_timer: Option<TimestampMs>,
    set_timer: Option<TimestampMs>,
    watched: HashMap<WorkerId, Ends>,
}

/// Expiry of a worker's leases, as granted or extended by this server.
#[derive(Debug, Clone, Copy)]
struct Ends {
    first: TimestampMs,
    last: TimestampMs,
}

/// The work that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Due {
    /// Whether leases may have expired.
    pub(crate) leases: bool,
    /// Whether timers may be due.
    pub(crate) timers: bool,
    /// When to check the schedule again.
    pub(crate) next: Option<TimestampMs>,
}

impl SweeperSchedule {
    /// Records that leases have expired, or servers are dead.
    pub(crate) fn leases_ran_out(&self) {
        self.change(|entries| entries.leases = true);
    }

    /// Records that timers may be due.
    pub(crate) fn timers_changed(&self) {
        self.change(|entries| entries.timers = true);
    }

    /// Records that a timer was set, which may be due earlier than the others.
    pub(crate) fn timer_set(&self, at: TimestampMs) {
        self.change(|entries| entries.set_timer = entries.set_timer.into_iter().chain([at]).min());
    }

    /// Records when the next timer is due, according to the store.
    pub(crate) fn next_timer(&self, due: Option<TimestampMs>) {
        self.change(|entries| entries.next_timer = due);
    }

    /// Records a lease of a worker that expires at `ends`.
    pub(crate) fn leased(&self, worker: &WorkerId, ends: TimestampMs) {
        self.change(|entries| {
            if let Some(known) = entries.watched.get_mut(worker) {
                known.last = known.last.max(ends);
            } else if entries.watched.len() < MAX_WATCHED {
                entries.watched.insert(worker.clone(), Ends { first: ends, last: ends });
            }
        });
    }

    /// Records that a worker extended all its leases until `ends`. None if it has no leases.
    pub(crate) fn extended(&self, worker: &WorkerId, ends: Option<TimestampMs>) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        // Later than before: the sweeper checks again by itself at the earlier time.
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

    /// Takes the work that is due at `now`.
    pub(crate) fn take(&self, now: TimestampMs) -> Due {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let timer = entries.next_timer.into_iter().chain(entries.set_timer).min();
        let mut due = Due {
            leases: std::mem::take(&mut entries.leases),
            timers: std::mem::take(&mut entries.timers) || timer.is_some_and(|at| at <= now),
            next: None,
        };
        entries.watched.retain(|_, ends| {
            // A lease that ends now is still valid now.
            if ends.first < now {
                due.leases = true;
                ends.first = ends.last;
            }
            ends.last >= now
        });
        let lease = entries.watched.values().map(|ends| ends.first.plus_ms(1)).min();
        due.next = timer.filter(|at| *at > now).into_iter().chain(lease).min();
        if due.leases || due.timers {
            // The round that follows reads from the store which timer is the next.
            entries.set_timer = None;
        }
        due
    }

    /// Waits for a new entry. There is one sweeper per process: an entry before the call is not lost.
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
    fn a_lease_without_a_heartbeat_is_checked_after_its_expiry() {
        let sweeper_schedule = SweeperSchedule::default();
        sweeper_schedule.leased(&worker(1), TimestampMs(100));
        assert_eq!(sweeper_schedule.take(TimestampMs(100)), Due { next: Some(TimestampMs(101)), ..Due::default() });
        assert_eq!(sweeper_schedule.take(TimestampMs(101)), Due { leases: true, ..Due::default() });
        assert_eq!(sweeper_schedule.take(TimestampMs(102)), Due::default());
    }

    #[test]
    fn a_heartbeat_moves_the_end_and_the_last_lease_ends_it() {
        let sweeper_schedule = SweeperSchedule::default();
        sweeper_schedule.leased(&worker(1), TimestampMs(100));
        sweeper_schedule.extended(&worker(1), Some(TimestampMs(200)));
        sweeper_schedule.leased(&worker(1), TimestampMs(250));
        assert_eq!(sweeper_schedule.take(TimestampMs(150)).next, Some(TimestampMs(201)));
        let due = sweeper_schedule.take(TimestampMs(201));
        assert_eq!((due.leases, due.next), (true, Some(TimestampMs(251))));
        sweeper_schedule.extended(&worker(1), None);
        assert_eq!(sweeper_schedule.take(TimestampMs(1_000)), Due::default());
    }

    #[test]
    fn a_timer_is_due_when_its_moment_has_come() {
        let sweeper_schedule = SweeperSchedule::default();
        sweeper_schedule.next_timer(Some(TimestampMs(50)));
        assert_eq!(sweeper_schedule.take(TimestampMs(49)), Due { next: Some(TimestampMs(50)), ..Due::default() });
        assert!(sweeper_schedule.take(TimestampMs(50)).timers);
        sweeper_schedule.next_timer(None);
        assert_eq!(sweeper_schedule.take(TimestampMs(60)), Due::default());
        sweeper_schedule.timers_changed();
        assert!(sweeper_schedule.take(TimestampMs(60)).timers);
    }

    #[test]
    fn a_timer_that_was_set_brings_the_next_round_forward_and_begins_none_at_once() {
        let sweeper_schedule = SweeperSchedule::default();
        sweeper_schedule.next_timer(Some(TimestampMs(90)));
        sweeper_schedule.timer_set(TimestampMs(50));
        sweeper_schedule.timer_set(TimestampMs(70));
        assert_eq!(sweeper_schedule.take(TimestampMs(49)), Due { next: Some(TimestampMs(50)), ..Due::default() });
        // A heartbeat that read the store before the timer was set does not hide it.
        sweeper_schedule.next_timer(Some(TimestampMs(90)));
        assert!(sweeper_schedule.take(TimestampMs(50)).timers);
        assert_eq!(sweeper_schedule.take(TimestampMs(51)), Due { next: Some(TimestampMs(90)), ..Due::default() });
    }
}
