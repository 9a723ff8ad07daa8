//! Bars with a name each.

use std::fmt::Write as _;

use super::frame::{Caption, Chart, Table, WIDTH, figure, fitted, nothing, rect, width};
use super::number::{Unit, float, show};
use super::scale::{Scale, Spread};
use crate::markup::Markup;

/// Maximum number of bars of one chart; the caption names the number of the others.
const MAX_BARS: usize = 40;
/// Room for one bar.
const ROW: f64 = 22.0;
/// Where bars begin: left of it stand their names.
const LEFT: f64 = 240.0;
/// Least and most room for the numbers at the right of the bars.
const NUMBERS: (f64, f64) = (150.0, 280.0);
/// Between a bar and the words beside it.
const GAP: f64 = 6.0;

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
    drawn(caption, unit, bars, None)
}

/// Bars that are shares of what there can be at most: where that is, bars end.
pub(crate) fn shares(caption: &Caption, bars: &[Bar]) -> Chart {
    drawn(caption, Unit::Share, bars, Some(1.0))
}

fn drawn(caption: &Caption, unit: Unit, bars: &[Bar], whole: Option<f64>) -> Chart {
    if bars.is_empty() {
        return nothing(caption, "There is nothing to show.");
    }
    let shown = bars.get(..MAX_BARS).unwrap_or(bars);
    let numbers = shown.iter().map(|bar| width(&number(bar, unit)) + 2.0 * GAP).fold(NUMBERS.0, f64::max);
    let right = WIDTH - numbers.min(NUMBERS.1);
    let longest =
        shown.iter().map(|bar| bar.value).filter(|value| value.is_finite()).fold(whole.unwrap_or(0.0), f64::max);
    let scale = Scale::over(Spread::Linear, [0.0, if longest > 0.0 { longest } else { 1.0 }], LEFT, right);
    let whole = whole.and_then(|whole| scale?.place(whole));
    let mut out = Markup::new();
    for (index, bar) in shown.iter().enumerate() {
        let end = scale.and_then(|scale| scale.place(bar.value)).unwrap_or(LEFT);
        row(&mut out, bar, unit, ROW * float(index), (end, whole));
    }
    let mut caption = caption.clone();
    if bars.len() > shown.len() {
        let _ = write!(caption.description, " {} more are not drawn.", bars.len() - shown.len());
    }
    let rows = bars.iter().map(|bar| vec![bar.name.clone(), show(bar.value, unit), bar.note.clone()]);
    let table = Table::of(&["Name", "Value", ""], bars.len(), rows);
    figure(&caption, (WIDTH, ROW * float(shown.len()) + 4.0), &out, &[], Some(&table))
}

/// One bar with its words, and behind it what it is a share of.
fn row(out: &mut Markup, bar: &Bar, unit: Unit, top: f64, (end, whole): (f64, Option<f64>)) {
    let at = |out: &mut Markup, x: f64, class: &str, words: &str| {
        out.tag("text").at("x", x).at("y", top + 15.0).with("class", class).text(words);
    };
    at(out, LEFT - 8.0, "tick end", &fitted(&bar.name, LEFT - 8.0));
    if let Some(whole) = whole {
        rect(out, "panel", (LEFT, top + 4.0), (whole - LEFT, ROW - 8.0), None);
    }
    let number = number(bar, unit);
    if end > LEFT {
        let words = format!("{}: {number}", bar.name);
        rect(out, bar.class, (LEFT, top + 4.0), (end - LEFT, ROW - 8.0), Some(&words));
    }
    at(out, end + GAP, "tick", &fitted(&number, WIDTH - end - GAP));
}

/// What stands beside a bar.
fn number(bar: &Bar, unit: Unit) -> String {
    let value = show(bar.value, unit);
    if bar.note.is_empty() { value } else { format!("{value} {}", bar.note) }
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

    /// Where the bars of that class end.
    fn ends(chart: &Chart, class: &str) -> Vec<f64> {
        let width = |part: &str| part.split_once("width=\"")?.1.split_once('"')?.0.parse::<f64>().ok();
        let tag = format!("<rect class=\"{class}\"");
        chart.as_str().split(&tag).skip(1).filter_map(|part| Some(LEFT + width(part)?)).collect()
    }

    #[test]
    fn a_share_ends_where_its_part_of_the_whole_ends() {
        let one = |value| Bar { name: "L2 cache".to_owned(), value, class: "series-1", note: String::new() };
        let chart = shares(&Caption::new("Against the peaks", ""), &[one(0.5), one(0.25)]);
        let (bars, wholes) = (ends(&chart, "series-1"), ends(&chart, "panel"));
        let of_whole = |end: &f64| (end - LEFT) / (wholes.first().copied().unwrap_or(f64::NAN) - LEFT);
        let of_whole: Vec<String> = bars.iter().map(of_whole).map(|share| format!("{share:.3}")).collect();
        assert_eq!(of_whole, ["0.500", "0.250"]);
    }

    #[test]
    fn the_words_beside_the_longest_bar_fit_into_the_drawing() {
        let note = "tokens, 1234.5678 USD".to_owned();
        let bar = Bar { name: "planner".to_owned(), value: 123_456_789.0, class: "series-1", note };
        let chart = bars(&Caption::new("Tokens by role", ""), Unit::Count, std::slice::from_ref(&bar));
        let words = number(&bar, Unit::Count);
        assert!(chart.as_str().contains(&format!("class=\"tick\">{words}<")), "{}", chart.as_str());
        assert!(ends(&chart, "series-1").iter().all(|end| end + GAP + width(&words) <= WIDTH + 0.01), "{words}");
    }

    #[test]
    fn no_price_of_an_ordinary_run_is_cut() {
        let tokens = (0..400_u32).map(|step| f64::from(step * step * 37));
        let bars_of = tokens.map(|tokens| Bar {
            name: "coder".to_owned(),
            value: tokens,
            class: "series-1",
            note: format!("tokens, ${:.4}", tokens * 1.37e-6),
        });
        let cut = bars_of.filter(|bar| {
            let chart = bars(&Caption::new("Tokens by role", ""), Unit::Count, std::slice::from_ref(bar));
            chart.as_str().contains('…')
        });
        assert_eq!(cut.map(|bar| number(&bar, Unit::Count)).collect::<Vec<_>>(), Vec::<String>::new());
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
