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

/// The curve, from its steps: p, and the share that stays until the next one. `tasks` is of how many it is the share.
pub(crate) fn fast_p(caption: &Caption, steps: &[(f64, f64)], tasks: u64) -> Chart {
    let is_share = |share: &f64| (0.0..=1.0).contains(share);
    let is_step = |(p, share): &(f64, f64)| p.is_finite() && *p >= 0.0 && is_share(share);
    let steps: Vec<(f64, f64)> = steps.iter().copied().filter(is_step).collect();
    // Ratios are what counts: between 1 and 2 there is as much to see as between 10 and 20. Zero has no place there.
    let lowest = steps.iter().map(|(p, _)| *p).filter(|p| *p > 0.0).fold(f64::INFINITY, f64::min);
    let first = lowest.clamp(FIRST_P.0, FIRST_P.1);
    let mut sorted = steps.clone();
    sorted.sort_by(|one, other| one.0.total_cmp(&other.0));
    let below = sorted.iter().take_while(|(p, _)| *p <= first).last().map(|(_, share)| (first, *share));
    let mut points: Vec<(f64, f64)> = below.into_iter().collect();
    points.extend(sorted.iter().filter(|(p, _)| *p > first).map(|(p, share)| (p.min(MAX_P), *share)));
    if let Some((last, share)) = points.last().copied() {
        points.push(((last * 1.1).clamp(2.0, MAX_P).max(last), share));
    }
    let mut caption = caption.clone();
    if let Some(share) = share_above(&steps, 1.0).filter(|_| tasks > 0) {
        let tasks = counted(tasks, "task", "tasks");
        let _ = write!(caption.description, " fast₁ is {:.0} %, of {tasks}.", share * 100.0);
    }
    let series = Series { name: "share of the tasks".to_owned(), class: "series-1", points, steps: true };
    let x = Axis::log("p: times as fast as the baseline", Unit::Times);
    lines(&caption, &x, &Axis::linear("tasks", Unit::Share), &[series], Some((0.0, "")))
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

    #[test]
    fn the_caption_tells_the_share_of_tasks_that_are_faster_than_their_baseline() {
        // Of four tasks one is twice as fast, one as fast, one half as fast, and one has no right program.
        let steps = [(0.0, 0.75), (0.5, 0.5), (1.0, 0.25), (2.0, 0.0)];
        assert_eq!(share_above(&steps, 0.9), Some(0.5));
        assert_eq!(share_above(&[], 1.0), None);
        assert!(fast_p(&Caption::new("fast_p", ""), &steps, 4).as_str().contains("fast₁ is 25 %, of 4 tasks."));
        assert!(!fast_p(&Caption::new("fast_p", ""), &[], 0).as_str().contains("fast₁"));
    }

    #[test]
    fn twice_as_fast_is_as_far_from_the_baseline_as_four_times_from_twice() {
        let steps = [(0.0, 1.0), (1.0, 0.75), (2.0, 0.5), (4.0, 0.25), (40.0, 0.0)];
        let chart = fast_p(&Caption::new("fast_p", ""), &steps, 4);
        let path = chart.as_str().split(" d=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or_default();
        let places: Vec<f64> =
            path.split('H').skip(1).filter_map(|rest| rest.split('V').next()?.parse().ok()).collect();
        assert!(((places[1] - places[0]) - (places[2] - places[1])).abs() < 0.1, "{path}");
        assert!(path.starts_with("M66 "), "what is slower is seen from half as fast on: {path}");
    }

    #[test]
    fn what_is_no_share_is_left_out() {
        let chart = fast_p(&Caption::new("fast_p", ""), &[(0.0, -1.8e307), (0.5, 0.25), (0.7, 2.0)], 4);
        assert!(chart.as_str().contains("fast₁ is 25 %"), "{}", chart.as_str());
        assert_drawable(&chart);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

        #[test]
        fn hostile_numbers_are_drawn_or_left_out(
            steps in proptest::collection::vec((any::<f64>(), any::<f64>()), 0..60), tasks in any::<u64>(),
        ) {
            assert_drawable(&fast_p(&Caption::new("fast_p", ""), &steps, tasks));
        }
    }
}
