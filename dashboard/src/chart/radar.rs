//! Ratings in several directions at once: the rubric.

use std::f64::consts::TAU;

use super::frame::{Caption, Chart, Entry, Table, figure, line, nothing};
use super::number::{float, significant};
use crate::markup::{Markup, coordinate};

/// Size of the drawing.
const SIZE: (f64, f64) = (460.0, 320.0);
/// Its middle.
const MIDDLE: (f64, f64) = (230.0, 160.0);
/// Distance of the best rating from the middle.
const RADIUS: f64 = 110.0;

/// Ratings by one judge.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ratings {
    /// Who rated.
    pub(crate) name: String,
    /// The class.
    pub(crate) class: &'static str,
    /// One rating for each direction.
    pub(crate) values: Vec<f64>,
}

/// Ratings from 0 to `best`, one direction for each name.
pub(crate) fn radar(caption: &Caption, directions: &[&str], best: u8, ratings: &[Ratings]) -> Chart {
    if directions.len() < 3 || best == 0 || ratings.is_empty() {
        return nothing(caption, "There are no ratings yet.");
    }
    let turn = |index: usize| TAU * float(index) / float(directions.len()) - TAU / 4.0;
    let place = |index: usize, value: f64| {
        let share = if value.is_finite() { (value / f64::from(best)).clamp(0.0, 1.0) } else { 0.0 };
        (MIDDLE.0 + RADIUS * share * turn(index).cos(), MIDDLE.1 + RADIUS * share * turn(index).sin())
    };
    let ring = |value: &dyn Fn(usize) -> f64| {
        let corners = (0..directions.len()).map(|index| place(index, value(index)));
        corners.map(|(x, y)| format!("{},{}", coordinate(x), coordinate(y))).collect::<Vec<_>>().join(" ")
    };
    let mut out = Markup::new();
    for level in 1..=best {
        out.tag("polygon").with("class", "ring").with("points", &ring(&|_| f64::from(level))).empty();
    }
    for (index, name) in directions.iter().enumerate() {
        let (x, y) = place(index, f64::from(best));
        line(&mut out, "grid", MIDDLE, (x, y));
        let outside =
            (MIDDLE.0 + (RADIUS + 14.0) * turn(index).cos(), MIDDLE.1 + (RADIUS + 18.0) * turn(index).sin() + 4.0);
        let class = match turn(index).cos() {
            cos if cos > 0.3 => "tick",
            cos if cos < -0.3 => "tick end",
            _ => "tick middle",
        };
        out.tag("text").at("x", outside.0).at("y", outside.1).with("class", class).text(name);
    }
    for one in ratings {
        let value = |index: usize| one.values.get(index).copied().unwrap_or(0.0);
        let class = format!("area {}", one.class);
        out.tag("polygon")
            .with("class", &class)
            .with("points", &ring(&value))
            .around(|out| out.tag("title").text(&one.name));
    }
    let legend: Vec<Entry> = ratings.iter().map(|one| (one.class, one.name.clone())).collect();
    let rows = directions.iter().enumerate().map(|(index, name)| {
        let cell = |one: &Ratings| {
            one.values.get(index).map_or_else(String::new, |value| format!("{} of {best}", significant(*value)))
        };
        std::iter::once((*name).to_owned()).chain(ratings.iter().map(cell)).collect()
    });
    let head: Vec<&str> = std::iter::once("").chain(ratings.iter().map(|one| one.name.as_str())).collect();
    figure(caption, SIZE, &out, &legend, Some(&Table::of(&head, directions.len(), rows)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::frame::assert_drawable;
    use super::*;

    #[test]
    fn the_best_rating_lies_on_the_outer_ring() {
        let ratings = [Ratings { name: "rules".to_owned(), class: "series-1", values: vec![5.0, 2.5, 0.0, 5.0] }];
        let chart = radar(&Caption::new("Rubric", ""), &["a", "b", "c", "d"], 5, &ratings);
        assert!(chart.as_str().contains("points=\"230,50 285,160 230,160 120,160\""), "{}", chart.as_str());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

        #[test]
        fn hostile_numbers_are_drawn_or_left_out(values in proptest::collection::vec(any::<f64>(), 0..6), best in any::<u8>()) {
            let ratings = [Ratings { name: "rules".to_owned(), class: "series-1", values }];
            let chart = radar(&Caption::new("Rubric", ""), &["a", "b", "c", "d"], best.min(10), &ratings);
            assert_drawable(&chart);
        }
    }
}
