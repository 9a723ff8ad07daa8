//! What charts share: caption, axes, legend, the numbers as a table, and what is shown when there is nothing.

use leptos::prelude::*;

use super::number::{Unit, float, tick as at_axis};
use super::scale::{Scale, Spread};
use crate::markup::{Markup, visible};

/// Width of a drawing.
pub(super) const WIDTH: f64 = 720.0;
/// Height of a drawing, unless its content asks for another one.
pub(super) const HEIGHT: f64 = 280.0;
/// Room at the right of axes.
const MARGIN: f64 = 16.0;
/// Maximum number of rows of a table of numbers: lists and exports have all of them.
const MAX_ROWS: usize = 60;

/// What a chart shows, in words.
#[derive(Debug, Clone, Default)]
pub(crate) struct Caption {
    /// The title.
    pub(crate) title: String,
    /// What there is to see, for those who do not see it, and what the marks stand for.
    pub(crate) description: String,
}

impl Caption {
    /// A caption.
    pub(crate) fn new(title: impl Into<String>, description: impl Into<String>) -> Self {
        Self { title: title.into(), description: description.into() }
    }
}

/// An axis.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Axis {
    /// What it shows.
    pub(crate) label: &'static str,
    /// Its unit.
    pub(crate) unit: Unit,
    /// How its values are spread.
    pub(crate) spread: Spread,
    /// Whether nothing is to be seen at its beginning, whatever the values are.
    pub(crate) from_zero: bool,
}

impl Axis {
    /// An axis with equal differences.
    pub(crate) fn linear(label: &'static str, unit: Unit) -> Self {
        Self { label, unit, spread: Spread::Linear, from_zero: false }
    }

    /// The same from nothing on: a time since a beginning.
    pub(crate) fn beginning_at_zero(self) -> Self {
        Self { from_zero: true, ..self }
    }

    /// An axis with equal ratios.
    pub(crate) fn log(label: &'static str, unit: Unit) -> Self {
        Self { label, unit, spread: Spread::Log, from_zero: false }
    }
}

/// The numbers of a chart.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    /// Names of the columns.
    pub(crate) head: Vec<String>,
    /// Rows, bounded.
    pub(crate) rows: Vec<Vec<String>>,
    /// Rows that there are beside these.
    pub(crate) left_out: usize,
}

impl Table {
    /// A table of `total` rows, of which the first ones are kept.
    pub(crate) fn of(head: &[&str], total: usize, rows: impl Iterator<Item = Vec<String>>) -> Self {
        let rows: Vec<Vec<String>> = rows.take(MAX_ROWS).collect();
        Self {
            head: head.iter().map(|name| (*name).to_owned()).collect(),
            left_out: total.saturating_sub(rows.len()),
            rows,
        }
    }
}

/// A finished chart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chart(Markup);

impl Chart {
    /// As a view.
    pub(crate) fn view(self) -> AnyView {
        self.0.block("chart-box")
    }

    /// As markup.
    #[cfg(test)]
    pub(crate) fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

/// An entry of a legend: its class and its words.
pub(super) type Entry = (&'static str, String);

/// Caption, drawing, legend and numbers as one figure.
pub(super) fn figure(
    caption: &Caption,
    (width, height): (f64, f64),
    drawing: &Markup,
    legend: &[Entry],
    table: Option<&Table>,
) -> Chart {
    let mut out = Markup::new();
    out.tag("figure").with("class", "chart").around(|out| {
        head(out, caption);
        // On a narrow screen the drawing is moved sideways, by the keyboard too.
        let scrolls = out.tag("div").with("class", "plot-scroll").with("tabindex", "0").with("role", "group");
        scrolls.with("aria-label", &format!("Drawing: {}", caption.title)).around(|out| {
            // Drawings of another width than usual are shown in their own size: a tree of two nodes does not fill a page.
            let class = if (width - WIDTH).abs() < 0.5 { "plot" } else { "plot plot-large" };
            let mut svg = out.tag("svg").with("class", class);
            svg = svg.with("viewBox", &format!("0 0 {width:.0} {height:.0}"));
            svg = svg.at("width", width).at("height", height);
            // What holds links is no picture for those who hear the page: they want to follow them.
            let role = if drawing.as_str().contains("<a ") { "group" } else { "img" };
            svg.with("role", role).with("aria-label", &format!("{}: {}", caption.title, caption.description)).around(
                |out| {
                    out.tag("title").text(&caption.title);
                    out.tag("desc").text(&caption.description);
                    out.append(drawing);
                },
            );
        });
        if legend.len() > 1 {
            out.tag("ul").with("class", "legend").around(|out| {
                for (class, words) in legend {
                    out.tag("li").around(|out| {
                        out.tag("svg")
                            .with("class", "swatch")
                            .with("viewBox", "0 0 10 10")
                            .with("aria-hidden", "true")
                            .around(|out| {
                                out.tag("rect")
                                    .with("class", class)
                                    .at("width", 10.0)
                                    .at("height", 10.0)
                                    .at("rx", 2.0)
                                    .empty();
                            });
                        out.text(words);
                    });
                }
            });
        }
        if let Some(table) = table.filter(|table| !table.rows.is_empty()) {
            numbers(out, table);
        }
    });
    Chart(out)
}

fn head(out: &mut Markup, caption: &Caption) {
    out.tag("figcaption").around(|out| {
        out.tag("strong").text(&caption.title);
        if !caption.description.is_empty() {
            out.tag("span").with("class", "quiet").text(&caption.description);
        }
    });
}

fn numbers(out: &mut Markup, table: &Table) {
    out.tag("details").with("class", "numbers").around(|out| {
        out.tag("summary").text("Numbers");
        out.tag("div").with("class", "scroll").around(|out| {
            out.tag("table").around(|out| {
                out.tag("thead").around(|out| {
                    out.tag("tr").around(|out| table.head.iter().for_each(|name| out.tag("th").text(name)));
                });
                out.tag("tbody").around(|out| {
                    for row in &table.rows {
                        out.tag("tr").around(|out| row.iter().for_each(|cell| out.tag("td").text(cell)));
                    }
                });
            });
        });
        if table.left_out > 0 {
            out.tag("p").with("class", "quiet").text(&format!("and {} more rows", table.left_out));
        }
    });
}

/// What is shown in place of a chart that would have nothing in it.
pub(super) fn nothing(caption: &Caption, why: &str) -> Chart {
    let mut out = Markup::new();
    out.tag("figure").with("class", "chart").around(|out| {
        head(out, &Caption::new(caption.title.clone(), ""));
        out.tag("p").with("class", "empty").text(why);
    });
    Chart(out)
}

/// The place that is left for marks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Area {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) right: f64,
    pub(super) bottom: f64,
}

impl Area {
    /// Within a drawing of that height, with room for axes.
    pub(super) fn of(height: f64) -> Self {
        Self { left: 66.0, top: 12.0, right: WIDTH - MARGIN, bottom: height - 40.0 }
    }
}

/// Draws grid and axes; the scales have to end at the area's borders.
pub(super) fn axes(out: &mut Markup, area: Area, x: (&Axis, &Scale), y: (&Axis, &Scale)) {
    out.tag("g").with("class", "axes").around(|out| {
        vertical(out, area, y.0, y.1);
        horizontal(out, area, x.0, x.1);
    });
}

/// Grid and axis of the values that go up.
pub(super) fn vertical(out: &mut Markup, area: Area, axis: &Axis, scale: &Scale) {
    for tick in scale.ticks() {
        let Some(at) = scale.place(tick).filter(|_| is_shown(tick, axis.unit)) else { continue };
        line(out, "grid", (area.left, at), (area.right, at));
        out.tag("text")
            .at("x", area.left - 6.0)
            .at("y", at + 4.0)
            .with("class", "tick end")
            .text(&at_axis(tick, axis.unit));
    }
    let middle = f64::midpoint(area.top, area.bottom);
    let turned = format!("rotate(-90 12 {middle:.0})");
    out.tag("text")
        .at("x", 12.0)
        .at("y", middle)
        .with("class", "label middle")
        .with("transform", &turned)
        .text(axis.label);
}

/// Grid and axis of the values that go to the right.
pub(super) fn horizontal(out: &mut Markup, area: Area, axis: &Axis, scale: &Scale) {
    line(out, "axis", (area.left, area.bottom), (area.right, area.bottom));
    let ticks = scale.ticks();
    // Long words stand too close together: every second one is left out.
    let every = if ticks.len() > 8 { 2 } else { 1 };
    for (index, tick) in ticks.into_iter().enumerate() {
        let Some(at) = scale.place(tick).filter(|_| is_shown(tick, axis.unit)) else { continue };
        line(out, "axis", (at, area.bottom), (at, area.bottom + 4.0));
        if index % every == 0 {
            let words = at_axis(tick, axis.unit);
            // At the right end there is no room for all of a long one beside the tick.
            let last = area.right + MARGIN;
            let (x, class) = if at + width(&words) / 2.0 > last { (last, "tick end") } else { (at, "tick middle") };
            out.tag("text").at("x", x).at("y", area.bottom + 16.0).with("class", class).text(&words);
        }
    }
    let label = out.tag("text").at("x", area.right).at("y", area.bottom + 32.0).with("class", "label end");
    label.text(axis.label);
}

/// There is no half attempt.
fn is_shown(tick: f64, unit: Unit) -> bool {
    unit != Unit::Count || (tick - tick.round()).abs() < 1e-6
}

/// A straight line.
pub(super) fn line(out: &mut Markup, class: &str, from: (f64, f64), to: (f64, f64)) {
    let tag = out.tag("line").with("class", class);
    tag.at("x1", from.0).at("y1", from.1).at("x2", to.0).at("y2", to.1).empty();
}

/// A box; one that would be too thin to be seen is made wider.
pub(super) fn rect(
    out: &mut Markup,
    class: &str,
    (x, y): (f64, f64),
    (width, height): (f64, f64),
    words: Option<&str>,
) {
    let tag = out
        .tag("rect")
        .with("class", class)
        .at("x", x)
        .at("y", y)
        .at("width", width.max(0.5))
        .at("height", height.max(0.5));
    match words {
        Some(words) => tag.around(|out| out.tag("title").text(words)),
        None => tag.empty(),
    }
}

/// A text of at most that many characters.
pub(super) fn shortened(text: &str, limit: usize) -> String {
    if text.chars().count() <= limit {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(limit.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// How wide a text becomes at most, about: the server has no fonts, so this is for wide ones.
pub(super) fn width(text: &str) -> f64 {
    let of = |character| match character {
        'i'
        | 'j'
        | 'l'
        | 't'
        | 'f'
        | 'r'
        | 'I'
        | ' '..='"'
        | '\''
        | '('..=')'
        | ','..='/'
        | ':'..=';'
        | '['
        | ']'
        | '|' => 5.0,
        'm' | 'w' | 'M' | 'W' | 'Q' | '@' | '%' | '…' => 11.7,
        '+' | '<'..='>' | '~' => 10.1,
        'A'..='Z' => 8.6,
        '\u{2e80}'.. => 13.0,
        _ => 7.7,
    };
    text.chars().map(of).sum()
}

/// A text of at most about that width.
pub(super) fn fitted(text: &str, room: f64) -> String {
    let text = visible(text);
    if width(&text) <= room {
        return text.into_owned();
    }
    let mut used = width("…");
    let fits = |character: &char| {
        used += width(character.encode_utf8(&mut [0; 4]));
        used <= room
    };
    let mut short: String = text.chars().take_while(fits).collect();
    short.push('…');
    short
}

/// Every how many-th of `count` things is shown when there is room for `limit`.
pub(super) fn stride(count: usize, limit: usize) -> usize {
    count.div_ceil(limit.max(1)).max(1)
}

/// The place of the box with that number, of `count` boxes between two places.
pub(super) fn slot(index: usize, count: usize, from: f64, to: f64) -> (f64, f64) {
    let width = (to - from) / float(count.max(1));
    (from + width * float(index), width)
}

#[cfg(test)]
pub(super) fn assert_drawable(chart: &Chart) {
    let text = chart.as_str();
    for wrong in ["NaN", "inf\"", "Infinity", "-inf", "style=", "<script"] {
        assert!(!text.contains(wrong), "{wrong} in {text}");
    }
    assert!(text.len() < 700_000, "{} bytes", text.len());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_fits_into_its_room() {
        assert_eq!(fitted("copy", 100.0), "copy");
        for text in
            ["MMMMMMMMMMMMMMMMMMMMMMM", "void at::native::vectorized_elementwise_kernel", "核核核核核核核核核核核"]
        {
            let short = fitted(text, 100.0);
            assert!(short.ends_with('…') && width(&short) <= 100.0, "{short}");
        }
        assert_eq!(fitted("", 0.0), "");
    }

    #[test]
    fn the_last_words_of_an_axis_end_within_the_drawing() {
        let area = Area::of(HEIGHT);
        let drawn = |high: f64| {
            let mut out = Markup::new();
            let scale = Scale::over(Spread::Log, [1.0, high], area.left, area.right);
            let scale = scale.unwrap_or_else(|| panic!("1 to {high} has a scale"));
            horizontal(&mut out, area, &Axis::log("operations per byte", Unit::FlopsPerByte), &scale);
            out.as_str().to_owned()
        };
        assert!(drawn(10_000.0).contains("x=\"720\" y=\"256\" class=\"tick end\""), "{}", drawn(10_000.0));
        assert!(!drawn(80_000.0).contains("class=\"tick end\""), "{}", drawn(80_000.0));
    }
}
