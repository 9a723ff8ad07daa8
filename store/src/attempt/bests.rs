//! The attempts that became the best of their run. Everything that names a best speedup takes it from these: the highest of a run is
//! the published one.

use nightshift_protocol::attempt::{TimedAttempt, new_bests};

use super::columns::Run;
use super::rows::from_ppm;

/// Returns the numbers of the attempts that became the best of the run, in ascending order.
pub(super) fn of_run(run: &Run) -> Vec<u32> {
    let timed = run.attempts.iter().filter_map(|slot| {
        let speedup = from_ppm(slot.right_speedup_ppm()?);
        Some(TimedAttempt { number: slot.number, speedup, is_confirmed: slot.is_confirmed })
    });
    let best = run.attempts.iter().find(|slot| slot.is_best).map(|slot| slot.number);
    new_bests(&timed.collect::<Vec<_>>(), best)
}
