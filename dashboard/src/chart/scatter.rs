//! Dots: every attempt, by what became of it.

use std::collections::HashSet;
use std::fmt::Write as _;

use super::MAX_MARKS;
use super::frame::{Area, Axis, Caption, Chart, Entry, HEIGHT, Table, WIDTH, axes, figure, line, nothing, rect};
use super::number::{Unit, box_of, show};
use super::scale::Scale;
use crate::markup::{Markup, coordinate};

/// Maximum number of dots that say what they are and lead to it. More than that are drawn by one path for each kind: as elements of their
/// own they would be most of the page.
const MAX_LINKS: usize = 400;
/// Radius of a dot.
const RADIUS: f64 = 3.5;

/// Dots of one kind.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dots {
    /// What they are.
    pub(crate) name: String,
    /// Their class.
    pub(crate) class: &'static str,
    /// Coordinates and label of each point. A point without a value stands at the lower edge.
    pub(crate) points: Vec<(f64, Option<f64>, String)>,
    /// Address that each point links to, in the same order; empty without links. The points are not tab stops: keyboard
    /// users have the list of the same attempts on the page.
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
    let y_values = points().filter_map(|(_, y, _)| *y).chain(reference.map(|(at, _)| at));
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
    let total = points().filter(|(x, y, _)| x_scale.share(*x).is_some() && share_of(&y_scale, *y).is_some()).count();
    let mut caption = caption.clone();
    brush(&mut out, area, x, (&x_scale, points().map(|(x, ..)| *x)), |out| {
        if total <= MAX_LINKS {
            for kind in kinds {
                linked(out, kind, (&x_scale, &y_scale));
            }
            return;
        }
        let marks = painted(out, kinds, (&x_scale, &y_scale), total);
        if marks < total {
            let _ = write!(caption.description, " {marks} dots stand for {total} points.");
        }
        if kinds.iter().any(|kind| !kind.hrefs.is_empty()) {
            let _ =
                write!(caption.description, " In a part of up to {MAX_LINKS}, each says what it is and leads to it.");
        }
    });
    let legend: Vec<Entry> =
        kinds.iter().map(|kind| (kind.class, format!("{} ({})", kind.name, kind.points.len()))).collect();
    let rows = kinds.iter().flat_map(|kind| {
        let row = |(at_x, at_y, words): &(f64, Option<f64>, String)| {
            let at_y = at_y.map_or_else(|| "–".to_owned(), |at_y| show(at_y, y.unit));
            vec![kind.name.clone(), show(*at_x, x.unit), at_y, words.clone()]
        };
        kind.points.iter().map(row)
    });
    let table = Table::of(&["Kind", x.label, y.label, "What"], points().count(), rows);
    figure(&caption, (WIDTH, HEIGHT), &out, &legend, Some(&table))
}

/// Returns how far up a value is, from 0 to 1; a missing one is at the lower edge.
fn share_of(scale: &Scale, value: Option<f64>) -> Option<f64> {
    value.map_or(Some(0.0), |value| scale.share(value))
}

/// What is drawn here can be looked at closer (`pointing.js`), where places are counted. The panel takes what hits no dot.
fn brush(
    out: &mut Markup,
    area: Area,
    axis: &Axis,
    (scale, places): (&Scale, impl Iterator<Item = f64>),
    draw: impl FnOnce(&mut Markup),
) {
    let (low, high) = places
        .filter(|place| place.is_finite())
        .fold((f64::MAX, f64::MIN), |(low, high), place| (low.min(place), high.max(place)));
    let edges =
        scale.place(low).zip(scale.place(high)).filter(|(left, right)| axis.unit == Unit::Count && left < right);
    let Some((left, right)) = edges else { return draw(out) };
    let brush = format!("{low} {high} {} {} 1", coordinate(left), coordinate(right));
    out.tag("g").with("class", "brush").with("data-brush", &brush).around(|out| {
        rect(out, "hit", (area.left, area.top), (area.right - area.left, area.bottom - area.top), None);
        draw(out);
    });
}

/// Dots as elements: each says what it is, and leads to it.
fn linked(out: &mut Markup, kind: &Dots, (x, y): (&Scale, &Scale)) {
    let class = format!("dot {}", kind.class);
    for (place, (at_x, at_y, words)) in kind.points.iter().enumerate() {
        let (Some(at_x), Some(share_y)) = (x.place(*at_x), share_of(y, *at_y)) else { continue };
        let at_y = y.from() + share_y * (y.to() - y.from());
        let draw = |out: &mut Markup| {
            let dot = out.tag("circle").with("class", &class).at("cx", at_x).at("cy", at_y).at("r", RADIUS);
            dot.around(|out| out.tag("title").text(words));
        };
        match kind.hrefs.get(place) {
            Some(href) => {
                let link = out.tag("a").with("href", href).with("tabindex", "-1").with("aria-label", words);
                link.around(draw);
            }
            None => draw(out),
        }
    }
}

/// Dots as one path for each kind. Returns how many were drawn: where they would cover each other, one stands for several.
fn painted(out: &mut Markup, kinds: &[Dots], (x, y): (&Scale, &Scale), total: usize) -> usize {
    let mut taken = HashSet::new();
    let mut marks = 0_usize;
    for (number, kind) in kinds.iter().enumerate() {
        let mut path = String::new();
        for (at_x, at_y, _) in &kind.points {
            let (Some(share_x), Some(share_y)) = (x.share(*at_x), share_of(y, *at_y)) else { continue };
            if total > MAX_MARKS {
                // One dot for each box of a raster: rather few kinds, so that their number stays bounded.
                let raster = (number, box_of(share_x, 120), box_of(share_y, 40));
                if marks >= 2 * MAX_MARKS || !taken.insert(raster) {
                    continue;
                }
            }
            marks += 1;
            let at = |scale: &Scale, share: f64| {
                coordinate(((scale.from() + share * (scale.to() - scale.from())) * 10.0).round() / 10.0)
            };
            // A line of no length with round ends is a dot.
            let _ = write!(path, "M{} {}h0", at(x, share_x), at(y, share_y));
        }
        if !path.is_empty() {
            out.tag("path").with("class", &format!("dots {}", kind.class)).with("d", &path).empty();
        }
    }
    marks
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::frame::assert_drawable;
    use super::super::number::Unit;
    use super::*;

    fn drawn(points: Vec<(f64, f64, String)>) -> Chart {
        drawn_with_gaps(points.into_iter().map(|(x, y, words)| (x, Some(y), words)).collect())
    }

    fn drawn_with_gaps(points: Vec<(f64, Option<f64>, String)>) -> Chart {
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
    fn a_point_without_a_value_stands_at_the_lower_edge_and_is_a_dash() {
        let few = vec![(1.0, Some(2.0), "right".to_owned()), (2.0, None, "wrong".to_owned())];
        let many = (0..=MAX_LINKS).map(|_| (2.0, None, String::new())).collect();
        let (few, many) = (drawn_with_gaps(few), drawn_with_gaps(many));
        let edge = coordinate(Area::of(HEIGHT).bottom);
        assert!(few.as_str().contains(&format!("cy=\"{edge}\"")), "{edge} in {}", few.as_str());
        assert!(few.as_str().contains("<td>–</td><td>wrong</td>"), "{}", few.as_str());
        assert!(many.as_str().contains(&format!(" {edge}h0")), "{edge} in {}", many.as_str());
        // It takes no part in the scale: both reach down to the reference alone.
        assert_eq!(few.as_str().contains(">0.1"), many.as_str().contains(">0.1"));
        assert_drawable(&few);
    }

    #[test]
    fn many_dots_are_drawn_as_few_and_the_caption_says_so() {
        let points = (0..100_000_u32).map(|n| (f64::from(n), 1.0 + f64::from(n % 101), String::new())).collect();
        let chart = drawn(points);
        assert!(chart.as_str().contains("stand for 100000 points"));
        assert_drawable(&chart);
    }

    #[test]
    fn more_dots_than_people_point_at_are_one_path() {
        let points = |count: u32| (1..=count).map(|n| (f64::from(n), 1.5, format!("attempt {n}"))).collect();
        let (few, many) = (drawn(points(400)), drawn(points(401)));
        assert_eq!((few.as_str().matches("<circle").count(), few.as_str().matches("<path").count()), (400, 0));
        assert_eq!((many.as_str().matches("<circle").count(), many.as_str().matches("class=\"dots").count()), (0, 1));
        assert_eq!(many.as_str().matches("h0").count(), 401, "every one of them");
        assert!(many.as_str().contains("In a part of up to 400") && !few.as_str().contains("In a part of"));
    }

    #[test]
    fn a_part_of_counted_places_can_be_chosen() {
        let chart = drawn(vec![(3.0, 2.0, String::new()), (9.0, 1.0, String::new())]);
        assert!(chart.as_str().contains("data-brush=\"3 9 "), "{}", chart.as_str());
        assert!(!drawn(vec![(3.0, 2.0, String::new())]).as_str().contains("data-brush"), "one place has no part");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

        #[test]
        fn hostile_numbers_are_drawn_or_left_out(points in proptest::collection::vec((any::<f64>(), any::<f64>()), 0..80)) {
            assert_drawable(&drawn(points.into_iter().map(|(x, y)| (x, y, String::new())).collect()));
        }
    }
}
