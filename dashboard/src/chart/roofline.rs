//! The roofline: how much work a program does by byte and by second, under what its machine can do at most.

use super::frame::{Area, Axis, Caption, Chart, Entry, HEIGHT, Table, WIDTH, axes, figure, line, nothing, width};
use super::number::{Unit, show};
use super::scale::{Scale, Spread};
use crate::markup::Markup;

/// Taller than other charts: slopes are easier to see.
const TALL: f64 = HEIGHT + 60.0;

/// A peak of arithmetic.
#[derive(Debug, Clone, Default)]
pub(crate) struct Roof {
    /// Whose.
    pub(crate) name: String,
    /// Operations per second.
    pub(crate) flops_per_s: f64,
}

/// Where a program stands.
#[derive(Debug, Clone, Default)]
pub(crate) struct Operating {
    /// Which program.
    pub(crate) name: String,
    /// Its class.
    pub(crate) class: &'static str,
    /// Operations per byte.
    pub(crate) flops_per_byte: f64,
    /// Operations per second.
    pub(crate) flops_per_s: f64,
    /// Whether the line of what came before and after goes through it.
    pub(crate) on_way: bool,
}

/// The roofline of a machine with programs under it, in the order in which they were written.
pub(crate) fn roofline(caption: &Caption, bytes_per_s: f64, roofs: &[Roof], programs: &[Operating]) -> Chart {
    let is_positive = |value: f64| value.is_finite() && value > 0.0;
    let roofs: Vec<&Roof> = roofs.iter().filter(|roof| is_positive(roof.flops_per_s)).collect();
    let programs: Vec<&Operating> =
        programs.iter().filter(|one| is_positive(one.flops_per_byte) && is_positive(one.flops_per_s)).collect();
    let highest = roofs.iter().map(|roof| roof.flops_per_s).fold(0.0, f64::max);
    if !is_positive(bytes_per_s) || !is_positive(highest) {
        return nothing(caption, "The peaks of the machine are not known.");
    }
    if programs.is_empty() {
        return nothing(caption, "The task does not say how much work it is, and no counters were read.");
    }
    // Room for `100 TFLOP/s`.
    let area = Area { left: 100.0, ..Area::of(TALL) };
    let ridges = roofs.iter().map(|roof| roof.flops_per_s / bytes_per_s);
    let x_values: Vec<f64> = ridges.chain(programs.iter().map(|one| one.flops_per_byte)).collect();
    let lowest = x_values.iter().copied().filter(|x| is_positive(*x)).fold(f64::INFINITY, f64::min);
    let x_ends = x_values.iter().copied().chain([lowest / 4.0, x_values.iter().copied().fold(0.0, f64::max) * 4.0]);
    let Some(x_scale) = Scale::over(Spread::Log, x_ends, area.left, area.right) else {
        return nothing(caption, "The peaks of the machine are not known.");
    };
    // Half as much is in the picture, too, so that no mark lies on the axis.
    let y_ends = programs
        .iter()
        .flat_map(|one| [one.flops_per_s, one.flops_per_s / 2.0])
        .chain([highest * 1.6, (x_scale.low() * bytes_per_s).max(highest * 1e-8)]);
    let Some(y_scale) = Scale::over(Spread::Log, y_ends, area.bottom, area.top) else {
        return nothing(caption, "The peaks of the machine are not known.");
    };
    let (x, y) =
        (Axis::log("operations per byte", Unit::FlopsPerByte), Axis::log("operations per second", Unit::FlopsPerS));
    let mut out = Markup::new();
    axes(&mut out, area, (&x, &x_scale), (&y, &y_scale));
    slopes(&mut out, &x_scale, &y_scale, bytes_per_s, &roofs);
    marks(&mut out, &x_scale, &y_scale, &programs);
    let legend: Vec<Entry> = programs.iter().map(|one| (one.class, one.name.clone())).collect();
    let rows = programs.iter().map(|one| {
        let roof = highest.min(one.flops_per_byte * bytes_per_s);
        vec![
            one.name.clone(),
            show(one.flops_per_byte, Unit::FlopsPerByte),
            show(one.flops_per_s, Unit::FlopsPerS),
            show(one.flops_per_s / roof, Unit::Share),
        ]
    });
    let table =
        Table::of(&["Program", "Operations per byte", "Operations per second", "Of the roof"], programs.len(), rows);
    figure(caption, (WIDTH, TALL), &out, &legend, Some(&table))
}

fn slopes(out: &mut Markup, x_scale: &Scale, y_scale: &Scale, bytes_per_s: f64, roofs: &[&Roof]) {
    let highest = roofs.iter().map(|roof| roof.flops_per_s).fold(0.0, f64::max);
    // The slope begins where it comes into the picture, at the left or at the bottom.
    let from = x_scale.low().max(y_scale.low() / bytes_per_s);
    let to = (highest / bytes_per_s).min(x_scale.high());
    let places =
        (x_scale.place(from), y_scale.place(from * bytes_per_s), x_scale.place(to), y_scale.place(to * bytes_per_s));
    if let (Some(x1), Some(y1), Some(x2), Some(y2)) = places {
        line(out, "roof", (x1, y1), (x2, y2));
        let words = format!("memory, {}", show(bytes_per_s, Unit::BytesPerS));
        // At its upper end, above it: programs are below.
        let x = (x2 - 10.0 - width(&words)).max(x_scale.from() + 4.0);
        out.tag("text").at("x", x).at("y", y2 - 5.0).with("class", "tick").text(&words);
    }
    for roof in roofs {
        let ridge = roof.flops_per_s / bytes_per_s;
        if let (Some(from), Some(at)) = (x_scale.place(ridge), y_scale.place(roof.flops_per_s)) {
            line(out, "roof", (from, at), (x_scale.to(), at));
            let words = format!("{}, {}", roof.name, show(roof.flops_per_s, Unit::FlopsPerS));
            out.tag("text").at("x", x_scale.to()).at("y", at - 5.0).with("class", "tick end").text(&words);
        }
    }
}

fn marks(out: &mut Markup, x_scale: &Scale, y_scale: &Scale, programs: &[&Operating]) {
    let place = |one: &Operating| Some((x_scale.place(one.flops_per_byte)?, y_scale.place(one.flops_per_s)?));
    let way: Vec<&&Operating> = programs.iter().filter(|one| one.on_way).collect();
    for pair in way.windows(2) {
        let [before, after] = pair else { continue };
        if let (Some(from), Some(to)) = (place(before), place(after)) {
            line(out, "way", from, to);
        }
    }
    for one in programs {
        if let Some((x, y)) = place(one) {
            let words = format!(
                "{}: {}, {}",
                one.name,
                show(one.flops_per_s, Unit::FlopsPerS),
                show(one.flops_per_byte, Unit::FlopsPerByte)
            );
            let dot =
                out.tag("circle").with("class", &format!("dot {}", one.class)).at("cx", x).at("cy", y).at("r", 6.0);
            dot.around(|out| out.tag("title").text(&words));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::frame::assert_drawable;
    use super::*;

    fn drawn(bytes_per_s: f64, peak: f64, points: &[(f64, f64)]) -> Chart {
        let roofs = [Roof { name: "FP32".to_owned(), flops_per_s: peak }];
        let programs: Vec<Operating> = points
            .iter()
            .map(|(flops_per_byte, flops_per_s)| Operating {
                name: "program".to_owned(),
                class: "series-1",
                flops_per_byte: *flops_per_byte,
                flops_per_s: *flops_per_s,
                on_way: true,
            })
            .collect();
        roofline(&Caption::new("Roofline", ""), bytes_per_s, &roofs, &programs)
    }

    #[test]
    fn a_program_is_held_against_the_roof_above_it() {
        // 0.625 operations a byte under 4.8 TB/s: the roof is memory's, at 3 TFLOP/s.
        let chart = drawn(4.8e12, 67e12, &[(0.625, 0.96e12), (0.625, 1.5e12)]);
        assert!(
            chart.as_str().contains("<td>32 %</td>") && chart.as_str().contains("<td>50 %</td>"),
            "{}",
            chart.as_str()
        );
        assert_eq!(chart.as_str().matches("class=\"way\"").count(), 1);
    }

    #[test]
    fn marks_stay_off_the_axis_and_words_off_the_marks() {
        let chart = drawn(16.1e9, 116e9, &[(2.24, 0.87e9), (2.24, 3.2e9), (2.24, 31.1e9)]);
        let number = |text: &str, name: &str| -> Option<f64> {
            text.split_once(&format!("{name}=\""))?.1.split_once('"')?.0.parse().ok()
        };
        let dots: Vec<f64> = chart.as_str().split("<circle").skip(1).filter_map(|dot| number(dot, "cy")).collect();
        assert!(dots.len() == 3 && dots.iter().all(|y| y + 6.0 < Area::of(TALL).bottom), "{dots:?}");
        let label = chart.as_str().split("<text").find(|text| text.contains(">memory, "));
        let label = label.and_then(|text| number(text, "y"));
        assert!(dots.iter().all(|y| label.is_some_and(|label| label < y - 6.0)), "{label:?}, {dots:?}");
    }

    #[test]
    fn unknown_peaks_are_said_to_be_unknown() {
        assert!(drawn(0.0, 1e12, &[(1.0, 1.0)]).as_str().contains("not known"));
        assert!(drawn(1e12, 1e12, &[]).as_str().contains("does not say how much work"));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

        #[test]
        fn hostile_numbers_are_drawn_or_left_out(
            bytes in any::<f64>(), peak in any::<f64>(), points in proptest::collection::vec(any::<(f64, f64)>(), 0..20),
        ) {
            assert_drawable(&drawn(bytes, peak, &points));
        }
    }
}
