//! Estimates with their intervals, one beside the other.

use std::fmt::Write as _;

use super::frame::{
    Area, Axis, Caption, Chart, HEIGHT, Table, WIDTH, figure, line, nothing, shortened, slot, stride, vertical,
};
use super::number::{Unit, show};
use super::scale::Scale;
use crate::markup::Markup;

/// Maximum number of intervals of one chart: the newest ones are drawn.
const MAX_INTERVALS: usize = 200;
/// Maximum number of names below them.
const MAX_NAMES: usize = 20;

/// An estimate with its interval.
#[derive(Debug, Clone, Default)]
pub(crate) struct IntervalMark {
    /// Its name below the axis.
    pub(crate) name: String,
    /// Lower bound, estimate, upper bound; none for what was not measured.
    pub(crate) interval: Option<(f64, f64, f64)>,
    /// Its class.
    pub(crate) class: &'static str,
    /// What it is.
    pub(crate) words: String,
    /// Where it leads.
    pub(crate) href: Option<String>,
}

/// Intervals in the given order; what was not measured is a cross at the bottom. Each of `levels` is a value of y that means
/// something, with its name.
pub(crate) fn intervals(
    caption: &Caption,
    x_label: &str,
    y: &Axis,
    marks: &[IntervalMark],
    levels: &[(f64, &'static str)],
) -> Chart {
    let area = Area::of(HEIGHT);
    let left_out = marks.len().saturating_sub(MAX_INTERVALS);
    let shown = marks.get(left_out..).unwrap_or(marks);
    let values = shown.iter().filter_map(|mark| mark.interval).flat_map(|(low, estimate, high)| [low, estimate, high]);
    let scale = Scale::over(y.spread, values.chain(levels.iter().map(|(at, _)| *at)), area.bottom - 14.0, area.top);
    let Some(scale) = scale.map(|scale| scale.with_margin(0.06)).filter(|_| !shown.is_empty()) else {
        return nothing(caption, "Nothing was measured yet.");
    };
    let mut out = Markup::new();
    out.tag("g").with("class", "axes").around(|out| {
        vertical(out, area, y, &scale);
        line(out, "axis", (area.left, area.bottom), (area.right, area.bottom));
        let label = out.tag("text").at("x", area.right).at("y", area.bottom + 32.0).with("class", "label end");
        label.text(x_label);
    });
    for (value, name) in levels {
        let Some(at) = scale.place(*value) else { continue };
        line(&mut out, "reference", (area.left, at), (area.right, at));
        out.tag("text").at("x", area.right).at("y", at - 4.0).with("class", "tick end").text(name);
    }
    let named = stride(shown.len(), MAX_NAMES);
    for (index, mark) in shown.iter().enumerate() {
        let (left, width) = slot(index, shown.len(), area.left, area.right);
        let x = left + width / 2.0;
        let draw = |out: &mut Markup| {
            out.tag("title").text(&mark.words);
            drawn(out, mark, x, width, &scale, area);
        };
        let class = format!("interval {}", mark.class);
        match &mark.href {
            Some(href) => {
                let link = out.tag("a").with("href", href).with("aria-label", &mark.words);
                link.with("class", &class).around(draw);
            }
            None => out.tag("g").with("class", &class).around(draw),
        }
        if index % named == 0 {
            let text = out.tag("text").at("x", x).at("y", area.bottom + 16.0).with("class", "tick middle");
            text.text(&shortened(&mark.name, 12));
        }
    }
    let mut caption = caption.clone();
    if left_out > 0 {
        let _ = write!(caption.description, " The first {left_out} are not drawn.");
    }
    figure(&caption, (WIDTH, HEIGHT), &out, &[], Some(&table(y.unit, marks)))
}

fn drawn(out: &mut Markup, mark: &IntervalMark, x: f64, width: f64, scale: &Scale, area: Area) {
    let placed = mark
        .interval
        .and_then(|(low, estimate, high)| Some((scale.place(low)?, scale.place(estimate)?, scale.place(high)?)));
    // A wide transparent box is easier to point at than a thin line.
    let hit = out.tag("rect").with("class", "hit").at("x", x - width / 2.0).at("y", area.top);
    hit.at("width", width).at("height", area.bottom - area.top).empty();
    let Some((low, estimate, high)) = placed else {
        let (arm, y) = ((width * 0.3).clamp(1.5, 4.0), area.bottom - 7.0);
        line(out, "", (x - arm, y - arm), (x + arm, y + arm));
        return line(out, "", (x - arm, y + arm), (x + arm, y - arm));
    };
    let cap = (width * 0.3).min(5.0);
    line(out, "", (x, low), (x, high));
    line(out, "", (x - cap, low), (x + cap, low));
    line(out, "", (x - cap, high), (x + cap, high));
    out.tag("circle").at("cx", x).at("cy", estimate).at("r", (width * 0.4).clamp(1.5, 4.0)).empty();
}

fn table(unit: Unit, marks: &[IntervalMark]) -> Table {
    let rows = marks.iter().map(|mark| {
        let mut row = vec![mark.name.clone()];
        match mark.interval {
            Some((low, estimate, high)) => row.extend([estimate, low, high].map(|value| show(value, unit))),
            None => row.extend(["not measured", "", ""].map(str::to_owned)),
        }
        row.push(mark.words.clone());
        row
    });
    Table::of(&["", "Estimate", "Low", "High", "What"], marks.len(), rows)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::frame::assert_drawable;
    use super::*;

    fn drawn(marks: &[IntervalMark]) -> Chart {
        intervals(
            &Caption::new("Speedups", ""),
            "attempt",
            &Axis::log("speedup", Unit::Times),
            marks,
            &[(1.0, "baseline")],
        )
    }

    #[test]
    fn what_was_not_measured_has_its_place_too() {
        let one = |interval| IntervalMark {
            name: "1".to_owned(),
            interval,
            href: Some("/runs/x/attempts/1".to_owned()),
            ..IntervalMark::default()
        };
        let chart = drawn(&[one(Some((1.4, 1.5, 1.6))), one(None)]);
        assert_eq!(chart.as_str().matches("<circle").count(), 1);
        assert!(chart.as_str().contains("<td>not measured</td>"));
        assert_eq!(chart.as_str().matches("<a href=\"/runs/x/attempts/1\"").count(), 2);
    }

    #[test]
    fn ten_thousand_attempts_are_a_bounded_picture() {
        let marks = vec![IntervalMark { interval: Some((1.0, 2.0, 3.0)), ..IntervalMark::default() }; 10_000];
        let chart = drawn(&marks);
        assert!(chart.as_str().contains("The first 9800 are not drawn."));
        assert_drawable(&chart);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

        #[test]
        fn hostile_numbers_are_drawn_or_left_out(numbers in proptest::collection::vec(any::<(f64, f64, f64)>(), 0..40)) {
            let marks: Vec<IntervalMark> =
                numbers.into_iter().map(|interval| IntervalMark { interval: Some(interval), ..IntervalMark::default() }).collect();
            assert_drawable(&drawn(&marks));
        }
    }
}
