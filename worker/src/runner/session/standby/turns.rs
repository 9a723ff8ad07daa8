//! Turns at the processes of a task: while one step uses those of its reference and its truth, others of the task wait for them,
//! rather than start some of their own. A Python that loads takes longer than what they wait for, several processors meanwhile,
//! and more memory.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::known::Subject;
use nightshift_sandbox::process::CancelFlag;

/// How long anybody waits for his turn: about as long as another process takes to be there while the machine is busy. Then he
/// starts one.
const LONGEST_WAIT: Duration = Duration::from_secs(20);

/// How often one who waits looks whether somebody wants the step to end.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Whose turn it is.
#[derive(Debug, Default)]
pub(super) struct Turns {
    taken: Mutex<Vec<Subject>>,
    changed: Condvar,
}

/// A turn at the processes of a task, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    of: Subject,
}

impl Turns {
    /// Waits until nobody else has a turn at the processes of this subject; none where that takes too long, or the step is to end.
    pub(super) fn take(&self, of: &Subject, cancel: &CancelFlag) -> Option<Turn<'_>> {
        self.take_within(LONGEST_WAIT, of, cancel)
    }

    fn take_within(&self, limit: Duration, of: &Subject, cancel: &CancelFlag) -> Option<Turn<'_>> {
        let began = Instant::now();
        let mut taken = self.taken();
        while taken.contains(of) {
            if began.elapsed() >= limit || cancel.is_cancelled() {
                return None;
            }
            taken = self.changed.wait_timeout(taken, LOOK_EVERY).unwrap_or_else(PoisonError::into_inner).0;
        }
        taken.push(of.clone());
        tracing::trace!(waited_us = began.elapsed().as_micros(), "has a turn at the processes of a task");
        Some(Turn { turns: self, of: of.clone() })
    }

    fn taken(&self) -> MutexGuard<'_, Vec<Subject>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.taken().retain(|of| *of != self.of);
        self.turns.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(200);

    #[test]
    fn one_after_the_other_has_a_turn_and_other_tasks_have_theirs() {
        let (turns, cancel) = (Turns::default(), CancelFlag::default());
        let (one, other) = (Subject::for_tests(1.0), Subject::for_tests(2.0));
        let first = turns.take(&one, &cancel);
        assert!(first.is_some() && turns.take(&other, &cancel).is_some());
        std::thread::scope(|scope| {
            let second = scope.spawn(|| turns.take(&one, &cancel).is_some());
            std::thread::sleep(SHORT);
            assert!(!second.is_finished());
            drop(first);
            assert!(second.join().is_ok_and(|had_one| had_one));
        });
        assert!(turns.taken().is_empty());
    }

    #[test]
    fn nobody_waits_longer_than_for_a_process_of_his_own_or_for_a_step_that_is_to_end() {
        let (turns, cancel) = (Turns::default(), CancelFlag::default());
        let of = Subject::for_tests(1.0);
        let _first = turns.take(&of, &cancel);
        assert!(turns.take_within(SHORT, &of, &cancel).is_none());
        cancel.cancel();
        let began = Instant::now();
        assert!(turns.take(&of, &cancel).is_none() && began.elapsed() < LONGEST_WAIT / 2);
    }
}
