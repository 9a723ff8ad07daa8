//! Long rows of calls, timed by the parent's clock alone. A program can reach the clocks of its own process and the
//! events of its own context; it cannot make the work of many calls fit into less time than they take.

use nightshift_protocol::measurement::TimePair;

use super::Side;
use super::device::HIDDEN_NS;
use super::samples::float;
use crate::inputs::SecretSeeds;
use crate::runner::{Burst, Draw, RowSlots, Session};
use crate::statistics::median;

/// Calls of a row, unless they take long.
const CALLS: usize = 64;
const FEWEST_CALLS: usize = 4;

/// Rows of each program, with and without calls, unless they take long.
const ROWS: usize = 5;
const FEWEST_ROWS: usize = 3;

/// How long a row may take, and all of both programs together, in nanoseconds.
const ROW_NS: f64 = 6e6;
const ROWS_NS: f64 = 60e6;

/// What one row may take beyond what the events showed, as a part of that, for no more rows to be timed where one is enough: a
/// device that has much to do slows down by more.
const NOISE_PART: f64 = 0.005;

/// Calls of a row take this part of what the events around lone calls show at least; less is due to a row without calls that was
/// disturbed.
const PLAUSIBLE_PART: f64 = 0.5;

/// What rows are made of.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowTerms {
    /// Sets of inputs that their calls draw from.
    pub(super) sets: usize,
    /// Where inputs and outputs of the last calls are kept, and of how many.
    pub(super) first_slot: usize,
    pub(super) slots: usize,
    /// What the events around a call of each program showed, in nanoseconds.
    pub(super) shown: TimePair,
    /// Whether one row is enough that shows no more than the events did.
    pub(super) quick: bool,
}

/// Times of the rows of both programs.
#[derive(Debug, Clone, Default)]
pub(super) struct RowTimes {
    /// Where the outcome of the last calls is kept, and what they were given.
    pub(super) kept: Vec<(usize, Draw)>,
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

/// Calls of a row, and rows, where a call takes this long.
fn numbers(call_ns: f64) -> (usize, usize) {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast saturates")]
    let within = |time_ns: f64, each_ns: f64| (time_ns / each_ns.max(1.0)) as usize;
    let calls = within(ROW_NS, call_ns).clamp(FEWEST_CALLS, CALLS);
    let row_ns = 2.0 * crate::statistics::as_float(calls) * call_ns;
    (calls, within(ROWS_NS, row_ns).clamp(FEWEST_ROWS, ROWS))
}

/// Times rows of both programs, in turn. One of the last calls of a row, which one is secret, gets the draw that `known`
/// gives, if it gives one.
pub(super) fn time_rows(
    candidate: &mut Session,
    baseline: &mut Session,
    seeds: &mut SecretSeeds,
    terms: &RowTerms,
    known: &mut dyn FnMut() -> Option<Draw>,
) -> Result<RowTimes, Side> {
    let RowTerms { sets, first_slot, slots, shown, quick } = *terms;
    let (calls, rows) = numbers(f64::midpoint(shown.baseline_ns, shown.candidate_ns));
    let kept_at = RowSlots { first: first_slot, count: slots };
    let row = |session: &mut Session, draws: &[Draw], empty: bool| session.burst(draws, kept_at, empty).map(by_call);
    let mut draws: Vec<Draw> = draws_of(calls, sets, seeds);
    let (mut baseline_ns, mut candidate_ns) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
    for number in 1..=rows {
        let empty = row(baseline, &draws, true).map_err(Side::Baseline)?;
        let empty_candidate = row(candidate, &draws, true).map_err(Side::Candidate)?;
        draws = draws_of(calls, sets, seeds);
        if let Some(known) = if quick || number == rows { known() } else { None } {
            draws[calls - 1 - seeds.below(slots.clamp(1, calls))] = known;
        }
        baseline_ns.push(row(baseline, &draws, false).map_err(Side::Baseline)? - empty);
        candidate_ns.push(row(candidate, &draws, false).map_err(Side::Candidate)? - empty_candidate);
        if quick && candidate_ns.last().is_some_and(|row_ns| nothing_hidden(shown.candidate_ns, *row_ns)) {
            // Those before it were disturbed.
            baseline_ns.drain(..number - 1);
            candidate_ns.drain(..number - 1);
            break;
        }
    }
    let kept = draws.iter().enumerate().skip(calls.saturating_sub(slots));
    let kept = kept.map(|(position, draw)| (kept_at.of(position), *draw)).collect();
    Ok(RowTimes {
        kept,
        baseline_ns: Some(median(&baseline_ns).max(0.0)),
        candidate_ns: Some(median(&candidate_ns).max(0.0)),
    })
}

/// Lets both programs keep what is kept of rows and of calls before them: memory is allocated before anything is timed.
pub(super) fn make_room(
    candidate: &mut Session,
    baseline: &mut Session,
    seeds: &mut SecretSeeds,
    (sets, slots): (usize, RowSlots),
) -> Result<(), Side> {
    let draws = draws_of(1, sets, seeds);
    candidate.burst(&draws, slots, true).map_err(Side::Candidate)?;
    baseline.burst(&draws, slots, true).map_err(Side::Baseline)?;
    Ok(())
}

fn draws_of(calls: usize, sets: usize, seeds: &mut SecretSeeds) -> Vec<Draw> {
    (0..calls).map(|_| Draw::new(sets, seeds.draw())).collect()
}

/// Whether a row of the candidate took no longer than the events around its calls say, and nothing disturbed it that is taken
/// off. Nothing is made up for by what disturbed the baseline's.
fn nothing_hidden(shown_ns: f64, row_ns: f64) -> bool {
    row_ns - shown_ns <= HIDDEN_NS.max(shown_ns * NOISE_PART) && row_ns >= shown_ns * PLAUSIBLE_PART
}

/// What a row of the candidate took beyond what the events around its calls showed, and beyond the same for the baseline.
/// A row's calls are launched ahead of time, so that honest ones take less there, never more.
pub(super) fn hidden_in_rows(shown: &TimePair, baseline_ns: f64, candidate_ns: f64) -> f64 {
    candidate_ns - shown.candidate_ns - (baseline_ns - shown.baseline_ns).max(0.0)
}

fn by_call(row: Burst) -> f64 {
    float(row.outside_ns) / crate::statistics::as_float(row.calls.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_calls_have_long_rows_and_slow_ones_few() {
        for (call_ns, expected) in [(5e3, (64, 5)), (1e6, (6, 5)), (4.5e6, (4, 3)), (1e9, (4, 3)), (0.0, (64, 5))] {
            assert_eq!(numbers(call_ns), expected, "{call_ns} ns");
        }
    }

    #[test]
    fn a_row_hides_nothing_that_takes_no_longer_than_its_events_say() {
        for (shown_ns, row_ns, hides) in [
            (10_000.0, 9_500.0, false),
            (10_000.0, 12_900.0, false),
            (10_000.0, 13_100.0, true),
            (6_000_000.0, 6_029_000.0, false),
            (6_000_000.0, 6_031_000.0, true),
            // What is taken off for rows without calls was disturbed.
            (10_000.0, 4_000.0, true),
        ] {
            assert_eq!(nothing_hidden(shown_ns, row_ns), !hides, "{row_ns} ns");
        }
    }
}
