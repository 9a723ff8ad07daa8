//! The pairs of processes of a measurement, and their common speedup, interval and findings.

use nightshift_protocol::measurement::Interval;
use nightshift_protocol::verdict::Finding;

use super::pair_times::{PairTimes, WORK_OUTSIDE_CALL, overlap_ns};
use super::{CONFIDENCE, MeasureOptions};
use crate::statistics::{bootstrap_groups, median};

/// Resamples of the interval.
const RESAMPLES: usize = 2_000;

/// A program whose first pair of processes has an interval below this is slower whatever other pairs say.
const CLEARLY_SLOWER: f64 = 0.5;

/// Maximum number of pairs of processes of a measurement that do not count because the baseline was slower next to the candidate than by itself.
/// Most often the machine was slower for a moment. Where it happens again, the baseline's time by itself counts.
const MAX_SET_ASIDE: usize = 2;

/// Times of all pairs of processes, in the order of their measurement.
#[derive(Default)]
pub(super) struct ProcessPairs {
    pairs: Vec<PairTimes>,
    /// Pairs set aside since the last counted one.
    aside: Vec<PairTimes>,
    set_aside: usize,
}

impl ProcessPairs {
    /// Returns whether the next pair may be set aside. A program that compiles at its first call would compile again in another pair.
    pub(super) fn may_set_aside(&self, options: &MeasureOptions) -> bool {
        !options.compiles && self.set_aside < MAX_SET_ASIDE
    }

    pub(super) fn add(&mut self, mut times: PairTimes, options: &MeasureOptions) {
        if times.disturbed().is_some() && !times.is_wrong() && self.may_set_aside(options) {
            self.set_aside += 1;
            self.aside.push(times);
            return;
        }
        for earlier in self.aside.drain(..) {
            times.replaces(&earlier, "the reference was slower next to the program than by itself");
        }
        self.pairs.push(times);
        let overlap_ns = overlap_ns(&self.pairs);
        for pair in &mut self.pairs {
            pair.overlap_ns = overlap_ns;
        }
    }

    /// Returns how many were timed, also of those that do not count.
    pub(super) fn timed(&self) -> usize {
        self.pairs.len() + self.set_aside
    }

    pub(super) fn pairs(&self) -> &[PairTimes] {
        &self.pairs
    }

    /// Returns whether another pair of processes has to be timed.
    pub(super) fn needs_another(&self, options: &MeasureOptions) -> bool {
        let count = self.pairs.len();
        if self.pairs.iter().any(PairTimes::is_wrong) {
            return false;
        }
        if count >= options.process_pairs {
            return count < options.most_process_pairs
                && self.speedup().relative_half_width() > options.wanted_relative_half_width;
        }
        match &*self.pairs {
            // An accusation that rests on time alone has to be supported by a second pair.
            [only] if self.speedup().high < CLEARLY_SLOWER => only.accuses(),
            _ => true,
        }
    }

    /// Returns the speedup with its interval.
    pub(super) fn speedup(&self) -> Interval {
        let ratios: Vec<Vec<f64>> = self.pairs.iter().map(PairTimes::ratios).collect();
        bootstrap_groups(&ratios, CONFIDENCE, RESAMPLES)
    }

    /// Returns the speedup that each pair of processes showed.
    pub(super) fn speedups(&self) -> Vec<f64> {
        self.pairs.iter().map(|pair| median(&pair.ratios())).collect()
    }

    /// Returns values of all pairs in the order in which they were taken.
    pub(super) fn concat<'a, T: 'a + Clone>(&'a self, of: impl Fn(&'a PairTimes) -> Vec<T>) -> Vec<T> {
        self.pairs.iter().flat_map(of).collect()
    }

    /// Returns findings about times that were corrected, and about results that turned wrong. Work outside of calls counts when two
    /// pairs of processes show it, or the only one of a first measurement, which was timed twice then.
    pub(super) fn corrections(&self, options: &MeasureOptions) -> Vec<Finding> {
        let accused = self.pairs.iter().filter(|pair| pair.accuses()).count();
        let is_supported = accused >= options.process_pairs.min(2);
        let found = self.pairs.iter().flat_map(PairTimes::corrections);
        let found = found.filter(|finding| is_supported || finding.code != WORK_OUTSIDE_CALL);
        found.chain(self.pairs.first().and_then(PairTimes::overlap)).collect()
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;
    use rand_distr::{Distribution, Normal};

    use super::super::pair_times::tests::times;
    use super::*;

    /// Pairs of processes with these speedups, whose windows agree.
    fn pairs(speedups: &[f64]) -> ProcessPairs {
        ProcessPairs {
            pairs: speedups.iter().map(|speedup| times(1e6, 1e6, 0.0, 1e6 * speedup, 1e6 * speedup)).collect(),
            ..ProcessPairs::default()
        }
    }

    fn needs_another(speedups: &[f64]) -> bool {
        pairs(speedups).needs_another(&MeasureOptions { process_pairs: 3, ..MeasureOptions::confirmation() })
    }

    #[test]
    fn a_measurement_has_as_many_pairs_of_processes_as_its_options_say() {
        assert!(needs_another(&[]) && needs_another(&[2.0]) && needs_another(&[2.0, 2.0]));
        assert!(!needs_another(&[2.0, 2.0, 2.0]));
        assert!(needs_another(&[2.0, 2.1, 1.9]), "the interval is too wide");
        assert!(!needs_another(&[2.0, 2.1, 1.9, 2.0, 2.0]), "there are as many as may be");
        let mut wrong = pairs(&[2.0, 2.0]);
        wrong.pairs[0].wrong = true;
        assert!(!wrong.needs_another(&MeasureOptions::confirmation()), "a wrong program is not timed further");
    }

    #[test]
    fn pairs_that_are_added_where_the_interval_is_wide_do_not_spoil_what_it_says() {
        let options = MeasureOptions::confirmation();
        let mut random = ChaCha8Rng::seed_from_u64(17);
        for (between, within) in [(0.005, 0.01), (0.02, 0.02), (0.05, 0.05), (0.1, 0.02)] {
            let (Ok(of_pairs), Ok(of_windows)) = (Normal::new(0.7, between), Normal::new(0.0, within)) else {
                panic!("valid distributions")
            };
            let trials = 60;
            let covered = (0..trials).filter(|_| {
                let mut all = ProcessPairs::default();
                while all.needs_another(&options) {
                    let centre: f64 = of_pairs.sample(&mut random);
                    let mut pair = times(1e6, 1e6, 0.0, 1e6, 1e9);
                    pair.baseline_ns = (0..12).map(|_| 1e6 * (centre + of_windows.sample(&mut random)).exp()).collect();
                    pair.candidate_ns = vec![1e6; 12];
                    all.add(pair, &options);
                }
                let interval = all.speedup();
                interval.low <= 0.7_f64.exp() && 0.7_f64.exp() <= interval.high
            });
            let covered = covered.count() * 100 / trials;
            assert!(covered >= 90, "{between}, {within}: {covered} %");
        }
    }

    #[test]
    fn two_pairs_next_to_which_the_baseline_was_slower_do_not_count_and_a_third_one_does() {
        let options = MeasureOptions::confirmation();
        let disturbed = || times(1e6, 1e6, 0.0, 3e6, 2e6);
        let mut all = pairs(&[]);
        for _ in 0..2 {
            all.add(disturbed(), &options);
            assert!(all.pairs().is_empty());
        }
        all.add(times(1e6, 1e6, 0.0, 2e6, 2e6), &options);
        assert_eq!((all.pairs().len(), all.timed(), all.pairs()[0].rejected), (1, 3, 10));
        all.add(disturbed(), &options);
        assert_eq!((all.pairs().len(), all.pairs()[1].rejected), (2, 0));
        assert!(all.speedups().iter().all(|speedup| (speedup - 2.0).abs() < 1e-9), "its time by itself counts");
        let mut wrong = disturbed();
        wrong.wrong = true;
        let mut all = pairs(&[]);
        all.add(wrong, &options);
        assert_eq!(all.pairs().len(), 1, "a wrong program is not timed further");
        let mut all = pairs(&[]);
        all.add(disturbed(), &MeasureOptions { compiles: true, ..options });
        assert_eq!(all.pairs().len(), 1, "a program that compiles is not loaded again");
    }

    #[test]
    fn one_pair_shows_that_a_program_is_clearly_slower() {
        assert!(!needs_another(&[0.4]) && needs_another(&[0.6]));
        let mut accused = pairs(&[]);
        let options = MeasureOptions::confirmation();
        accused.add(times(1e6, 1e6, 3e5, 4e5, 4e5), &options);
        assert!(accused.needs_another(&options), "one pair is not enough for an accusation");
        accused.add(times(1e6, 1e6, 0.0, 4e5, 4e5), &options);
        assert!(accused.corrections(&options).is_empty(), "the second pair does not support it");
        accused.add(times(1e6, 1e6, 3e5, 4e5, 4e5), &options);
        assert!(accused.corrections(&options).iter().any(|finding| finding.code == WORK_OUTSIDE_CALL));
    }

    #[test]
    fn the_interval_covers_what_differs_between_processes() {
        let all = pairs(&[2.0, 2.2, 1.8, 2.1, 1.9]);
        let speedup = all.speedup();
        assert!(speedup.low < 1.9 && speedup.high > 2.1, "{speedup:?}");
        assert_eq!(all.speedups().len(), 5);
        assert!(pairs(&[2.0]).speedup().relative_half_width() < 1e-9, "one pair shows nothing of it");
    }
}
