//! The attempts that became the best of their run. Every best speedup comes from these attempts. The highest one of a run is published.

use nightshift_protocol::attempt::{TimedAttempt, new_bests};

use super::columns::Run;
use super::rows::from_ppm;

/// The attempts that became the best of the run that a scan is at.
#[derive(Debug, Default)]
pub(super) struct Bests {
    run_id: Option<i64>,
    numbers: Vec<u32>,
}

impl Bests {
    /// Returns whether an attempt of this run became its best.
    pub(super) fn contains(&mut self, run_id: i64, run: &Run, number: u32) -> bool {
        if self.run_id.replace(run_id) != Some(run_id) {
            self.numbers = of_run(run);
        }
        self.numbers.binary_search(&number).is_ok()
    }
}

/// Returns the numbers of the attempts that became the best of the run, in ascending order.
fn of_run(run: &Run) -> Vec<u32> {
    let timed = run.attempts.iter().filter_map(|slot| {
        let speedup = from_ppm(slot.right_speedup_ppm()?);
        Some(TimedAttempt { number: slot.number, speedup, is_confirmed: slot.is_confirmed })
    });
    let best = run.attempts.iter().find(|slot| slot.is_best).map(|slot| slot.number);
    new_bests(&timed.collect::<Vec<_>>(), best)
}
