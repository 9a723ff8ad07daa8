//! Bars with a name each.

use std::fmt::Write as _;

use super::frame::{Caption, Chart, Table, WIDTH, figure, nothing, rect, shortened};
use super::number::{Unit, float, show};
use super::scale::{Scale, Spread};
use crate::markup::Markup;

/// Most bars of one chart; the rest is told in the caption.
const MAX_BARS: usize = 40;
/// Room for one bar.
const ROW: f64 = 22.0;
/// Where bars begin: left of it stand their names.
const LEFT: f64 = 220.0;
/// Where the longest bar ends: right of it stand their numbers.
const RIGHT: f64 = WIDTH - 150.0;
/// Longest name.
const MAX_NAME_CHARS: usize = 34;

/// A bar.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bar {
    /// Its name.
    pub(crate) name: String,
    /// Its length; what is no number, or below 0, has none.
    pub(crate) value: f64,
    /// Its class.
    pub(crate) class: &'static str,
    /// What is said beside its number.
    pub(crate) note: String,
}

/// Bars, in the given order.
pub(crate) fn bars(caption: &Caption, unit: Unit, bars: &[Bar]) -> Chart {
    if bars.is_empty() {
        return nothing(caption, "There is nothing to show.");
    }
    let shown = bars.get(..MAX_BARS).unwrap_or(bars);
    let longest = shown.iter().map(|bar| bar.value).filter(|value| value.is_finite()).fold(0.0, f64::max);
    let scale = Scale::over(Spread::Linear, [0.0, if longest > 0.0 { longest } else { 1.0 }], LEFT, RIGHT);
    let mut out = Markup::new();
    for (index, bar) in shown.iter().enumerate() {
        let top = ROW * float(index);
        let end = scale.and_then(|scale| scale.place(bar.value)).unwrap_or(LEFT);
        let words = format!("{}: {} {}", bar.name, show(bar.value, unit), bar.note);
        out.tag("text")
            .at("x", LEFT - 8.0)
            .at("y", top + 15.0)
            .with("class", "tick end")
            .text(&shortened(&bar.name, MAX_NAME_CHARS));
        if end > LEFT {
            rect(&mut out, bar.class, (LEFT, top + 4.0), (end - LEFT, ROW - 8.0), Some(&words));
        }
        let number =
            if bar.note.is_empty() { show(bar.value, unit) } else { format!("{} {}", show(bar.value, unit), bar.note) };
        out.tag("text").at("x", end + 6.0).at("y", top + 15.0).with("class", "tick").text(&shortened(&number, 40));
    }
    let mut caption = caption.clone();
    if bars.len() > shown.len() {
        let _ = write!(caption.description, " {} more are not drawn.", bars.len() - shown.len());
    }
    let rows = bars.iter().map(|bar| vec![bar.name.clone(), show(bar.value, unit), bar.note.clone()]);
    let table = Table::of(&["Name", "Value", ""], bars.len(), rows);
    figure(&caption, (WIDTH, ROW * float(shown.len()) + 4.0), &out, &[], Some(&table))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::frame::assert_drawable;
    use super::*;

    #[test]
    fn more_bars_than_can_be_drawn_are_told_of() {
        let many: Vec<Bar> =
            (0..10_000).map(|n| Bar { name: format!("kernel {n}"), value: 1.0, ..Bar::default() }).collect();
        let chart = bars(&Caption::new("Kernels", "By time."), Unit::Nanoseconds, &many);
        assert!(chart.as_str().contains("9960 more are not drawn."));
        assert!(chart.as_str().contains("and 9940 more rows"));
        assert_drawable(&chart);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

        #[test]
        fn hostile_numbers_are_drawn_or_left_out(values in proptest::collection::vec(any::<f64>(), 0..60), name in ".*") {
            let many: Vec<Bar> = values.into_iter().map(|value| Bar { name: name.clone(), value, ..Bar::default() }).collect();
            let chart = bars(&Caption::new("Kernels", ""), Unit::Share, &many);
            prop_assert!(!chart.as_str().contains("NaN") && !chart.as_str().contains("inf\""));
        }
    }
}
