//! Long rows of calls, timed by the parent's clock alone. A program can reach the clocks of its own process and the
//! events of its own context; it cannot make the work of many calls fit into less time than they take.

use nightshift_protocol::measurement::TimePair;

use super::Side;
use super::samples::float;
use crate::inputs::SecretSeeds;
use crate::runner::{Burst, Draw, Session, SessionError};

/// Calls of a row, unless they take long or much memory.
const CALLS: usize = 16;
const FEWEST_CALLS: usize = 3;

/// Rows of each program. The shortest counts: whatever disturbs makes them longer.
const ROWS: usize = 3;

/// What the kept outcome of a row may take on the device, in bytes.
const ROW_BYTES: u64 = 1 << 30;

/// How long a row may take, in nanoseconds, judged by the baseline.
const ROW_NS: f64 = 40e6;

/// Sets of inputs that the calls of a row draw from.
const SETS: usize = 3;

/// Times of the rows of both programs.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RowTimes {
    baseline_ns: Option<f64>,
    candidate_ns: Option<f64>,
}

impl RowTimes {
    /// Times of one call, without what is done around it.
    pub(super) fn pair(&self) -> Option<TimePair> {
        let (baseline_ns, candidate_ns) = self.baseline_ns.zip(self.candidate_ns)?;
        Some(TimePair { baseline_ns, candidate_ns })
    }
}

/// Times rows of both programs, in turn.
pub(super) fn time_rows(
    candidate: &mut Session,
    baseline: &mut Session,
    seeds: &mut SecretSeeds,
    first_slot: usize,
    call_ns: f64,
) -> Result<RowTimes, Side> {
    let by_memory = usize::try_from(ROW_BYTES / candidate.slot_bytes().max(1)).unwrap_or(CALLS);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast saturates")]
    let by_time = (ROW_NS / call_ns.max(1.0)) as usize;
    let calls = CALLS.min(by_memory).min(by_time).max(FEWEST_CALLS);
    let mut fastest = [f64::INFINITY; 4];
    for _ in 0..ROWS {
        let draws: Vec<Draw> = (0..calls).map(|_| Draw::new(SETS, seeds.draw())).collect();
        let row = |session: &mut Session, empty: bool| session.burst(&draws, first_slot, empty).map(by_call);
        for empty in [true, false] {
            let mut better = |place: usize, time: Result<f64, SessionError>| {
                time.map(|time| fastest[place] = fastest[place].min(time))
            };
            better(usize::from(empty), row(baseline, empty)).map_err(Side::Baseline)?;
            better(2 + usize::from(empty), row(candidate, empty)).map_err(Side::Candidate)?;
        }
    }
    let [baseline_full, baseline_empty, candidate_full, candidate_empty] = fastest;
    Ok(RowTimes {
        baseline_ns: Some((baseline_full - baseline_empty).max(0.0)),
        candidate_ns: Some((candidate_full - candidate_empty).max(0.0)),
    })
}

fn by_call(row: Burst) -> f64 {
    float(row.outside_ns) / crate::statistics::as_float(row.calls.max(1))
}
