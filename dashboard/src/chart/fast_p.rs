//! The `fast_p` curve: the share of tasks whose best program is correct and more than p times as fast as its baseline.

use std::fmt::Write as _;

use super::frame::{Axis, Caption, Chart};
use super::line::{Series, lines};
use super::number::Unit;
use crate::format::counted;

/// Where the curve ends at the latest: beyond, there are single lucky tasks.
const MAX_P: f64 = 100.0;
/// Where it begins at the latest and at the earliest: half as fast is of interest, a hundredth is not.
const FIRST_P: (f64, f64) = (0.1, 0.5);

/// A curve.
#[derive(Debug, Clone, Default)]
pub(crate) struct Curve {
    /// Over which baseline.
    pub(crate) name: &'static str,
    /// Its class.
    pub(crate) class: &'static str,
    /// Its steps: p, and the share that stays until the next one.
    pub(crate) steps: Vec<(f64, f64)>,
    /// Of how many tasks it is the share.
    pub(crate) tasks: u64,
}

/// The curves over several baselines.
pub(crate) fn fast_p(caption: &Caption, curves: &[Curve]) -> Chart {
    let mut caption = caption.clone();
    for curve in curves.iter().filter(|curve| curve.tasks > 0) {
        if let Some(share) = share_above(&usable(&curve.steps), 1.0) {
            let tasks = counted(curve.tasks, "task", "tasks");
            let _ = write!(caption.description, " fast₁ {} is {:.0} %, of {tasks}.", curve.name, share * 100.0);
        }
    }
    let series: Vec<Series> = curves
        .iter()
        .map(|curve| Series {
            name: curve.name.to_owned(),
            class: curve.class,
            points: points(&usable(&curve.steps)),
            steps: true,
        })
        .collect();
    let x = Axis::log("p: times as fast as the baseline", Unit::Times);
    lines(&caption, &x, &Axis::linear("tasks", Unit::Share), &series, Some((0.0, "")))
}

fn usable(steps: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let is_share = |share: &f64| (0.0..=1.0).contains(share);
    let is_step = |(p, share): &(f64, f64)| p.is_finite() && *p >= 0.0 && is_share(share);
    steps.iter().copied().filter(is_step).collect()
}

/// The corners of a curve that are drawn.
fn points(steps: &[(f64, f64)]) -> Vec<(f64, f64)> {
    // Ratios are what counts: between 1 and 2 there is as much to see as between 10 and 20. Zero has no place there.
    let lowest = steps.iter().map(|(p, _)| *p).filter(|p| *p > 0.0).fold(f64::INFINITY, f64::min);
    let first = lowest.clamp(FIRST_P.0, FIRST_P.1);
    let mut sorted = steps.to_vec();
    sorted.sort_by(|one, other| one.0.total_cmp(&other.0));
    let below = sorted.iter().take_while(|(p, _)| *p <= first).last().map(|(_, share)| (first, *share));
    let mut points: Vec<(f64, f64)> = below.into_iter().collect();
    points.extend(sorted.iter().filter(|(p, _)| *p > first).map(|(p, share)| (p.min(MAX_P), *share)));
    if let Some((last, share)) = points.last().copied() {
        points.push(((last * 1.1).clamp(2.0, MAX_P).max(last), share));
    }
    points
}

/// The share at p: that of the last step up to there.
fn share_above(steps: &[(f64, f64)], p: f64) -> Option<f64> {
    let upto = steps.iter().filter(|(step, _)| *step <= p);
    upto.max_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, share)| *share)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::frame::assert_drawable;
    use super::*;

    fn drawn(steps: &[(f64, f64)], tasks: u64) -> Chart {
        let curve = Curve { name: "over the reference", class: "series-1", steps: steps.to_vec(), tasks };
        fast_p(&Caption::new("fast_p", ""), &[curve])
    }

    #[test]
    fn the_caption_tells_the_share_of_tasks_that_are_faster_than_their_baseline() {
        // Of four tasks one is twice as fast, one as fast, one half as fast, and one has no right program.
        let steps = [(0.0, 0.75), (0.5, 0.5), (1.0, 0.25), (2.0, 0.0)];
        assert_eq!(share_above(&steps, 0.9), Some(0.5));
        assert_eq!(share_above(&[], 1.0), None);
        assert!(drawn(&steps, 4).as_str().contains("fast₁ over the reference is 25 %, of 4 tasks."));
        assert!(!drawn(&[], 0).as_str().contains("fast₁"));
    }

    #[test]
    fn each_baseline_has_its_curve() {
        let steps = vec![(0.0, 1.0), (2.0, 0.0)];
        let curve = |name, class| Curve { name, class, steps: steps.clone(), tasks: 1 };
        let curves = [curve("over the reference", "series-1"), curve("over the fastest baseline", "series-2")];
        let chart = fast_p(&Caption::new("fast_p", ""), &curves);
        assert_eq!(chart.as_str().matches("class=\"line ").count(), 2);
        assert!(chart.as_str().contains("fast₁ over the fastest baseline is 100 %, of 1 task."));
    }

    #[test]
    fn twice_as_fast_is_as_far_from_the_baseline_as_four_times_from_twice() {
        let steps = [(0.0, 1.0), (1.0, 0.75), (2.0, 0.5), (4.0, 0.25), (40.0, 0.0)];
        let chart = drawn(&steps, 4);
        let path = chart.as_str().split(" d=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or_default();
        let places: Vec<f64> =
            path.split('H').skip(1).filter_map(|rest| rest.split('V').next()?.parse().ok()).collect();
        assert!(((places[1] - places[0]) - (places[2] - places[1])).abs() < 0.1, "{path}");
        assert!(path.starts_with("M66 "), "what is slower is seen from half as fast on: {path}");
    }

    #[test]
    fn what_is_no_share_is_left_out() {
        let chart = drawn(&[(0.0, -1.8e307), (0.5, 0.25), (0.7, 2.0)], 4);
        assert!(chart.as_str().contains("fast₁ over the reference is 25 %"), "{}", chart.as_str());
        assert_drawable(&chart);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

        #[test]
        fn hostile_numbers_are_drawn_or_left_out(
            steps in proptest::collection::vec((any::<f64>(), any::<f64>()), 0..60), tasks in any::<u64>(),
        ) {
            assert_drawable(&drawn(&steps, tasks));
        }
    }
}
