//! A profile's timeline: rows for calls, interfaces, streams and copies, idle gaps of the device, and a window that an
//! address can name.

use std::fmt::Write as _;

use super::MAX_MARKS;
use super::frame::{Caption, Chart, Entry, Table, WIDTH, figure, line, nothing, rect, shortened};
use super::number::{Unit, float, float_u64, show};
use super::scale::{Scale, Spread};
use crate::markup::Markup;
use crate::trace::{Row, RowKind, Span, Trace};

/// Maximum number of rows that are drawn.
const MAX_ROWS: usize = 24;
/// Room for one row.
const ROW: f64 = 22.0;
/// Where bars begin.
const LEFT: f64 = 150.0;
/// Where they end.
const RIGHT: f64 = WIDTH - 10.0;
/// Where the first row begins: above it are the overview and the ticks.
const TOP: f64 = 58.0;
/// Sections of the overview; each leads to its part of the trace.
const SECTIONS: usize = 24;
/// The narrowest window, in microseconds.
const NARROWEST_US: f64 = 0.05;
/// The longest trace, in microseconds: eleven days.
const LONGEST_US: f64 = 1e12;
/// Idle gaps that are narrower than this are not drawn.
const MIN_GAP: f64 = 3.0;

/// The part of a trace that is looked at, in microseconds from its beginning.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(clippy::struct_field_names, reason = "units stand last in names")]
pub(crate) struct Zoom {
    /// Where it begins.
    pub(crate) from_us: f64,
    /// Where it ends.
    pub(crate) to_us: f64,
    /// The end of the whole.
    pub(crate) end_us: f64,
}

impl Zoom {
    /// A window of a trace that ends there; whatever is asked for, it lies within the trace and has a width.
    pub(crate) fn of(end_us: f64, from_us: Option<f64>, to_us: Option<f64>) -> Self {
        let end_us = if end_us.is_finite() { end_us.clamp(NARROWEST_US, LONGEST_US) } else { NARROWEST_US };
        // Far from the beginning, times are not as fine.
        let narrowest_us = NARROWEST_US.max(end_us * 1e-9);
        let within = |at: Option<f64>, other: f64| at.filter(|at| at.is_finite()).unwrap_or(other).clamp(0.0, end_us);
        let (from_us, to_us) = (within(from_us, 0.0), within(to_us, end_us));
        if to_us - from_us >= narrowest_us {
            return Self { from_us, to_us, end_us };
        }
        let from_us = from_us.min(end_us - narrowest_us).max(0.0);
        Self { from_us, to_us: from_us + narrowest_us, end_us }
    }

    /// A window around the same middle, that many times as wide.
    pub(crate) fn wider(self, factor: f64) -> Self {
        let (middle, half) = (f64::midpoint(self.from_us, self.to_us), (self.to_us - self.from_us) * factor / 2.0);
        Self::of(self.end_us, Some(middle - half), Some(middle + half))
    }

    /// The same window, moved by that share of its width; it stops at the ends.
    pub(crate) fn moved(self, share: f64) -> Self {
        let width = self.to_us - self.from_us;
        let from_us = (self.from_us + width * share).clamp(0.0, (self.end_us - width).max(0.0));
        Self::of(self.end_us, Some(from_us), Some(from_us + width))
    }

    /// Returns whether it is all of the trace.
    pub(crate) fn is_whole(self) -> bool {
        self.from_us <= 0.0 && self.to_us >= self.end_us
    }
}

/// The timeline. `href` gives the address of a window.
pub(crate) fn timeline(caption: &Caption, trace: &Trace, zoom: Zoom, href: &dyn Fn(Zoom) -> String) -> Chart {
    let rows: Vec<&Row> = trace.rows.iter().filter(|row| !row.spans.is_empty()).collect();
    let scale = Scale::over(Spread::Linear, [zoom.from_us, zoom.to_us], LEFT, RIGHT);
    let Some(scale) = scale.filter(|_| !rows.is_empty()) else {
        return nothing(caption, "Nothing ran on the device while it was watched.");
    };
    let shown = rows.get(..MAX_ROWS).unwrap_or(&rows);
    let height = TOP + ROW * float(shown.len()) + 26.0;
    let mut out = Markup::new();
    overview(&mut out, trace, zoom, href);
    for tick in scale.ticks() {
        let Some(at) = scale.place(tick) else { continue };
        line(&mut out, "grid", (at, TOP - 6.0), (at, height - 24.0));
        out.tag("text")
            .at("x", at)
            .at("y", TOP - 12.0)
            .with("class", "tick middle")
            .text(&show(tick * 1e3, Unit::Nanoseconds));
    }
    // What is dragged over here is looked at next (`pointing.js`); the panel takes what hits no block.
    let brush = format!("{} {} {LEFT} {RIGHT} 0.001", zoom.from_us, zoom.to_us);
    out.tag("g").with("class", "brush").with("data-brush", &brush).open();
    rect(&mut out, "hit", (LEFT, TOP - 6.0), (RIGHT - LEFT, height - 18.0 - TOP), None);
    let idle = gaps(trace, zoom);
    let first_device = shown.iter().position(|row| row.kind.is_device());
    if let Some(first) = first_device {
        draw_gaps(&mut out, &idle, &scale, (TOP + ROW * float(first), height - 24.0));
    }
    for (index, row) in shown.iter().enumerate() {
        let y = TOP + ROW * float(index);
        out.tag("text").at("x", LEFT - 8.0).at("y", y + 14.0).with("class", "tick end").text(&shortened(&row.name, 24));
        blocks(&mut out, row, zoom, &scale, y, MAX_MARKS / shown.len().max(1));
    }
    out.close("g");
    // No idle share: a trace includes what the profiler itself takes, and the profile has the share without it.
    let words = format!("{} shown, {} gaps of the device", micros(zoom.to_us - zoom.from_us), idle.len());
    out.tag("text").at("x", LEFT).at("y", height - 6.0).with("class", "label").text(&words);
    let mut caption = caption.clone();
    if trace.left_out > 0 {
        let _ = write!(caption.description, " {} events are not in the trace.", trace.left_out);
    }
    if rows.len() > shown.len() {
        let _ = write!(caption.description, " {} more rows are not drawn.", rows.len() - shown.len());
    }
    let kinds = [
        (RowKind::Calls, "calls of the program"),
        (RowKind::Api, "CUDA calls of the host"),
        (RowKind::Kernels, "kernels"),
        (RowKind::Copies, "copies"),
    ];
    let there = kinds.into_iter().filter(|(kind, _)| rows.iter().any(|row| row.kind == *kind));
    let mut legend: Vec<Entry> = there.map(|(kind, words)| (kind.class(), words.to_owned())).collect();
    legend.push(("idle", "device idle".to_owned()));
    figure(&caption, (WIDTH, height), &out, &legend, Some(&table(&rows, zoom)))
}

/// The whole trace in small, with the window in it; each section leads to itself.
fn overview(out: &mut Markup, trace: &Trace, zoom: Zoom, href: &dyn Fn(Zoom) -> String) {
    let Some(whole) = Scale::over(Spread::Linear, [0.0, zoom.end_us], LEFT, RIGHT) else { return };
    out.tag("text").at("x", LEFT - 8.0).at("y", 18.0).with("class", "tick end").text("all of it");
    rect(out, "panel", (LEFT, 6.0), (RIGHT - LEFT, 16.0), None);
    let mut drawn = 0_usize;
    for row in trace.rows.iter().filter(|row| row.kind.is_device()) {
        for (from, to, _) in merged(&row.spans, 0.0, zoom.end_us, (RIGHT - LEFT) / zoom.end_us) {
            if drawn < MAX_MARKS / 4
                && let (Some(from), Some(to)) = (whole.place(from), whole.place(to))
            {
                drawn += 1;
                rect(out, row.kind.class(), (from, 9.0), (to - from, 10.0), None);
            }
        }
    }
    if let (false, Some(from), Some(to)) = (zoom.is_whole(), whole.place(zoom.from_us), whole.place(zoom.to_us)) {
        rect(out, "window", (from, 4.0), ((to - from).max(2.0), 20.0), None);
    }
    for section in 0..SECTIONS {
        let edge = |number: usize| zoom.end_us * float(number) / float(SECTIONS);
        let part = Zoom::of(zoom.end_us, Some(edge(section)), Some(edge(section + 1)));
        let (Some(from), Some(to)) = (whole.place(part.from_us), whole.place(part.to_us)) else { continue };
        let words = format!("look at {} to {}", micros(part.from_us), micros(part.to_us));
        out.tag("a").with("href", &href(part)).with("aria-label", &words).around(|out| {
            rect(out, "hit", (from, 4.0), (to - from, 20.0), Some(&words));
        });
    }
}

/// Spans of a row within the window; those that would be drawn over each other are one.
fn merged(spans: &[Span], from_us: f64, to_us: f64, pixels_per_us: f64) -> Vec<(f64, f64, Vec<&Span>)> {
    let mut merged: Vec<(f64, f64, Vec<&Span>)> = Vec::new();
    for span in spans.iter().filter(|span| span.end_us() >= from_us && span.begin_us <= to_us) {
        match merged.last_mut() {
            Some((begin, end, names))
                if (span.begin_us - *end) * pixels_per_us < 0.5
                    && ((*end - *begin) * pixels_per_us < 2.0 || span.duration_us * pixels_per_us < 1.0) =>
            {
                *end = end.max(span.end_us());
                names.push(span);
            }
            _ => merged.push((span.begin_us, span.end_us(), vec![span])),
        }
    }
    merged
}

fn blocks(out: &mut Markup, row: &Row, zoom: Zoom, scale: &Scale, y: f64, most: usize) {
    let pixels_per_us = (RIGHT - LEFT) / (zoom.to_us - zoom.from_us);
    for (begin, end, spans) in merged(&row.spans, zoom.from_us, zoom.to_us, pixels_per_us).into_iter().take(most) {
        let (Some(from), Some(to)) = (scale.place(begin), scale.place(end)) else { continue };
        let words = match spans.as_slice() {
            [one] => format!("{}: {} at {}", one.name, micros(one.duration_us), micros(one.begin_us)),
            many => {
                let first = many.first().map_or("", |span| span.name.as_str());
                format!("{} pieces in {}, the first {first}", many.len(), micros(end - begin))
            }
        };
        let class = if spans.len() > 1 {
            format!("bar {} dense", row.kind.class())
        } else {
            format!("bar {}", row.kind.class())
        };
        rect(out, &class, (from, y + 3.0), ((to - from).max(1.0), ROW - 6.0), Some(&words));
        if let [one] = spans.as_slice()
            && to - from > 60.0
        {
            let room = box_chars(to - from);
            let text = out.tag("text").at("x", from + 4.0).at("y", y + 14.0).with("class", "inside");
            text.text(&shortened(&one.name, room));
        }
    }
}

/// Characters that have room in that width.
fn box_chars(width: f64) -> usize {
    super::number::box_of((width - 8.0) / 6.2 / 200.0, 200).unwrap_or(0)
}

/// Times within the window in which the device does nothing, from its first work in the trace to its last.
fn gaps(trace: &Trace, zoom: Zoom) -> Vec<(f64, f64)> {
    let mut work: Vec<(f64, f64)> = trace
        .rows
        .iter()
        .filter(|row| row.kind.is_device())
        .flat_map(|row| row.spans.iter().map(|span| (span.begin_us, span.end_us())))
        .collect();
    work.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut gaps = Vec::new();
    let mut busy_until = 0.0_f64;
    for (begin, end) in work.into_iter().chain([(zoom.end_us, zoom.end_us)]) {
        if begin > busy_until {
            let (from, to) = (busy_until.max(zoom.from_us), begin.min(zoom.to_us));
            if to > from {
                gaps.push((from, to));
            }
        }
        busy_until = busy_until.max(end);
    }
    gaps
}

fn draw_gaps(out: &mut Markup, gaps: &[(f64, f64)], scale: &Scale, (top, bottom): (f64, f64)) {
    for (from, to) in gaps.iter().take(MAX_MARKS / 4) {
        let (Some(left), Some(right)) = (scale.place(*from), scale.place(*to)) else { continue };
        if right - left < MIN_GAP {
            continue;
        }
        let words = format!("device idle for {}", micros(to - from));
        rect(out, "idle", (left, top), (right - left, bottom - top), Some(&words));
    }
}

fn table(rows: &[&Row], zoom: Zoom) -> Table {
    let of_row = |row: &&Row| {
        let within = row.spans.iter().filter(|span| span.end_us() >= zoom.from_us && span.begin_us <= zoom.to_us);
        let (count, total) = within.fold((0_u64, 0.0), |(count, total), span| (count + 1, total + span.duration_us));
        let mean = if count == 0 { 0.0 } else { total / float_u64(count) };
        vec![row.name.clone(), count.to_string(), micros(total), micros(mean)]
    };
    Table::of(&["Row", "Pieces in the window", "Together", "Each"], rows.len(), rows.iter().map(of_row))
}

fn micros(us: f64) -> String {
    show(us * 1e3, Unit::Nanoseconds)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::frame::assert_drawable;
    use super::*;
    use crate::trace::tests::sample;

    fn drawn(trace: &Trace, from: Option<f64>, to: Option<f64>) -> Chart {
        let zoom = Zoom::of(trace.end_us(), from, to);
        timeline(&Caption::new("Timeline", ""), trace, zoom, &|zoom| {
            format!("?from={}&to={}", zoom.from_us, zoom.to_us)
        })
    }

    #[test]
    fn names_of_kernels_are_text_and_sections_lead_to_themselves() {
        let trace = Trace::read(&sample(3)).unwrap_or_default();
        let chart = drawn(&trace, None, None);
        assert!(chart.as_str().contains("&lt;b&gt;f0&lt;/b&gt;") && !chart.as_str().contains("<b>"));
        assert_eq!(chart.as_str().matches("<a href=\"?from=").count(), SECTIONS);
        assert!(chart.as_str().contains("3 events are not in the trace"));
        let part = drawn(&trace, Some(0.5), Some(1.5));
        assert!(part.as_str().contains("data-brush=\"0.5 1.5 150 710 0.001\""), "{}", part.as_str());
    }

    #[test]
    fn gaps_are_where_no_stream_works() {
        let span = |begin_us, duration_us| Span { name: "f".to_owned(), begin_us, duration_us };
        let row = |spans| Row { kind: RowKind::Kernels, name: "Stream".to_owned(), spans };
        let trace =
            Trace { rows: vec![row(vec![span(1.0, 2.0), span(6.0, 1.0)]), row(vec![span(2.0, 2.0)])], left_out: 0 };
        let whole = Zoom::of(10.0, None, None);
        assert_eq!(gaps(&trace, whole), [(0.0, 1.0), (4.0, 6.0), (7.0, 10.0)]);
        assert_eq!(gaps(&trace, Zoom::of(10.0, Some(5.0), Some(6.5))), [(5.0, 6.0)]);
    }

    #[test]
    fn ten_thousand_kernels_are_a_bounded_picture() {
        let trace = Trace::read(&sample(10_000)).unwrap_or_default();
        let chart = drawn(&trace, None, None);
        assert_drawable(&chart);
        assert!(chart.as_str().len() < 400_000, "{}", chart.as_str().len());
        assert_drawable(&drawn(&trace, Some(100.0), Some(140.0)));
    }

    #[test]
    fn a_window_moves_and_widens_within_the_trace() {
        let zoom = Zoom::of(100.0, Some(40.0), Some(60.0));
        assert_eq!(zoom.wider(0.5), Zoom { from_us: 45.0, to_us: 55.0, end_us: 100.0 });
        assert_eq!(zoom.wider(100.0), Zoom { from_us: 0.0, to_us: 100.0, end_us: 100.0 });
        assert_eq!(zoom.moved(-9.0), Zoom { from_us: 0.0, to_us: 20.0, end_us: 100.0 });
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

        #[test]
        fn whatever_window_is_asked_for_drawing_ends(from in any::<Option<f64>>(), to in any::<Option<f64>>(), end in any::<f64>()) {
            let zoom = Zoom::of(end, from, to);
            prop_assert!(zoom.from_us < zoom.to_us && zoom.from_us >= 0.0, "{zoom:?}");
            let trace = Trace::read(&sample(20)).unwrap_or_default();
            assert_drawable(&timeline(&Caption::default(), &trace, zoom, &|_| String::new()));
        }
    }
}
