//! Lines and steps: how something went on.

use std::fmt::Write as _;

use super::MAX_MARKS;
use super::frame::{Area, Axis, Caption, Chart, Entry, HEIGHT, Table, WIDTH, axes, figure, line, nothing};
use super::number::{Unit, box_of, show};
use super::scale::Scale;
use crate::markup::{Markup, coordinate};

/// A line.
#[derive(Debug, Clone, Default)]
pub(crate) struct Series {
    /// What it is.
    pub(crate) name: String,
    /// Its class.
    pub(crate) class: &'static str,
    /// Its points, in the order of x.
    pub(crate) points: Vec<(f64, f64)>,
    /// Whether a value stays until the next one.
    pub(crate) steps: bool,
}

/// A chart of lines. `reference` is a value of y that means something, with its name.
pub(crate) fn lines(
    caption: &Caption,
    x: &Axis,
    y: &Axis,
    series: &[Series],
    reference: Option<(f64, &'static str)>,
) -> Chart {
    let points = || series.iter().flat_map(|series| series.points.iter());
    let area = Area::of(HEIGHT);
    let beginning = x.from_zero.then_some(0.0).filter(|_| points().next().is_some());
    let x_scale = Scale::over(x.spread, points().map(|(x, _)| *x).chain(beginning), area.left, area.right);
    // Shares are seen as parts of the whole.
    let whole = if y.unit == Unit::Share { &[0.0, 1.0][..] } else { &[] };
    let y_values = points().map(|(_, y)| *y).chain(reference.map(|(at, _)| at)).chain(whole.iter().copied());
    let y_scale = Scale::over(y.spread, y_values, area.bottom, area.top).map(|scale| scale.with_margin(0.06));
    let (Some(x_scale), Some(y_scale)) = (x_scale, y_scale) else {
        return nothing(caption, "There is nothing to draw yet.");
    };
    let mut out = Markup::new();
    axes(&mut out, area, (x, &x_scale), (y, &y_scale));
    if let Some((value, name)) = reference
        && let Some(at) = y_scale.place(value)
    {
        line(&mut out, "reference", (area.left, at), (area.right, at));
        out.tag("text").at("x", area.right).at("y", at - 4.0).with("class", "tick end").text(name);
    }
    for one in series {
        let placed: Vec<(f64, f64)> =
            one.points.iter().filter_map(|(x, y)| Some((x_scale.place(*x)?, y_scale.place(*y)?))).collect();
        let placed = thinned(placed);
        if let Some(data) = path(&placed, one.steps) {
            out.tag("path").with("class", &format!("line {}", one.class)).with("d", &data).empty();
        }
        if placed.len() <= 60 {
            for (x, y) in &placed {
                let class = format!("dot {}", one.class);
                out.tag("circle").with("class", &class).at("cx", *x).at("cy", *y).at("r", 2.5).empty();
            }
        }
    }
    let legend: Vec<Entry> = series.iter().map(|series| (series.class, series.name.clone())).collect();
    figure(caption, (WIDTH, HEIGHT), &out, &legend, Some(&table(x, y, series)))
}

/// No more points than there are columns to draw them in: of each column the first, the lowest, the highest, the last.
fn thinned(placed: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    if placed.len() <= MAX_MARKS {
        return placed;
    }
    let mut kept: Vec<(f64, f64)> = Vec::new();
    let column = |point: &(f64, f64)| box_of(point.0 / WIDTH, 360);
    for column in placed.chunk_by(|a, b| column(a) == column(b)) {
        let by_height = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let ends = [column.first(), column.iter().min_by(by_height), column.iter().max_by(by_height), column.last()];
        kept.extend(ends.into_iter().flatten());
    }
    kept.truncate(2 * MAX_MARKS);
    kept
}

fn path(placed: &[(f64, f64)], steps: bool) -> Option<String> {
    let ((first_x, first_y), rest) = placed.split_first()?;
    let mut data = format!("M{} {}", coordinate(*first_x), coordinate(*first_y));
    for (x, y) in rest {
        if steps {
            let _ = write!(data, "H{}V{}", coordinate(*x), coordinate(*y));
        } else {
            let _ = write!(data, "L{} {}", coordinate(*x), coordinate(*y));
        }
    }
    Some(data)
}

fn table(x: &Axis, y: &Axis, series: &[Series]) -> Table {
    let rows = series.iter().flat_map(|series| {
        series.points.iter().map(|(at, value)| vec![series.name.clone(), show(*at, x.unit), show(*value, y.unit)])
    });
    let total = series.iter().map(|series| series.points.len()).sum();
    Table::of(&["Line", x.label, y.label], total, rows)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::frame::assert_drawable;
    use super::super::number::Unit;
    use super::*;

    fn drawn(points: Vec<(f64, f64)>) -> Chart {
        let series = Series { name: "best".to_owned(), class: "series-1", points, steps: true };
        let x = Axis::linear("attempt", Unit::Count);
        lines(
            &Caption::new("So far", "The best."),
            &x,
            &Axis::log("speedup", Unit::Times),
            &[series],
            Some((1.0, "baseline")),
        )
    }

    #[test]
    fn steps_go_across_before_they_go_up() {
        let chart = drawn(vec![(1.0, 1.0), (2.0, 4.0)]);
        assert!(chart.as_str().contains("<path class=\"line series-1\" d=\"M66 "), "{}", chart.as_str());
        assert!(chart.as_str().contains("H704V"));
        assert!(chart.as_str().contains("<title>So far</title>") && chart.as_str().contains("<td>4.00×</td>"));
    }

    #[test]
    fn a_time_since_the_beginning_begins_there() {
        let series =
            Series { name: "best".to_owned(), class: "series-1", points: vec![(5.0, 1.0), (10.0, 2.0)], steps: true };
        let x = Axis::linear("minutes", Unit::Plain).beginning_at_zero();
        let drawn =
            |series: &[Series]| lines(&Caption::default(), &x, &Axis::log("speedup", Unit::Times), series, None);
        let chart = drawn(&[series]);
        assert!(chart.as_str().contains("d=\"M385 "), "the first point stands in the middle: {}", chart.as_str());
        assert!(drawn(&[]).as_str().contains("nothing to draw"));
    }

    #[test]
    fn nothing_to_draw_is_said() {
        assert!(drawn(Vec::new()).as_str().contains("There is nothing to draw yet."));
    }

    #[test]
    fn a_hundred_thousand_points_become_a_bounded_line() {
        let points = (0..100_000_u32).map(|n| (f64::from(n), 1.0 + f64::from(n % 97))).collect();
        let chart = drawn(points);
        assert!(chart.as_str().len() < 60_000, "{}", chart.as_str().len());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

        #[test]
        fn hostile_numbers_are_drawn_or_left_out(points in proptest::collection::vec((any::<f64>(), any::<f64>()), 0..80)) {
            assert_drawable(&drawn(points));
        }
    }
}
