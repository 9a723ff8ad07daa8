//! How numbers are distributed: groups over each other, each as shares of its own.

use std::fmt::Write as _;

use super::frame::{Area, Axis, Caption, Chart, Entry, HEIGHT, Table, WIDTH, axes, figure, line, nothing, rect, slot};
use super::number::{Unit, box_of, float, show};
use super::scale::Scale;
use crate::markup::Markup;

/// Boxes of a histogram.
const BOXES: usize = 48;
/// Numbers above this share of all do not stretch the axis, when they lie far away.
const STRETCHING_SHARE: f64 = 0.99;
/// Where "far away" begins, as a multiple of what all the others need.
const FAR: f64 = 1.5;

/// Numbers that belong together.
#[derive(Debug, Clone, Default)]
pub(crate) struct Group {
    /// What they are.
    pub(crate) name: String,
    /// Their class.
    pub(crate) class: &'static str,
    /// The numbers, in any order.
    pub(crate) values: Vec<f64>,
    /// A number that stands for them, for example the median.
    pub(crate) mark: Option<f64>,
}

/// A histogram. A few numbers far above all others are counted in the last box, and the caption says so.
pub(crate) fn histogram(caption: &Caption, x: &Axis, groups: &[Group]) -> Chart {
    let area = Area::of(HEIGHT);
    let mut values: Vec<f64> =
        groups.iter().flat_map(|group| &group.values).copied().filter(|value| value.is_finite()).collect();
    values.sort_unstable_by(f64::total_cmp);
    let limit = far_limit(&values);
    let beyond = values.iter().filter(|value| **value > limit).count();
    let shown = values.iter().copied().filter(|value| *value <= limit);
    let Some(scale) = Scale::over(x.spread, shown, area.left, area.right) else {
        return nothing(caption, "There are no numbers to show.");
    };
    let scale = scale.with_margin(0.02);
    let counted: Vec<[usize; BOXES]> = groups.iter().map(|group| counts(&scale, &group.values)).collect();
    let share = |count: usize, group: &Group| float(count) / float(group.values.len().max(1));
    let top = counted
        .iter()
        .zip(groups)
        .flat_map(|(counts, group)| counts.iter().map(move |count| share(*count, group)))
        .fold(0.0, f64::max);
    let y = Axis::linear("share of the samples", Unit::Share);
    let Some(y_scale) = Scale::over(y.spread, [0.0, top.max(0.01)], area.bottom, area.top) else {
        return nothing(caption, "There are no numbers to show.");
    };
    let mut out = Markup::new();
    axes(&mut out, area, (x, &scale), (&y, &y_scale));
    for (counts, group) in counted.iter().zip(groups) {
        for (index, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let (left, width) = slot(index, BOXES, area.left, area.right);
            let at = y_scale.place(share(*count, group)).unwrap_or(area.bottom);
            let from = scale.value_at(float(index) / float(BOXES));
            let to = scale.value_at(float(index + 1) / float(BOXES));
            let words = format!("{}: {count} from {} to {}", group.name, show(from, x.unit), show(to, x.unit));
            let class = format!("over {}", group.class);
            rect(&mut out, &class, (left, at), (width, area.bottom - at), Some(&words));
        }
    }
    for group in groups {
        if let Some(at) = group.mark.and_then(|mark| scale.place(mark)) {
            line(&mut out, &format!("mark {}", group.class), (at, area.top), (at, area.bottom));
        }
    }
    let legend: Vec<Entry> = groups.iter().map(|group| (group.class, entry(group, x))).collect();
    let mut caption = caption.clone();
    if beyond > 0 {
        let limit = show(scale.high(), x.unit);
        let _ =
            write!(caption.description, " {beyond} of {} lie beyond {limit} and are in the last box.", values.len());
    }
    figure(&caption, (WIDTH, HEIGHT), &out, &legend, Some(&table(x, groups)))
}

fn far_limit(sorted: &[f64]) -> f64 {
    let (Some(lowest), Some(highest)) = (sorted.first(), sorted.last()) else { return f64::INFINITY };
    let Some(edge) = box_of(STRETCHING_SHARE, sorted.len()).and_then(|place| sorted.get(place)) else {
        return f64::INFINITY;
    };
    // Halves, because the difference of two finite numbers need not be finite.
    let (span, rest) = (edge / 2.0 - lowest / 2.0, highest / 2.0 - lowest / 2.0);
    if sorted.len() >= 20 && span > 0.0 && rest > span * FAR { *edge } else { f64::INFINITY }
}

fn counts(scale: &Scale, values: &[f64]) -> [usize; BOXES] {
    let mut counts = [0_usize; BOXES];
    for value in values {
        if let Some(count) =
            scale.share(*value).and_then(|share| box_of(share, BOXES)).and_then(|place| counts.get_mut(place))
        {
            *count += 1;
        }
    }
    counts
}

fn entry(group: &Group, x: &Axis) -> String {
    let mark = group.mark.map_or_else(String::new, |mark| format!(", median {}", show(mark, x.unit)));
    format!("{} ({}{mark})", group.name, group.values.len())
}

fn table(x: &Axis, groups: &[Group]) -> Table {
    let quantile = |sorted: &[f64], share: f64| {
        box_of(share, sorted.len())
            .and_then(|place| sorted.get(place))
            .map_or_else(String::new, |value| show(*value, x.unit))
    };
    let rows = groups.iter().map(|group| {
        let mut sorted: Vec<f64> = group.values.iter().copied().filter(|value| value.is_finite()).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let mut row = vec![group.name.clone(), group.values.len().to_string()];
        row.extend([0.0, 0.05, 0.5, 0.95, 1.0].map(|share| quantile(&sorted, share)));
        row
    });
    Table::of(&["Group", "Numbers", "Lowest", "5 %", "Median", "95 %", "Highest"], groups.len(), rows)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::frame::assert_drawable;
    use super::*;

    fn drawn(values: Vec<f64>, log: bool) -> Chart {
        let x = if log { Axis::log("time", Unit::Nanoseconds) } else { Axis::linear("time", Unit::Nanoseconds) };
        let group = Group { name: "candidate".to_owned(), class: "series-1", values, mark: Some(5.0) };
        histogram(&Caption::new("Times", "Of one call."), &x, &[group])
    }

    #[test]
    fn a_few_far_numbers_do_not_squeeze_the_rest() {
        let mut values: Vec<f64> = (0..200_u32).map(|n| 100.0 + f64::from(n % 10)).collect();
        values.push(1e9);
        let chart = drawn(values, false);
        assert!(chart.as_str().contains("1 of 201 lie beyond"), "{}", chart.as_str());
        assert!(chart.as_str().contains("<td>1 s</td>"), "the table keeps the highest");
    }

    #[test]
    fn no_numbers_are_no_chart() {
        assert!(drawn(vec![f64::NAN], false).as_str().contains("There are no numbers to show."));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

        #[test]
        fn hostile_numbers_are_drawn_or_left_out(values in proptest::collection::vec(any::<f64>(), 0..200), log in any::<bool>()) {
            assert_drawable(&drawn(values, log));
        }
    }
}
