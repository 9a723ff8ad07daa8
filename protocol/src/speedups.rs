//! Speedups of the best programs of several tasks over one baseline: their geometric mean and `fast_p`.

use crate::measurement::Interval;

/// Speedups of the best programs of several tasks over one baseline.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Speedups {
    /// Tasks whose speedup is known, or which have no right program.
    pub tasks: u64,
    /// Speedups of the best programs, ascending.
    sorted: Vec<f64>,
}

impl Speedups {
    /// Collects the speedups of tasks. Of each task it takes the speedup of the best program over the reference, and over this baseline;
    /// both are absent where there is no right program. A right program whose speedup over this baseline is not known does not count.
    pub fn collect(tasks: impl IntoIterator<Item = (Option<Interval>, Option<Interval>)>) -> Self {
        let estimate = |speedup: Option<Interval>| speedup.map(|speedup| speedup.estimate);
        Self::of_estimates(tasks.into_iter().map(|(over_reference, over)| (estimate(over_reference), estimate(over))))
    }

    /// Collects speedups like [`Self::collect`], from their estimates.
    pub fn of_estimates(tasks: impl IntoIterator<Item = (Option<f64>, Option<f64>)>) -> Self {
        let mut speedups = Self::default();
        for (over_reference, over_baseline) in tasks {
            if over_reference.is_some() && over_baseline.is_none() {
                continue;
            }
            speedups.tasks += 1;
            speedups.sorted.extend(over_baseline.filter(|estimate| estimate.is_finite() && *estimate > 0.0));
        }
        speedups.sorted.sort_unstable_by(f64::total_cmp);
        speedups
    }

    /// Returns how many tasks have a right and timed program.
    #[must_use]
    pub fn solved(&self) -> u64 {
        count(self.sorted.len())
    }

    /// Returns how many tasks have a right program that is more than p times as fast.
    #[must_use]
    pub fn above(&self, p: f64) -> u64 {
        count(self.sorted.len() - self.sorted.partition_point(|speedup| *speedup <= p))
    }

    /// Returns the geometric mean over the tasks with a right program.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a number of tasks")]
    pub fn geometric_mean(&self) -> Option<f64> {
        let logarithms: f64 = self.sorted.iter().map(|speedup| speedup.ln()).sum();
        (!self.sorted.is_empty()).then(|| (logarithms / self.sorted.len() as f64).exp())
    }

    /// Returns the highest speedup.
    #[must_use]
    pub fn highest(&self) -> Option<f64> {
        self.sorted.last().copied()
    }

    /// Returns the median over the tasks with a right program.
    #[must_use]
    pub fn median(&self) -> Option<f64> {
        let low = self.sorted.get(self.sorted.len().checked_sub(1)? / 2)?;
        Some(f64::midpoint(*low, *self.sorted.get(self.sorted.len() / 2)?))
    }

    /// Returns `fast_p`: the share of all tasks whose best program is right and more than p times as fast.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "numbers of tasks")]
    pub fn fast_p(&self, p: f64) -> Option<f64> {
        (self.tasks > 0).then(|| self.above(p) as f64 / self.tasks as f64)
    }

    /// Returns the steps of the curve `fast_p`, from p = 0 on.
    #[must_use]
    pub fn steps(&self) -> Vec<(f64, f64)> {
        let mut places: Vec<f64> = std::iter::once(0.0).chain(self.sorted.iter().copied()).collect();
        places.dedup();
        places.into_iter().filter_map(|p| Some((p, self.fast_p(p)?))).collect()
    }
}

fn count(tasks: usize) -> u64 {
    u64::try_from(tasks).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_task_without_a_right_program_counts_as_not_faster() {
        let at = |estimate: f64| Some(Interval { estimate, low: estimate, high: estimate });
        let tasks = [at(2.0), at(8.0), at(0.5), None].map(|speedup| (speedup, speedup));
        let speedups = Speedups::collect(tasks);
        assert!((speedups.geometric_mean().unwrap() - 2.0).abs() < 1e-9, "{speedups:?}");
        assert_eq!((speedups.solved(), speedups.above(1.0), speedups.tasks), (3, 2, 4));
        assert_eq!((speedups.median(), speedups.highest()), (Some(2.0), Some(8.0)));
        assert_eq!(Speedups::collect([(None, None)]).geometric_mean(), None);
        let unknown = Speedups::of_estimates([(Some(3.0), None), (Some(3.0), Some(1.5)), (Some(2.0), Some(0.5))]);
        assert_eq!((unknown.tasks, unknown.median()), (2, Some(1.0)), "a speedup that is not known does not count");
    }
}
