//! The `fast_p` curve: the share of tasks with a right program that is more than p times as fast as its baseline.

use std::fmt::Write as _;

use super::frame::{Axis, Caption, Chart};
use super::line::{Series, lines};
use super::number::{Unit, float};

/// Where the curve ends at the latest: beyond, single lucky tasks would squeeze the rest.
const MAX_P: f64 = 100.0;

/// The curve. `None` is a task without a right program: it counts among all, and is never fast.
pub(crate) fn fast_p(caption: &Caption, speedups: &[Option<f64>]) -> Chart {
    let mut found: Vec<f64> =
        speedups.iter().filter_map(|speedup| speedup.filter(|value| value.is_finite() && *value > 0.0)).collect();
    found.sort_unstable_by(f64::total_cmp);
    let all = float(speedups.len().max(1));
    let mut points = vec![(0.0, float(found.len()) / all)];
    for (index, speedup) in found.iter().enumerate() {
        points.push((speedup.min(MAX_P), float(found.len() - index - 1) / all));
    }
    let end = found.last().map_or(2.0, |last| (last * 1.1).clamp(2.0, MAX_P));
    points.push((end.max(points.last().map_or(0.0, |(x, _)| *x)), points.last().map_or(0.0, |(_, y)| *y)));
    if speedups.is_empty() {
        points.clear();
    }
    let at_one = share_above(speedups, 1.0);
    let mut caption = caption.clone();
    if let Some(share) = at_one {
        let _ = write!(caption.description, " fast₁ is {:.0} %, of {} tasks.", share * 100.0, speedups.len());
    }
    let series = Series { name: "share of the tasks".to_owned(), class: "series-1", points, steps: true };
    let x = Axis::linear("p: times as fast as the baseline", Unit::Times);
    lines(&caption, &x, &Axis::linear("tasks", Unit::Share), &[series], Some((0.0, "")))
}

/// The share of tasks whose speedup is above p; none without tasks.
pub(crate) fn share_above(speedups: &[Option<f64>], p: f64) -> Option<f64> {
    let fast = speedups.iter().filter(|speedup| speedup.is_some_and(|value| value.is_finite() && value > p)).count();
    (!speedups.is_empty()).then(|| float(fast) / float(speedups.len()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::frame::assert_drawable;
    use super::*;

    #[test]
    fn a_task_without_a_right_program_is_never_fast() {
        let speedups = [Some(2.0), Some(0.5), None, Some(1.0)];
        assert_eq!(share_above(&speedups, 0.0), Some(0.75));
        assert_eq!(share_above(&speedups, 1.0), Some(0.25));
        assert_eq!(share_above(&[], 1.0), None);
        assert!(fast_p(&Caption::new("fast_p", ""), &speedups).as_str().contains("fast₁ is 25 %, of 4 tasks."));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

        #[test]
        fn hostile_numbers_are_drawn_or_left_out(speedups in proptest::collection::vec(any::<Option<f64>>(), 0..60)) {
            assert_drawable(&fast_p(&Caption::new("fast_p", ""), &speedups));
        }
    }
}
