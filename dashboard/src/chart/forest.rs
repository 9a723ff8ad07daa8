//! A forest plot: one row for each task with its estimate and interval, its baselines and its roofline, and their mean.

use std::fmt::Write as _;

use super::frame::{Area, Axis, Caption, Chart, Entry, Table, WIDTH, figure, fitted, horizontal, line, nothing};
use super::number::{Unit, float, show};
use super::scale::{Scale, Spread};
use crate::markup::{Markup, coordinate};

/// Maximum number of rows that are drawn.
const MAX_ROWS: usize = 40;
/// Maximum number of baselines of a row.
const MAX_BASELINES: usize = 8;
/// Room for one row.
const ROW: f64 = 24.0;
/// Room for the names at the left, and for the numbers at the right.
const SIDES: (f64, f64) = (204.0, 168.0);

/// A row.
#[derive(Debug, Clone, Default)]
pub(crate) struct ForestRow {
    /// Name of the task.
    pub(crate) name: String,
    /// Address of the page that the row links to.
    pub(crate) href: Option<String>,
    /// Lower bound, estimate, upper bound; none for what was not measured.
    pub(crate) interval: Option<(f64, f64, f64)>,
    /// Other baselines, by name, as multiples of the same reference.
    pub(crate) baselines: Vec<(String, f64)>,
    /// Largest speedup that the roofline allows.
    pub(crate) roofline: Option<f64>,
}

/// Rows in the given order, on a logarithmic axis; `mean` stands below them.
pub(crate) fn forest(
    caption: &Caption,
    label: &'static str,
    rows: &[ForestRow],
    mean: Option<(&'static str, f64)>,
) -> Chart {
    let shown = rows.get(..MAX_ROWS).unwrap_or(rows);
    let height = ROW * float(shown.len() + usize::from(mean.is_some())) + 58.0;
    let area = Area { left: SIDES.0, top: 10.0, right: WIDTH - SIDES.1, bottom: height - 40.0 };
    let estimates = shown.iter().filter_map(|row| row.interval).flat_map(|(low, estimate, high)| [low, estimate, high]);
    let others = shown.iter().flat_map(|row| row.baselines.iter().map(|(_, at)| *at).chain(row.roofline));
    let is_measured = shown.iter().any(|row| row.interval.is_some());
    let scale = Scale::over(Spread::Log, estimates.chain(others).chain([1.0]), area.left, area.right);
    let Some(scale) = scale.filter(|_| is_measured).map(|scale| scale.with_margin(0.04)) else {
        return nothing(caption, "There is no best program yet.");
    };
    let mut out = Markup::new();
    out.tag("g").with("class", "axes").around(|out| {
        for tick in scale.ticks() {
            if let Some(at) = scale.place(tick) {
                line(out, "grid", (at, area.top), (at, area.bottom));
            }
        }
        horizontal(out, area, &Axis::log(label, Unit::Times), &scale);
    });
    if let Some(at) = scale.place(1.0) {
        line(&mut out, "reference", (at, area.top), (at, area.bottom));
    }
    for (index, row) in shown.iter().enumerate() {
        drawn(&mut out, row, area, &scale, area.top + ROW * float(index));
    }
    if let Some((name, at)) = mean {
        diamond(&mut out, name, at, area, &scale, area.top + ROW * float(shown.len()));
    }
    let mut caption = caption.clone();
    if rows.len() > shown.len() {
        let _ = write!(caption.description, " {} more are in the table below.", rows.len() - shown.len());
    }
    let mut legend: Vec<Entry> = vec![("series-1", "speedup with interval".to_owned())];
    let there = [
        ("series-2", "other baseline", shown.iter().any(|row| !row.baselines.is_empty())),
        ("series-3", "roofline", shown.iter().any(|row| row.roofline.is_some())),
        ("kept", "geometric mean", mean.is_some()),
    ];
    legend.extend(there.into_iter().filter(|(.., is)| *is).map(|(class, name, _)| (class, name.to_owned())));
    figure(&caption, (WIDTH, height), &out, &legend, Some(&table(rows)))
}

fn words(row: &ForestRow) -> String {
    let mut words = row.interval.map_or_else(
        || format!("{}: not measured", row.name),
        |(low, estimate, high)| {
            let [low, estimate, high] = [low, estimate, high].map(|value| show(value, Unit::Times));
            format!("{}: {estimate}, {low} to {high}", row.name)
        },
    );
    for (name, at) in row.baselines.iter().take(MAX_BASELINES) {
        let _ = write!(words, "; {name} {}", show(*at, Unit::Times));
    }
    if let Some(roofline) = row.roofline {
        let _ = write!(words, "; roofline {}", show(roofline, Unit::Times));
    }
    words
}

fn drawn(out: &mut Markup, row: &ForestRow, area: Area, scale: &Scale, top: f64) {
    let words = words(row);
    let draw = |out: &mut Markup| {
        out.tag("title").text(&words);
        let hit = out.tag("rect").with("class", "hit").at("x", 0.0).at("y", top);
        hit.at("width", WIDTH).at("height", ROW).empty();
        marks(out, row, scale, top + ROW / 2.0);
    };
    match &row.href {
        Some(href) => {
            out.tag("a").with("href", href).with("aria-label", &words).with("class", "interval series-1").around(draw);
        }
        None => out.tag("g").with("class", "interval series-1").around(draw),
    }
    // The visible text lies above the link. The link has a label of its own for screen readers.
    text(out, area.left - 8.0, top, "over-link end", &fitted(&row.name, SIDES.0 - 8.0));
    let numbers = row.interval.map_or_else(
        || "not measured".to_owned(),
        |(low, estimate, high)| format!("{} ({low:.2} to {high:.2})", show(estimate, Unit::Times)),
    );
    text(out, area.right + 8.0, top, "over-link tick", &fitted(&numbers, SIDES.1 - 8.0));
}

fn text(out: &mut Markup, x: f64, top: f64, class: &str, words: &str) {
    out.tag("text").at("x", x).at("y", top + ROW / 2.0 + 4.0).with("class", class).text(words);
}

/// The interval with its estimate, a bar for each baseline, and a triangle at the roofline.
fn marks(out: &mut Markup, row: &ForestRow, scale: &Scale, y: f64) {
    for at in row.baselines.iter().take(MAX_BASELINES).filter_map(|(_, at)| scale.place(*at)) {
        line(out, "tall series-2", (at, y - 7.0), (at, y + 7.0));
    }
    if let Some(at) = row.roofline.and_then(|roofline| scale.place(roofline)) {
        let data = format!("M{} {}l-8 -5v10z", coordinate(at), coordinate(y));
        out.tag("path").with("class", "roofline series-3").with("d", &data).empty();
    }
    let Some((low, estimate, high)) = row.interval else { return };
    if let (Some(low), Some(estimate), Some(high)) = (scale.place(low), scale.place(estimate), scale.place(high)) {
        line(out, "", (low, y), (high, y));
        line(out, "", (low, y - 4.0), (low, y + 4.0));
        line(out, "", (high, y - 4.0), (high, y + 4.0));
        out.tag("circle").at("cx", estimate).at("cy", y).at("r", 4.0).empty();
    }
}

fn diamond(out: &mut Markup, name: &str, mean: f64, area: Area, scale: &Scale, top: f64) {
    let Some(at) = scale.place(mean) else { return };
    let y = top + ROW / 2.0;
    line(out, "axis", (0.0, top), (WIDTH, top));
    text(out, area.left - 8.0, top, "end strong", &fitted(name, SIDES.0 - 8.0));
    let data = format!("M{} {}l7 -6l7 6l-7 6z", coordinate(at - 7.0), coordinate(y));
    out.tag("path").with("class", "diamond kept").with("d", &data).empty();
    text(out, area.right + 8.0, top, "strong", &show(mean, Unit::Times));
}

fn table(rows: &[ForestRow]) -> Table {
    let cells = rows.iter().map(|row| {
        let mut cells = vec![row.name.clone()];
        match row.interval {
            Some((low, estimate, high)) => {
                cells.extend([estimate, low, high].map(|value| show(value, Unit::Times)));
            }
            None => cells.extend(["not measured", "", ""].map(str::to_owned)),
        }
        let baselines = row.baselines.iter().take(MAX_BASELINES);
        let baselines = baselines.map(|(name, at)| format!("{name} {}", show(*at, Unit::Times)));
        cells.push(baselines.collect::<Vec<_>>().join(", "));
        cells.push(row.roofline.map_or_else(String::new, |roofline| show(roofline, Unit::Times)));
        cells
    });
    Table::of(&["Task", "Estimate", "Low", "High", "Other baselines", "Roofline"], rows.len(), cells)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::frame::assert_drawable;
    use super::*;

    fn row(name: &str, interval: Option<(f64, f64, f64)>) -> ForestRow {
        ForestRow {
            name: name.to_owned(),
            interval,
            href: Some("/runs/x/attempts/1".to_owned()),
            ..ForestRow::default()
        }
    }

    fn drawn(rows: &[ForestRow], mean: Option<f64>) -> Chart {
        let caption = Caption::new("Speedup by task", "");
        forest(&caption, "speedup", rows, mean.map(|mean| ("Geometric mean", mean)))
    }

    #[test]
    fn each_task_is_a_row_with_its_interval_its_baselines_and_its_roofline() {
        let softmax = ForestRow {
            baselines: vec![("torch.compile".to_owned(), 1.4), ("CUDA graph".to_owned(), 1.1)],
            roofline: Some(4.0),
            ..row("softmax", Some((1.9, 2.0, 2.1)))
        };
        let chart = drawn(&[softmax, row("attention", None)], Some(2.0));
        let count = |part: &str| chart.as_str().matches(part).count();
        assert_eq!(
            (count("<circle"), count("class=\"tall series-2\""), count("class=\"roofline series-3\"")),
            (1, 2, 1)
        );
        assert!(
            chart
                .as_str()
                .contains("softmax: 2.00×, 1.90× to 2.10×; torch.compile 1.40×; CUDA graph 1.10×; roofline 4.00×")
        );
        assert!(chart.as_str().contains("attention: not measured"));
        assert_eq!(count("class=\"diamond kept\""), 1, "the mean stands below");
    }

    #[test]
    fn without_any_measurement_there_is_no_plot() {
        assert!(drawn(&[row("softmax", None)], None).as_str().contains("There is no best program yet."));
    }

    #[test]
    fn a_thousand_tasks_are_a_bounded_picture() {
        let chart = drawn(&vec![row("task", Some((1.0, 2.0, 3.0))); 1_000], None);
        assert_eq!(chart.as_str().matches("<circle").count(), MAX_ROWS);
        assert!(chart.as_str().contains("960 more are in the table below."));
        assert_drawable(&chart);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

        #[test]
        fn hostile_numbers_are_drawn_or_left_out(
            numbers in proptest::collection::vec(any::<(f64, f64, f64, f64, f64)>(), 0..50), mean in any::<f64>(),
        ) {
            let rows: Vec<ForestRow> = numbers
                .into_iter()
                .map(|(low, estimate, high, baseline, roofline)| ForestRow {
                    baselines: vec![("<b>".to_owned(), baseline)],
                    roofline: Some(roofline),
                    ..row("task", Some((low, estimate, high)))
                })
                .collect();
            assert_drawable(&drawn(&rows, Some(mean)));
        }
    }
}
