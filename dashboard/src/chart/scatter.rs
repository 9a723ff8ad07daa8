//! Dots: every attempt, by what became of it.

use std::collections::HashSet;
use std::fmt::Write as _;

use super::MAX_MARKS;
use super::frame::{Area, Axis, Caption, Chart, Entry, HEIGHT, Table, WIDTH, axes, figure, line, nothing};
use super::number::{box_of, show};
use super::scale::Scale;
use crate::markup::Markup;

/// Dots of one kind.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dots {
    /// What they are.
    pub(crate) name: String,
    /// Their class.
    pub(crate) class: &'static str,
    /// Places, and what each is.
    pub(crate) points: Vec<(f64, f64, String)>,
    /// Where each leads, in the same order; none where there is nowhere to go. Whoever has no pointer goes by the list
    /// that the page has of the same things: thousands of stops would be no help.
    pub(crate) hrefs: Vec<String>,
}

/// A chart of dots. Dots that would cover each other are drawn once when there are many.
pub(crate) fn scatter(
    caption: &Caption,
    x: &Axis,
    y: &Axis,
    kinds: &[Dots],
    reference: Option<(f64, &'static str)>,
) -> Chart {
    let points = || kinds.iter().flat_map(|kind| kind.points.iter());
    let area = Area::of(HEIGHT);
    let x_scale = Scale::over(x.spread, points().map(|(x, ..)| *x), area.left, area.right);
    let y_values = points().map(|(_, y, _)| *y).chain(reference.map(|(at, _)| at));
    let y_scale = Scale::over(y.spread, y_values, area.bottom, area.top);
    let (Some(x_scale), Some(y_scale)) = (x_scale, y_scale) else {
        return nothing(caption, "There is nothing to draw yet.");
    };
    let (x_scale, y_scale) = (x_scale.with_margin(0.02), y_scale.with_margin(0.06));
    let mut out = Markup::new();
    axes(&mut out, area, (x, &x_scale), (y, &y_scale));
    if let Some((value, name)) = reference
        && let Some(at) = y_scale.place(value)
    {
        line(&mut out, "reference", (area.left, at), (area.right, at));
        out.tag("text").at("x", area.right).at("y", at - 4.0).with("class", "tick end").text(name);
    }
    let total = points().filter(|(x, y, _)| x_scale.share(*x).is_some() && y_scale.share(*y).is_some()).count();
    let mut taken = HashSet::new();
    let mut marks = 0_usize;
    for (number, kind) in kinds.iter().enumerate() {
        for (place, (at_x, at_y, words)) in kind.points.iter().enumerate() {
            let (Some(share_x), Some(share_y)) = (x_scale.share(*at_x), y_scale.share(*at_y)) else { continue };
            if total > MAX_MARKS {
                // One dot for each box of a raster: rather few kinds, so that their number stays bounded.
                let raster = (number, box_of(share_x, 120), box_of(share_y, 40));
                if marks >= 2 * MAX_MARKS || !taken.insert(raster) {
                    continue;
                }
            }
            marks += 1;
            let class = format!("dot {}", kind.class);
            let at = |scale: &Scale, share: f64| scale.from() + share * (scale.to() - scale.from());
            let draw = |out: &mut Markup| {
                let dot = out.tag("circle").with("class", &class).at("cx", at(&x_scale, share_x));
                let dot = dot.at("cy", at(&y_scale, share_y)).at("r", 3.5);
                if total > MAX_MARKS { dot.empty() } else { dot.around(|out| out.tag("title").text(words)) }
            };
            match kind.hrefs.get(place).filter(|_| total <= MAX_MARKS) {
                Some(href) => {
                    let link = out.tag("a").with("href", href).with("tabindex", "-1").with("aria-label", words);
                    link.around(draw);
                }
                None => draw(&mut out),
            }
        }
    }
    let mut caption = caption.clone();
    if marks < total {
        let _ = write!(caption.description, " {marks} dots stand for {total} points.");
    }
    let legend: Vec<Entry> =
        kinds.iter().map(|kind| (kind.class, format!("{} ({})", kind.name, kind.points.len()))).collect();
    let rows = kinds.iter().flat_map(|kind| {
        let row = |(at_x, at_y, words): &(f64, f64, String)| {
            vec![kind.name.clone(), show(*at_x, x.unit), show(*at_y, y.unit), words.clone()]
        };
        kind.points.iter().map(row)
    });
    let table = Table::of(&["Kind", x.label, y.label, "What"], points().count(), rows);
    figure(&caption, (WIDTH, HEIGHT), &out, &legend, Some(&table))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::frame::assert_drawable;
    use super::super::number::Unit;
    use super::*;

    fn drawn(points: Vec<(f64, f64, String)>) -> Chart {
        let kinds = [Dots { name: "kept".to_owned(), class: "kept", points, hrefs: vec!["/runs/1".to_owned()] }];
        let x = Axis::linear("attempt", Unit::Count);
        scatter(&Caption::new("Attempts", ""), &x, &Axis::log("speedup", Unit::Times), &kinds, Some((1.0, "baseline")))
    }

    #[test]
    fn each_dot_says_what_it_is() {
        let chart = drawn(vec![(1.0, 2.0, "attempt <1>".to_owned())]);
        assert!(chart.as_str().contains("<title>attempt &lt;1&gt;</title>"), "{}", chart.as_str());
        assert!(chart.as_str().contains("href=\"/runs/1\" tabindex=\"-1\""), "and leads to it");
    }

    #[test]
    fn many_dots_are_drawn_as_few_and_the_caption_says_so() {
        let points = (0..100_000_u32).map(|n| (f64::from(n), 1.0 + f64::from(n % 101), String::new())).collect();
        let chart = drawn(points);
        assert!(chart.as_str().contains("stand for 100000 points"));
        assert_drawable(&chart);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

        #[test]
        fn hostile_numbers_are_drawn_or_left_out(points in proptest::collection::vec((any::<f64>(), any::<f64>()), 0..80)) {
            assert_drawable(&drawn(points.into_iter().map(|(x, y)| (x, y, String::new())).collect()));
        }
    }
}
