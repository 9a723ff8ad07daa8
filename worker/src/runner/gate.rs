//! Who is at work on a device: many beside one another, or one alone who takes times.
//!
//! Whoever wants the device alone waits for everybody who is at work, and until then nobody else may begin; but not while he
//! waits for what takes seconds, as the beginning of a context or a run of a tool. What is over in a moment may begin
//! meanwhile: the device would have nothing to do, and he would not be served any sooner.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// How long somebody will be at work beside others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stay {
    /// For a call, a copy, an allocation.
    Short,
    /// For the beginning or the end of a context, the loading of a model, the run of a tool.
    Long,
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
    alone: bool,
    /// Who wants to be alone.
    waiting: usize,
}

impl State {
    /// Whether somebody may begin beside others.
    fn admits(&self, stay: Stay) -> bool {
        let in_nobodys_way = self.waiting == 0 || (stay == Stay::Short && self.long > 0);
        !self.alone && in_nobodys_way
    }

    fn count(&mut self, stay: Stay) -> &mut usize {
        match stay {
            Stay::Short => &mut self.short,
            Stay::Long => &mut self.long,
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
        let closed = |state: &mut State| !state.admits(stay);
        let mut state = self.changed.wait_while(self.state(), closed).unwrap_or_else(PoisonError::into_inner);
        *state.count(stay) += 1;
        tracing::trace!(?stay, waited_us = asked.elapsed().as_micros(), "took a place on the device");
        PlaceBeside { gate: self, stay, since: Instant::now() }
    }

    /// Waits until nobody else is at work, and keeps it so.
    #[must_use]
    pub fn alone(&self) -> Alone<'_> {
        let asked = Instant::now();
        let mut state = self.state();
        state.waiting += 1;
        let occupied = |state: &mut State| state.alone || state.short + state.long > 0;
        let mut state = self.changed.wait_while(state, occupied).unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        state.alone = true;
        tracing::trace!(waited_us = asked.elapsed().as_micros(), "has the device alone");
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
        self.gate.state().alone = false;
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

    /// Somebody who wants the device, and tells when he has it; he keeps it until what is given back is dropped.
    fn wants<'s, 'e>(
        scope: &'s std::thread::Scope<'s, 'e>,
        gate: &'e Gate,
        stay: Option<Stay>,
    ) -> (Receiver<()>, std::sync::mpsc::Sender<()>) {
        let (told, heard) = channel();
        let (leave, until) = channel::<()>();
        scope.spawn(move || {
            let _place = stay.map(|stay| gate.beside_others(stay));
            let _alone = stay.is_none().then(|| gate.alone());
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
            let (alone, leave) = wants(scope, &gate, None);
            assert!(alone.recv_timeout(SHORT).is_err());
            let (beside, also_leaves) = wants(scope, &gate, Some(Stay::Short));
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
    fn while_one_waits_for_what_takes_long_others_may_begin_what_does_not() {
        let gate = Gate::default();
        let long = gate.beside_others(Stay::Long);
        std::thread::scope(|scope| {
            let (alone, leave) = wants(scope, &gate, None);
            until_one_waits(&gate);
            drop(gate.beside_others(Stay::Short));
            let (also_long, also_leaves) = wants(scope, &gate, Some(Stay::Long));
            assert!(also_long.recv_timeout(SHORT).is_err(), "or he would wait for ever");
            assert!(alone.recv_timeout(SHORT).is_err());
            drop(long);
            assert!(alone.recv_timeout(LONG).is_ok());
            drop(leave);
            assert!(also_long.recv_timeout(LONG).is_ok());
            drop(also_leaves);
        });
    }
}
