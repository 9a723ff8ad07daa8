//! Searches the variants of a program: decides which are built, how often each is timed, and which one wins.
//!
//! The method is successive halving: every variant is timed briefly, the faster half is timed twice as long, and so on. The
//! original program stays in the search, because a winner has to beat it. The search ends when the whole interval of the
//! leader lies above all others, or when its budget is used up. Without a clear leader, the best few are timed in turns while
//! nothing else runs on the machine. A variant must pass the check of programs to win; else the next one is checked.
//!
//! This module only decides; [`Trials`] builds, times and checks.

use std::collections::BTreeMap;

use nightshift_protocol::measurement::Interval;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::tune::{TuneBudget, TuneEnd, TunedVariant, VariantOutcome};

/// Maximum number of timing rounds.
const MAX_ROUNDS: u32 = 3;

/// Minimum number of variants in the last round.
const FEWEST_LEFT: usize = 2;

/// Number of variants in the final comparison, and of its turns.
const FINALISTS: usize = 3;
const FINAL_TURNS: usize = 3;

/// Share of the wall time for building; the rest is for timing.
const BUILDING_SHARE: f64 = 0.6;

/// Minimum relative gain of a winner over the original program; smaller gains are noise of short timings.
const MIN_GAIN: f64 = 0.01;

/// How a variant is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timing {
    /// Timing in this round, counted from 1; later rounds are longer.
    Round(u32),
    /// Timing in turns with the other finalists, as long as in the last round, while nothing else runs on the machine.
    Final,
}

impl Timing {
    /// Returns the round with the same length.
    pub(crate) fn length(self) -> u32 {
        match self {
            Self::Round(round) => round,
            Self::Final => MAX_ROUNDS,
        }
    }
}

/// The result of timing a variant.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Timed {
    /// Its speedup over the baseline.
    Speedup(Interval),
    /// Results of timed calls were wrong, or rules were broken.
    Wrong(String),
    /// The process crashed.
    Failed(String),
}

/// Builds, times and checks variants, which are numbered in the given order.
pub(crate) trait Trials {
    /// Returns the time since the search began, in milliseconds.
    fn elapsed_ms(&self) -> u64;

    /// Builds a variant. Returns the reason when it does not compile.
    fn build(&mut self, number: usize, values: &[i64]) -> Result<Option<String>, StepFailure>;

    /// Times a variant that was built.
    fn time(&mut self, number: usize, timing: Timing) -> Result<Timed, StepFailure>;

    /// Checks a variant like any program. Returns the reason when it does not pass.
    fn check(&mut self, number: usize) -> Result<Option<String>, StepFailure>;
}

/// A finished search.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Searched {
    pub(crate) variants: Vec<TunedVariant>,
    pub(crate) rounds: u32,
    pub(crate) end: TuneEnd,
    /// Number of the winner; `None` when the original program stays.
    pub(crate) winner: Option<usize>,
}

/// Searches the variants. The first one is the original program.
pub(crate) fn search(
    trials: &mut impl Trials,
    variants: Vec<Vec<i64>>,
    budget: TuneBudget,
) -> Result<Searched, StepFailure> {
    let not_reached =
        |values| TunedVariant { values, outcome: VariantOutcome::NotReached, rounds: 0, speedup: None, message: None };
    let most = usize::try_from(budget.max_variants).unwrap_or(usize::MAX).max(1);
    let variants: Vec<TunedVariant> = variants.into_iter().take(most).map(not_reached).collect();
    let mut search = VariantSearch { trials, variants, wall_ms: budget.wall_ms, rounds: 0 };
    let standing = search.build_all()?;
    let (standing, end) = search.time_all(standing)?;
    let standing = if end == TuneEnd::Settled { search.compare(standing)? } else { standing };
    let winner = search.choose(&standing)?;
    Ok(Searched { variants: search.variants, rounds: search.rounds, end, winner })
}

struct VariantSearch<'a, T> {
    trials: &'a mut T,
    variants: Vec<TunedVariant>,
    wall_ms: u64,
    rounds: u32,
}

impl<T: Trials> VariantSearch<'_, T> {
    /// Builds the original program, and as many variants as the time allows. Returns those that compiled.
    fn build_all(&mut self) -> Result<Vec<usize>, StepFailure> {
        let mut standing = Vec::new();
        for number in 0..self.variants.len() {
            if number > 0 && self.is_over(BUILDING_SHARE) {
                break;
            }
            let values = self.variants[number].values.clone();
            match self.trials.build(number, &values)? {
                None => standing.push(number),
                Some(why) => self.drop_out(number, VariantOutcome::NotBuilt, why),
            }
        }
        Ok(standing)
    }

    /// Times variants in rounds until one is left, the leader is clear, or the time is over. Returns the remaining ones, the
    /// fastest first.
    fn time_all(&mut self, mut standing: Vec<usize>) -> Result<(Vec<usize>, TuneEnd), StepFailure> {
        for round in 1..=MAX_ROUNDS {
            let mut left = Vec::new();
            let mut is_over = false;
            for number in standing.iter().copied() {
                if self.is_over(1.0) {
                    is_over = true;
                    break;
                }
                self.rounds = round;
                match self.trials.time(number, Timing::Round(round))? {
                    Timed::Speedup(speedup) => {
                        let variant = &mut self.variants[number];
                        variant.speedup = Some(speedup);
                        variant.rounds = round;
                        variant.outcome = VariantOutcome::Slower;
                        left.push(number);
                    }
                    Timed::Wrong(why) => self.drop_out(number, VariantOutcome::Wrong, why),
                    Timed::Failed(why) => self.drop_out(number, VariantOutcome::Failed, why),
                }
            }
            if is_over {
                // Results of the round before still count for the remaining variants.
                left = standing.into_iter().filter(|number| self.variants[*number].speedup.is_some()).collect();
            }
            self.sort(&mut left);
            if left.is_empty() {
                return Ok((left, if is_over { TuneEnd::BudgetUsed } else { TuneEnd::NothingLeft }));
            }
            if is_over {
                return Ok((left, TuneEnd::BudgetUsed));
            }
            if left.len() == 1 || round == MAX_ROUNDS || self.is_clear(&left) {
                return Ok((left, TuneEnd::Settled));
            }
            standing = halved(left);
        }
        Ok((standing, TuneEnd::Settled))
    }

    /// Times the best few in turns, so that changes of the machine affect all of them. Returns the remaining ones, the fastest
    /// first. A clear leader needs no comparison.
    fn compare(&mut self, mut standing: Vec<usize>) -> Result<Vec<usize>, StepFailure> {
        if standing.len() < 2 || self.is_clear(&standing) {
            return Ok(standing);
        }
        let mut finalists: Vec<usize> = standing.iter().copied().take(FINALISTS).collect();
        let mut timed: BTreeMap<usize, Vec<Interval>> = BTreeMap::new();
        for _ in 0..FINAL_TURNS {
            for number in finalists.clone() {
                if self.is_over(1.0) {
                    // An incomplete turn would favour the first variants.
                    return Ok(standing);
                }
                let dropped = match self.trials.time(number, Timing::Final)? {
                    Timed::Speedup(speedup) => {
                        timed.entry(number).or_default().push(speedup);
                        continue;
                    }
                    Timed::Wrong(why) => (VariantOutcome::Wrong, why),
                    Timed::Failed(why) => (VariantOutcome::Failed, why),
                };
                self.drop_out(number, dropped.0, dropped.1);
                finalists.retain(|finalist| *finalist != number);
                standing.retain(|finalist| *finalist != number);
            }
            finalists.reverse();
        }
        for number in finalists {
            self.variants[number].speedup = timed.get(&number).and_then(|turns| middle(turns));
        }
        self.sort(&mut standing);
        Ok(standing)
    }

    /// Returns the fastest variant that beats the original program and passes its check. When the original program failed,
    /// returns the fastest one that passes.
    fn choose(&mut self, standing: &[usize]) -> Result<Option<usize>, StepFailure> {
        let to_beat = standing.contains(&0).then(|| self.estimate(0) * (1.0 + MIN_GAIN));
        for number in standing.iter().copied().filter(|number| *number != 0) {
            if to_beat.is_some_and(|to_beat| self.estimate(number) <= to_beat) {
                break;
            }
            match self.trials.check(number)? {
                None => {
                    self.variants[number].outcome = VariantOutcome::Chosen;
                    return Ok(Some(number));
                }
                Some(why) => self.drop_out(number, VariantOutcome::Wrong, why),
            }
        }
        if let Some(written) = self.variants.first_mut().filter(|written| written.outcome == VariantOutcome::Slower) {
            written.outcome = VariantOutcome::Kept;
        }
        Ok(None)
    }

    fn drop_out(&mut self, number: usize, outcome: VariantOutcome, why: String) {
        let variant = &mut self.variants[number];
        variant.outcome = outcome;
        variant.speedup = None;
        variant.message = Some(why);
    }

    fn is_over(&self, share: f64) -> bool {
        #[expect(clippy::cast_precision_loss, reason = "milliseconds of minutes")]
        let (elapsed, limit) = (self.trials.elapsed_ms() as f64, self.wall_ms as f64);
        elapsed >= limit * share
    }

    fn estimate(&self, number: usize) -> f64 {
        self.variants[number].speedup.map_or(0.0, |speedup| speedup.estimate)
    }

    fn sort(&self, numbers: &mut [usize]) {
        numbers.sort_by(|a, b| self.estimate(*b).total_cmp(&self.estimate(*a)).then(a.cmp(b)));
    }

    /// Returns whether the whole interval of the leader lies above all others.
    fn is_clear(&self, sorted: &[usize]) -> bool {
        let interval = |number: &usize| self.variants[*number].speedup;
        let Some(leader) = sorted.first().and_then(interval) else { return false };
        sorted.iter().skip(1).filter_map(interval).all(|other| other.high < leader.low)
    }
}

/// Returns the median of several intervals.
fn middle(intervals: &[Interval]) -> Option<Interval> {
    let median = |value: fn(&Interval) -> f64| {
        let mut values: Vec<f64> = intervals.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    };
    Some(Interval { estimate: median(|of| of.estimate)?, low: median(|of| of.low)?, high: median(|of| of.high)? })
}

/// Returns the faster half, and the original program.
fn halved(mut sorted: Vec<usize>) -> Vec<usize> {
    let keep = sorted.len().div_ceil(2).max(FEWEST_LEFT);
    let written_goes = sorted.iter().skip(keep).any(|number| *number == 0);
    sorted.truncate(keep);
    if written_goes {
        sorted.push(0);
    }
    sorted
}

#[cfg(test)]
mod tests;
