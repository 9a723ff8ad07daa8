//! How numbers are distributed: groups over each other, each as shares of its own.

use std::fmt::Write as _;

use super::frame::{Area, Axis, Caption, Chart, Entry, HEIGHT, Table, WIDTH, axes, figure, line, nothing, rect, slot};
use super::number::{Unit, box_of, float, show};
use super::scale::Scale;
use crate::markup::Markup;

/// Fewest and most boxes of a histogram: few numbers in many boxes show nothing but single numbers.
const BOXES: (usize, usize) = (12, 48);
/// Numbers above this share of all, and those below the rest of it, do not stretch the axis when they lie far away.
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
    /// An interval that was computed from them.
    pub(crate) range: Option<(f64, f64)>,
}

/// A histogram. A few numbers far from all others are counted in the box at that end, and the caption says so.
pub(crate) fn histogram(caption: &Caption, x: &Axis, groups: &[Group]) -> Chart {
    let area = Area::of(HEIGHT);
    let mut values: Vec<f64> =
        groups.iter().flat_map(|group| &group.values).copied().filter(|value| value.is_finite()).collect();
    values.sort_unstable_by(f64::total_cmp);
    let (lowest, highest) = limits(&values);
    let (below, beyond) = (
        values.iter().filter(|value| **value < lowest).count(),
        values.iter().filter(|value| **value > highest).count(),
    );
    let ranges = groups.iter().filter_map(|group| group.range).flat_map(|(low, high)| [low, high]);
    let shown = values.iter().copied().filter(|value| (lowest..=highest).contains(value)).chain(ranges);
    let Some(scale) = Scale::over(x.spread, shown, area.left, area.right) else {
        return nothing(caption, "There are no numbers to show.");
    };
    let scale = scale.with_margin(0.02);
    let boxes = boxes(groups.iter().map(|group| group.values.len()).max().unwrap_or(0));
    let counted: Vec<Vec<usize>> = groups.iter().map(|group| counts(&scale, &group.values, boxes)).collect();
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
    for (low, high) in groups.iter().filter_map(|group| group.range) {
        if let (Some(from), Some(to)) = (scale.place(low), scale.place(high)) {
            let words = format!("interval: {} to {}", show(low, x.unit), show(high, x.unit));
            rect(&mut out, "range", (from, area.top), ((to - from).max(2.0), area.bottom - area.top), Some(&words));
        }
    }
    axes(&mut out, area, (x, &scale), (&y, &y_scale));
    for (counts, group) in counted.iter().zip(groups) {
        for (index, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let (left, width) = slot(index, boxes, area.left, area.right);
            let at = y_scale.place(share(*count, group)).unwrap_or(area.bottom);
            let from = scale.value_at(float(index) / float(boxes));
            let to = scale.value_at(float(index + 1) / float(boxes));
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
    if below > 0 {
        let limit = show(scale.low(), x.unit);
        let _ = write!(caption.description, " {below} of {} lie below {limit} and are in the first box.", values.len());
    }
    if beyond > 0 {
        let limit = show(scale.high(), x.unit);
        let _ =
            write!(caption.description, " {beyond} of {} lie beyond {limit} and are in the last box.", values.len());
    }
    figure(&caption, (WIDTH, HEIGHT), &out, &legend, Some(&table(x, groups)))
}

/// Returns the ends of an axis on which a few distant numbers do not squeeze the rest.
fn limits(sorted: &[f64]) -> (f64, f64) {
    let none = (f64::NEG_INFINITY, f64::INFINITY);
    let (Some(lowest), Some(highest)) = (sorted.first(), sorted.last()) else { return none };
    let quantile = |share: f64| box_of(share, sorted.len()).and_then(|place| sorted.get(place));
    let (Some(low), Some(high)) = (quantile(1.0 - STRETCHING_SHARE), quantile(STRETCHING_SHARE)) else { return none };
    // Of few numbers the second one from an end stands for the rest: a share of them is less than one.
    let (low, high) = if sorted.len() < 100 {
        (sorted.get(1).unwrap_or(low), sorted.iter().rev().nth(1).unwrap_or(high))
    } else {
        (low, high)
    };
    // Halves, because the difference of two finite numbers need not be finite.
    let is_far = |from: f64, to: f64, end: f64| {
        let (span, rest) = (to / 2.0 - from / 2.0, (end / 2.0 - from / 2.0).abs().max((to / 2.0 - end / 2.0).abs()));
        sorted.len() >= 20 && span > 0.0 && rest > span * FAR
    };
    let begin = if is_far(*low, *high, *lowest) { *low } else { f64::NEG_INFINITY };
    let end = if is_far(*low, *high, *highest) { *high } else { f64::INFINITY };
    (begin, end)
}

/// Returns a readable number of bins for that many numbers.
fn boxes(numbers: usize) -> usize {
    let root = (0..=BOXES.1).find(|root| root * root >= numbers).unwrap_or(BOXES.1);
    (2 * root).clamp(BOXES.0, BOXES.1)
}

fn counts(scale: &Scale, values: &[f64], boxes: usize) -> Vec<usize> {
    let mut counts = vec![0_usize; boxes];
    for value in values {
        if let Some(count) =
            scale.share(*value).and_then(|share| box_of(share, boxes)).and_then(|place| counts.get_mut(place))
        {
            *count += 1;
        }
    }
    counts
}

fn entry(group: &Group, x: &Axis) -> String {
    let mark = group.mark.map_or_else(String::new, |mark| format!(", {}", show(mark, x.unit)));
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
        let group = Group { name: "candidate".to_owned(), class: "series-1", values, mark: Some(5.0), range: None };
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
    fn a_few_numbers_far_below_do_not_squeeze_the_rest_either() {
        let mut values: Vec<f64> = (0..200_u32).map(|n| 100.0 + f64::from(n % 10)).collect();
        values.push(0.001);
        let chart = drawn(values, false);
        assert!(chart.as_str().contains("1 of 201 lie below"), "{}", chart.as_str());
    }

    #[test]
    fn few_numbers_have_few_boxes() {
        assert_eq!([0, 16, 60, 400, 100_000].map(boxes), [12, 12, 16, 40, 48]);
    }

    #[test]
    fn an_interval_is_a_band_behind_the_boxes() {
        let group = Group { values: vec![2.0; 30], range: Some((1.9, 2.1)), ..Group::default() };
        let chart = histogram(&Caption::new("Ratios", ""), &Axis::linear("speedup", Unit::Times), &[group]);
        let place = |class: &str| chart.as_str().find(class).unwrap_or(usize::MAX);
        assert!(place("class=\"range\"") < place("class=\"over"), "{}", chart.as_str());
        assert!(chart.as_str().contains("interval: 1.90× to 2.10×"));
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
