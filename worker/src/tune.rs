//! The search over the variants of a program: which are built, how often each is timed, and which one wins.
//!
//! Successive halving: every variant is timed briefly, the faster half is timed twice as long, and so on. The program as
//! it was written stays in the search for as long as it stands, because a winner has to beat it. The search ends early when
//! the leader lies above all others with its whole interval, and in any case when its budget is used up. Where no leader is
//! clear, the best few are timed in turns while nothing else runs on the machine. Before a variant wins it is checked like any
//! program; one that fails makes way for the next.
//!
//! This module decides; what it decides about is behind [`Trials`].

use std::collections::BTreeMap;

use nightshift_protocol::measurement::Interval;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::tune::{TuneBudget, TuneEnd, TunedVariant, VariantOutcome};

/// Most rounds of timing.
const MAX_ROUNDS: u32 = 3;

/// Variants that are left in the last round, at least: a leader is one of several.
const FEWEST_LEFT: usize = 2;

/// Variants that are timed in turns at the end, and the turns.
const FINALISTS: usize = 3;
const FINAL_TURNS: usize = 3;

/// Share of the wall time after which nothing further is built: the rest is for timing.
const BUILDING_SHARE: f64 = 0.6;

/// A winner is faster than the program as it was written by more than this share: less is noise of short timings.
const MIN_GAIN: f64 = 0.01;

/// How a variant is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timing {
    /// In this round, counted from 1: the longer, the later it is.
    Round(u32),
    /// In turns with the other finalists, as long as in the last round, while nothing else runs on the machine.
    Final,
}

impl Timing {
    /// Returns the round whose length it has.
    pub(crate) fn length(self) -> u32 {
        match self {
            Self::Round(round) => round,
            Self::Final => MAX_ROUNDS,
        }
    }
}

/// What timing one variant gave.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Timed {
    /// Its speedup over the baseline.
    Speedup(Interval),
    /// Results of timed calls were wrong, or rules were broken.
    Wrong(String),
    /// It did not survive.
    Failed(String),
}

/// What a search tries variants with. Variants have numbers, in the order in which they are given.
pub(crate) trait Trials {
    /// Time since the search began, in milliseconds.
    fn elapsed_ms(&self) -> u64;

    /// Builds a variant; gives the reason when it does not compile.
    fn build(&mut self, number: usize, values: &[i64]) -> Result<Option<String>, StepFailure>;

    /// Times a variant that was built.
    fn time(&mut self, number: usize, timing: Timing) -> Result<Timed, StepFailure>;

    /// Checks a variant like any program; gives the reason when it does not pass.
    fn check(&mut self, number: usize) -> Result<Option<String>, StepFailure>;
}

/// A finished search.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Searched {
    pub(crate) variants: Vec<TunedVariant>,
    pub(crate) rounds: u32,
    pub(crate) end: TuneEnd,
    /// Number of the variant that won; none when the program stays as it was written.
    pub(crate) winner: Option<usize>,
}

/// Searches variants, the first of which is the program as it was written.
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
    /// Builds as many as the time allows, the program as it was written in any case; gives those that compiled.
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

    /// Times in rounds until one is left, the leader is clear, or the time is over. Gives those that are left, the fastest
    /// first.
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
                // What was timed in the round before still counts, as far as it stands.
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

    /// Times the best few in turns, so that what changes on the machine changes for all of them. Gives those that are left, the
    /// fastest first. A clear leader needs no comparison.
    fn compare(&mut self, mut standing: Vec<usize>) -> Result<Vec<usize>, StepFailure> {
        if standing.len() < 2 || self.is_clear(&standing) {
            return Ok(standing);
        }
        let mut finalists: Vec<usize> = standing.iter().copied().take(FINALISTS).collect();
        let mut timed: BTreeMap<usize, Vec<Interval>> = BTreeMap::new();
        for _ in 0..FINAL_TURNS {
            for number in finalists.clone() {
                if self.is_over(1.0) {
                    // A part of the turns would favour those that come first.
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

    /// The fastest that is faster than the program as it was written, and passes its check. When that program itself did
    /// not come through, the fastest that passes.
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

    /// Whether the leader lies above all others with its whole interval.
    fn is_clear(&self, sorted: &[usize]) -> bool {
        let interval = |number: &usize| self.variants[*number].speedup;
        let Some(leader) = sorted.first().and_then(interval) else { return false };
        sorted.iter().skip(1).filter_map(interval).all(|other| other.high < leader.low)
    }
}

/// Returns what lies in the middle of several intervals.
fn middle(intervals: &[Interval]) -> Option<Interval> {
    let median = |value: fn(&Interval) -> f64| {
        let mut values: Vec<f64> = intervals.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    };
    Some(Interval { estimate: median(|of| of.estimate)?, low: median(|of| of.low)?, high: median(|of| of.high)? })
}

/// The faster half, and the program as it was written.
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
