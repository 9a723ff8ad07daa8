//! Who is at work on a device: many beside one another, or one alone who takes times.
//!
//! Whoever wants the device alone waits for everybody who is at work, and until then nobody else may begin; but not while he
//! waits for what takes seconds, as a run of a tool. What is over in a moment may begin meanwhile: the device would have nothing
//! to do, and he would not be served any sooner. Between two who are alone those go who waited for the first one with what is over in
//! a moment: side by side they take the second one little of his time, and he would take each of them all of it.
//!
//! What only the driver is busy with, the beginning and the end of contexts above all, takes longer than most programs are timed
//! for and next to nothing of the device: first times are taken beside it, and those that a result rests on are not
//! (`docs/evidence/contexts.md`).

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a long stay is put off for those who want to be alone: there may always be one.
const LONGEST_PUT_OFF: Duration = Duration::from_secs(2);

/// What somebody does beside others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stay {
    /// A call, or a copy.
    Short,
    /// The loading of a model, its first call, or the run of a tool.
    Long,
    /// The beginning or the end of a context, or memory that is pinned, allocated or freed.
    Driver,
}

/// What somebody who is alone wants to be spared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quiet {
    /// What is at work on the device.
    OnDevice,
    /// What the driver is busy with as well.
    Complete,
}

/// Keeps those apart who are at work on a device.
#[derive(Debug, Default)]
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    short: usize,
    long: usize,
    driver: usize,
    alone: Option<Quiet>,
    /// Who wants to be alone, and how many of them completely.
    waiting: usize,
    completely: usize,
    /// Who wants a short stay, and how many of those go before the next who wants to be alone.
    short_waiting: usize,
    before_next: usize,
    /// Who has waited for a long stay for so long that he goes before them, too.
    long_due: usize,
}

impl State {
    /// Whether somebody may begin beside others.
    fn admits(&self, stay: Stay) -> bool {
        if stay == Stay::Driver {
            return self.alone != Some(Quiet::Complete) && self.completely == 0;
        }
        let all_wait_for_driver = self.completely == self.waiting && self.driver > 0;
        let nobody_could_begin = self.long > 0 || all_wait_for_driver;
        let goes_first = match stay {
            Stay::Short => nobody_could_begin || self.before_next > 0,
            _ => self.long_due > 0,
        };
        self.alone.is_none() && (self.waiting == 0 || goes_first)
    }

    /// Whether somebody who wants to be alone has to wait.
    fn is_occupied(&self, quiet: Quiet) -> bool {
        let by_driver = quiet == Quiet::Complete && self.driver > 0;
        self.alone.is_some() || self.short + self.long + self.before_next + self.long_due > 0 || by_driver
    }

    fn count(&mut self, stay: Stay) -> &mut usize {
        match stay {
            Stay::Short => &mut self.short,
            Stay::Long => &mut self.long,
            Stay::Driver => &mut self.driver,
        }
    }
}

/// A place on the device beside others, until it is dropped.
#[derive(Debug)]
pub struct PlaceBeside<'a> {
    gate: &'a Gate,
    stay: Stay,
    since: Instant,
}

/// The device for oneself, until it is dropped.
#[derive(Debug)]
pub struct Alone<'a> {
    gate: &'a Gate,
    since: Instant,
}

impl Gate {
    /// Waits for a place beside others. Never twice by one thread.
    #[must_use]
    pub fn beside_others(&self, stay: Stay) -> PlaceBeside<'_> {
        let asked = Instant::now();
        let short = usize::from(stay == Stay::Short);
        let mut state = self.state();
        state.short_waiting += short;
        let closed = |state: &mut State| !state.admits(stay);
        let (state, due) = if stay == Stay::Long { self.wait_for_long(state) } else { (state, 0) };
        let mut state = self.changed.wait_while(state, closed).unwrap_or_else(PoisonError::into_inner);
        state.long_due -= due;
        state.short_waiting -= short;
        // Whoever goes now, as many are left of those who waited.
        state.before_next = state.before_next.saturating_sub(short);
        *state.count(stay) += 1;
        tracing::trace!(?stay, waited_us = asked.elapsed().as_micros(), "took a place on the device");
        PlaceBeside { gate: self, stay, since: Instant::now() }
    }

    /// Waits for a long stay as long as one may be put off. Gives whether it is due now, as a number.
    fn wait_for_long<'g>(&'g self, state: MutexGuard<'g, State>) -> (MutexGuard<'g, State>, usize) {
        let closed = |state: &mut State| !state.admits(Stay::Long);
        let waited = self.changed.wait_timeout_while(state, LONGEST_PUT_OFF, closed);
        let (mut state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        let due = usize::from(waited.timed_out());
        state.long_due += due;
        (state, due)
    }

    /// Waits until nobody else is at work, and keeps it so.
    #[must_use]
    pub fn alone(&self, quiet: Quiet) -> Alone<'_> {
        let asked = Instant::now();
        let completely = usize::from(quiet == Quiet::Complete);
        let mut state = self.state();
        state.waiting += 1;
        state.completely += completely;
        let occupied = |state: &mut State| state.is_occupied(quiet);
        let mut state = self.changed.wait_while(state, occupied).unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        state.completely -= completely;
        state.alone = Some(quiet);
        tracing::trace!(?quiet, waited_us = asked.elapsed().as_micros(), "has the device alone");
        Alone { gate: self, since: Instant::now() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PlaceBeside<'_> {
    fn drop(&mut self) {
        tracing::trace!(stay = ?self.stay, stayed_us = self.since.elapsed().as_micros(), "left a place on the device");
        *self.gate.state().count(self.stay) -= 1;
        self.gate.changed.notify_all();
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        tracing::trace!(stayed_us = self.since.elapsed().as_micros(), "had the device alone");
        let mut state = self.gate.state();
        (state.alone, state.before_next) = (None, state.short_waiting);
        drop(state);
        self.gate.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Duration;

    use super::*;

    /// Too short to hope that it is over, and long enough for a thread that may go on.
    const SHORT: Duration = Duration::from_millis(200);
    const LONG: Duration = Duration::from_secs(20);

    enum Place {
        Beside(Stay),
        Alone(Quiet),
    }

    /// Somebody who wants the device, and tells when he has it; he keeps it until what is given back is dropped.
    fn wants<'s, 'e>(
        scope: &'s std::thread::Scope<'s, 'e>,
        gate: &'e Gate,
        place: Place,
    ) -> (Receiver<()>, std::sync::mpsc::Sender<()>) {
        let (told, heard) = channel();
        let (leave, until) = channel::<()>();
        scope.spawn(move || {
            let (_beside, _alone) = match place {
                Place::Beside(stay) => (Some(gate.beside_others(stay)), None),
                Place::Alone(quiet) => (None, Some(gate.alone(quiet))),
            };
            told.send(()).ok();
            until.recv().ok();
        });
        (heard, leave)
    }

    fn until_one_waits(gate: &Gate) {
        while gate.state().waiting == 0 {
            std::thread::yield_now();
        }
    }

    #[test]
    fn one_who_is_alone_is_alone_and_the_others_are_beside_one_another() {
        let gate = Gate::default();
        let first = gate.beside_others(Stay::Short);
        drop(gate.beside_others(Stay::Long));
        std::thread::scope(|scope| {
            let (alone, leave) = wants(scope, &gate, Place::Alone(Quiet::OnDevice));
            assert!(alone.recv_timeout(SHORT).is_err());
            let (beside, also_leaves) = wants(scope, &gate, Place::Beside(Stay::Short));
            assert!(beside.recv_timeout(SHORT).is_err(), "somebody waits for the device");
            drop(first);
            assert!(alone.recv_timeout(LONG).is_ok());
            assert!(beside.recv_timeout(SHORT).is_err(), "somebody has it for himself");
            drop(leave);
            assert!(beside.recv_timeout(LONG).is_ok());
            drop(also_leaves);
        });
    }

    #[test]
    fn between_two_who_are_alone_those_go_who_waited_for_the_first() {
        let gate = Gate::default();
        std::thread::scope(|scope| {
            let (first, leaves) = wants(scope, &gate, Place::Alone(Quiet::OnDevice));
            assert!(first.recv_timeout(LONG).is_ok());
            let (second, also_leaves) = wants(scope, &gate, Place::Alone(Quiet::OnDevice));
            until_one_waits(&gate);
            let (beside, and_leaves) = wants(scope, &gate, Place::Beside(Stay::Short));
            while gate.state().short_waiting == 0 {
                std::thread::yield_now();
            }
            drop(leaves);
            assert!(beside.recv_timeout(LONG).is_ok());
            assert!(second.recv_timeout(SHORT).is_err(), "somebody is at work");
            let (late, at_last) = wants(scope, &gate, Place::Beside(Stay::Short));
            assert!(late.recv_timeout(SHORT).is_err(), "or he who waits would wait for ever");
            drop(and_leaves);
            assert!(second.recv_timeout(LONG).is_ok());
            drop(also_leaves);
            assert!(late.recv_timeout(LONG).is_ok());
            drop(at_last);
        });
    }

    #[test]
    fn what_takes_long_is_not_put_off_for_ever() {
        let gate = Gate::default();
        std::thread::scope(|scope| {
            let (first, leaves) = wants(scope, &gate, Place::Alone(Quiet::OnDevice));
            assert!(first.recv_timeout(LONG).is_ok());
            let (long, long_leaves) = wants(scope, &gate, Place::Beside(Stay::Long));
            while gate.state().long_due == 0 {
                std::thread::yield_now();
            }
            let (second, also_leaves) = wants(scope, &gate, Place::Alone(Quiet::OnDevice));
            until_one_waits(&gate);
            drop(leaves);
            assert!(long.recv_timeout(LONG).is_ok());
            assert!(second.recv_timeout(SHORT).is_err(), "somebody is at work");
            assert_eq!(gate.state().long_due, 0);
            let (late, late_leaves) = wants(scope, &gate, Place::Beside(Stay::Long));
            drop(long_leaves);
            assert!(second.recv_timeout(LONG).is_ok());
            assert!(late.recv_timeout(SHORT).is_err(), "it is not due yet");
            drop(also_leaves);
            assert!(late.recv_timeout(LONG).is_ok());
            drop(late_leaves);
        });
    }

    #[test]
    fn while_one_waits_for_what_takes_long_others_may_begin_what_does_not() {
        let gate = Gate::default();
        let long = gate.beside_others(Stay::Long);
        std::thread::scope(|scope| {
            let (alone, leave) = wants(scope, &gate, Place::Alone(Quiet::OnDevice));
            until_one_waits(&gate);
            drop(gate.beside_others(Stay::Short));
            let (also_long, also_leaves) = wants(scope, &gate, Place::Beside(Stay::Long));
            assert!(also_long.recv_timeout(SHORT).is_err(), "or he would wait for ever");
            assert!(alone.recv_timeout(SHORT).is_err());
            drop(long);
            assert!(alone.recv_timeout(LONG).is_ok());
            drop(leave);
            assert!(also_long.recv_timeout(LONG).is_ok());
            drop(also_leaves);
        });
    }

    #[test]
    fn the_driver_is_busy_beside_first_times_and_not_beside_those_that_a_result_rests_on() {
        let gate = Gate::default();
        std::thread::scope(|scope| {
            let context = gate.beside_others(Stay::Driver);
            let (first, leave) = wants(scope, &gate, Place::Alone(Quiet::OnDevice));
            assert!(first.recv_timeout(LONG).is_ok());
            drop(gate.beside_others(Stay::Driver));
            let (result, also_leaves) = wants(scope, &gate, Place::Alone(Quiet::Complete));
            until_one_waits(&gate);
            let (late, and_leaves) = wants(scope, &gate, Place::Beside(Stay::Driver));
            assert!(late.recv_timeout(SHORT).is_err(), "or he who waits would wait for ever");
            drop(leave);
            assert!(result.recv_timeout(SHORT).is_err(), "a context begins");
            drop(gate.beside_others(Stay::Short));
            drop(context);
            assert!(result.recv_timeout(LONG).is_ok());
            assert!(late.recv_timeout(SHORT).is_err(), "somebody has it completely for himself");
            drop(also_leaves);
            assert!(late.recv_timeout(LONG).is_ok());
            drop(and_leaves);
        });
    }
}
