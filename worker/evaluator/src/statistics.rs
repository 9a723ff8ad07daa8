//! Robust statistics of few samples.

use nightshift_protocol::measurement::Interval;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Seed of the bootstrap: the same samples give the same interval.
const BOOTSTRAP_SEED: u64 = 0x6e69_6768_7473_6866;

/// The median; 0 without samples.
#[must_use]
pub fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    median_in_place(&mut sorted)
}

fn median_in_place(samples: &mut [f64]) -> f64 {
    let count = samples.len();
    if count == 0 {
        return 0.0;
    }
    let (below, middle, _) = samples.select_nth_unstable_by(count / 2, f64::total_cmp);
    let upper = *middle;
    if count % 2 == 1 {
        return upper;
    }
    let lower = below.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    f64::midpoint(lower, upper)
}

/// Standard deviation by mean; 0 with fewer than two samples or a mean of zero.
#[must_use]
pub fn coefficient_of_variation(samples: &[f64]) -> f64 {
    if samples.len() < 2 {
        return 0.0;
    }
    let count = as_float(samples.len());
    let mean = samples.iter().sum::<f64>() / count;
    if mean.abs() < f64::MIN_POSITIVE {
        return 0.0;
    }
    let variance = samples.iter().map(|sample| (sample - mean).powi(2)).sum::<f64>() / (count - 1.0);
    variance.sqrt() / mean.abs()
}

/// The median with its percentile bootstrap interval, for a confidence level such as 0.95.
#[must_use]
pub fn bootstrap_median(samples: &[f64], confidence: f64, resamples: usize) -> Interval {
    let estimate = median(samples);
    if samples.len() < 2 || resamples == 0 {
        return Interval { estimate, low: estimate, high: estimate };
    }
    let mut random = ChaCha8Rng::seed_from_u64(BOOTSTRAP_SEED);
    let mut drawn = vec![0.0; samples.len()];
    let mut medians: Vec<f64> = (0..resamples)
        .map(|_| {
            for slot in &mut drawn {
                *slot = samples[random.random_range(0..samples.len())];
            }
            median_in_place(&mut drawn)
        })
        .collect();
    medians.sort_unstable_by(f64::total_cmp);
    let tail = (1.0 - confidence) / 2.0;
    Interval { estimate, low: quantile(&medians, tail), high: quantile(&medians, 1.0 - tail) }
}

/// Quantiles of Student's t distribution for 95 % and so many degrees of freedom, from 1; then the normal distribution's is close.
const STUDENT_T: [f64; 15] =
    [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131];
const NORMAL: f64 = 1.960;

/// The geometric mean of the medians of groups of positive samples, with its interval for a confidence level near 0.95: a
/// hierarchical bootstrap, which resamples groups, and samples within them. With few groups a bootstrap is too narrow. Its spread is
/// widened by `sqrt(n / (n - 1))`, for the groups' own variance, and from the normal to Student's t distribution.
#[must_use]
pub fn bootstrap_groups(groups: &[Vec<f64>], confidence: f64, resamples: usize) -> Interval {
    let groups: Vec<&Vec<f64>> = groups.iter().filter(|group| !group.is_empty()).collect();
    let count = groups.len();
    let log_median = |samples: &mut [f64]| median_in_place(samples).max(f64::MIN_POSITIVE).ln();
    let centre = groups.iter().map(|group| log_median(&mut (*group).clone())).sum::<f64>() / as_float(count.max(1));
    let estimate = if count == 0 { 0.0 } else { centre.exp() };
    if count == 0 || resamples == 0 {
        return Interval { estimate, low: estimate, high: estimate };
    }
    let mut random = ChaCha8Rng::seed_from_u64(BOOTSTRAP_SEED);
    let mut drawn = Vec::new();
    let mut means: Vec<f64> = (0..resamples)
        .map(|_| {
            let mut sum = 0.0;
            for _ in 0..count {
                let group = groups[random.random_range(0..count)];
                drawn.clear();
                drawn.extend((0..group.len()).map(|_| group[random.random_range(0..group.len())]));
                sum += log_median(&mut drawn);
            }
            sum / as_float(count)
        })
        .collect();
    means.sort_unstable_by(f64::total_cmp);
    let wider = match count.checked_sub(2) {
        None => 1.0,
        Some(more) => {
            (as_float(count) / as_float(count - 1)).sqrt() * STUDENT_T.get(more).copied().unwrap_or(NORMAL) / NORMAL
        }
    };
    let tail = (1.0 - confidence) / 2.0;
    let bound = |share: f64| (centre + (quantile(&means, share) - centre) * wider).exp();
    Interval { estimate, low: bound(tail).min(estimate), high: bound(1.0 - tail).max(estimate) }
}

/// Returns the value below which a share of sorted samples lies, between neighbours by linear interpolation.
pub(crate) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let position = share.clamp(0.0, 1.0) * as_float(last);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and the last index")]
    let below = position.floor() as usize;
    let above = (below + 1).min(last);
    let weight = position - position.floor();
    sorted[below] * (1.0 - weight) + sorted[above] * weight
}

#[expect(clippy::cast_precision_loss, reason = "numbers of samples are small")]
pub(crate) fn as_float(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use rand_distr::{Distribution, Normal};

    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-12
    }

    #[test]
    fn medians_of_known_samples() {
        assert!(close(median(&[]), 0.0));
        assert!(close(median(&[4.0]), 4.0));
        assert!(close(median(&[3.0, 1.0, 2.0]), 2.0));
        assert!(close(median(&[4.0, 1.0, 3.0, 2.0]), 2.5));
        assert!(close(median(&[1.0, 1.0, 1.0, 1e9]), 1.0));
    }

    #[test]
    fn the_coefficient_of_variation_of_known_samples() {
        // Mean 5, sample variance 32 / 7.
        let samples = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        assert!((coefficient_of_variation(&samples) - (32.0_f64 / 7.0).sqrt() / 5.0).abs() < 1e-12);
        assert!(close(coefficient_of_variation(&[3.0, 3.0]), 0.0));
        assert!(close(coefficient_of_variation(&[3.0]), 0.0));
    }

    #[test]
    fn quantiles_lie_between_neighbours() {
        assert!(close(quantile(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.5), 3.0));
        assert!(close(quantile(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.125), 1.5));
        assert!(close(quantile(&[7.0], 0.9), 7.0));
    }

    /// How many of the intervals of repeated measurements contain the true value, in percent: groups differ by `between`, and
    /// samples within a group by `within`.
    fn percent_covered(groups: usize, between: f64, within: f64) -> usize {
        let mut random = ChaCha8Rng::seed_from_u64(13);
        let (Ok(of_groups), Ok(of_samples)) = (Normal::new(0.7, between), Normal::new(0.0, within)) else {
            panic!("valid distributions")
        };
        let trials = 400;
        let covered = (0..trials).filter(|_| {
            let all: Vec<Vec<f64>> = (0..groups)
                .map(|_| {
                    let centre: f64 = of_groups.sample(&mut random);
                    (0..12).map(|_| (centre + of_samples.sample(&mut random)).exp()).collect()
                })
                .collect();
            let interval = bootstrap_groups(&all, 0.95, 400);
            assert!(interval.low <= interval.estimate && interval.estimate <= interval.high);
            interval.low <= 0.7_f64.exp() && 0.7_f64.exp() <= interval.high
        });
        covered.count() * 100 / trials
    }

    #[test]
    fn the_interval_of_few_processes_covers_the_true_value_about_as_often_as_it_says() {
        for (groups, between, within) in [(3, 0.05, 0.02), (5, 0.05, 0.05), (8, 0.02, 0.05), (5, 0.0001, 0.05)] {
            let covered = percent_covered(groups, between, within);
            assert!((92..=100).contains(&covered), "{groups} groups, {between}, {within}: {covered} %");
        }
    }

    #[test]
    fn one_process_shows_nothing_of_what_differs_between_processes() {
        assert!(percent_covered(1, 0.05, 0.02) < 50);
        let same = bootstrap_groups(&[vec![2.0; 5], vec![2.0; 7]], 0.95, 100);
        assert!(close(same.low, same.high) && (same.estimate - 2.0).abs() < 1e-9);
        assert!(close(bootstrap_groups(&[], 0.95, 100).estimate, 0.0));
    }

    #[test]
    fn equal_samples_have_no_width_and_the_same_samples_the_same_interval() {
        let equal = bootstrap_median(&[2.0; 9], 0.95, 500);
        assert!(close(equal.low, 2.0) && close(equal.high, 2.0));
        let samples = [1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0];
        assert_eq!(bootstrap_median(&samples, 0.95, 500), bootstrap_median(&samples, 0.95, 500));
    }

    #[test]
    fn the_interval_covers_the_true_median_about_as_often_as_it_says() {
        let mut random = ChaCha8Rng::seed_from_u64(11);
        let Ok(normal) = Normal::new(3.0, 0.5) else { panic!("a valid distribution") };
        let trials = 300;
        let covered = (0..trials)
            .filter(|_| {
                let samples: Vec<f64> = (0..31).map(|_| normal.sample(&mut random)).collect();
                let interval = bootstrap_median(&samples, 0.95, 400);
                assert!(interval.low <= interval.estimate && interval.estimate <= interval.high);
                interval.low <= 3.0 && 3.0 <= interval.high
            })
            .count();
        assert!((270..=299).contains(&covered), "{covered} of {trials}");
    }
}
