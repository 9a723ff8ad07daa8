//! Which attempt came from which: a tree that grows to the right, with the way to the best one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::frame::{Caption, Chart, Entry, figure, line, nothing};
use super::number::float;
use crate::markup::{Markup, coordinate};

/// Maximum number of nodes: the way to the best one and the newest ones.
const MAX_NODES: usize = 300;
/// Room for one generation.
const COLUMN: f64 = 104.0;
/// Room for one row.
const ROW: f64 = 46.0;
/// Room around.
const MARGIN: f64 = 34.0;
/// Room for the label of the last node, which is wider than the node.
const LABEL: f64 = 24.0;

/// An attempt.
#[derive(Debug, Clone, Default)]
pub(crate) struct Node {
    /// Its number.
    pub(crate) number: u32,
    /// Where it came from.
    pub(crate) parent: Option<u32>,
    /// Its class.
    pub(crate) class: &'static str,
    /// What stands below it, for example its speedup.
    pub(crate) label: String,
    /// What it is.
    pub(crate) words: String,
    /// Where it leads.
    pub(crate) href: String,
}

/// The tree. `best` is the attempt whose way is marked; `kinds` names the classes.
pub(crate) fn lineage(
    caption: &Caption,
    nodes: &[Node],
    best: Option<u32>,
    kinds: &[(&'static str, &'static str)],
) -> Chart {
    let parents: BTreeMap<u32, Option<u32>> = nodes.iter().map(|node| (node.number, node.parent)).collect();
    let way = way_to(best, &parents);
    let shown = shown(nodes, &way);
    if shown.is_empty() {
        return nothing(caption, "There is no attempt yet.");
    }
    let places = places(&shown);
    let at = |number: u32| {
        places.get(&number).map(|(column, row)| (MARGIN + COLUMN * float(*column), MARGIN + ROW * float(*row)))
    };
    let mut out = Markup::new();
    for node in &shown {
        if let (Some(from), Some(to)) = (node.parent.and_then(at), at(node.number)) {
            let on_way = way.contains(&node.number) && node.parent.is_some_and(|parent| way.contains(&parent));
            branch(&mut out, if on_way { "branch best" } else { "branch" }, from, to);
        }
    }
    for node in &shown {
        if let Some(place) = at(node.number) {
            mark(&mut out, node, place, best == Some(node.number));
        }
    }
    let mut caption = caption.clone();
    if shown.len() < nodes.len() {
        let hidden = nodes.len() - shown.len();
        let _ = write!(caption.description, " {hidden} older attempts are not drawn.");
    }
    let widest = places.values().map(|(column, _)| *column).max().unwrap_or(0);
    let deepest = places.values().map(|(_, row)| *row).max().unwrap_or(0);
    let size = ((2.0 * MARGIN + COLUMN * float(widest) + LABEL).max(320.0), 2.0 * MARGIN + ROW * float(deepest) + 8.0);
    let legend: Vec<Entry> = kinds.iter().map(|(class, words)| (*class, (*words).to_owned())).collect();
    figure(&caption, size, &out, &legend, None)
}

/// The best attempt and those that it came from. A circle, which no honest run has, ends where it closes.
fn way_to(best: Option<u32>, parents: &BTreeMap<u32, Option<u32>>) -> BTreeSet<u32> {
    let mut way = BTreeSet::new();
    let mut next = best;
    while let Some(number) = next {
        next = if way.insert(number) { parents.get(&number).copied().flatten() } else { None };
    }
    way
}

fn shown<'a>(nodes: &'a [Node], way: &BTreeSet<u32>) -> Vec<&'a Node> {
    let room = MAX_NODES.saturating_sub(way.len().min(MAX_NODES));
    let newest: BTreeSet<u32> =
        nodes.iter().rev().map(|node| node.number).filter(|number| !way.contains(number)).take(room).collect();
    let mut seen = BTreeSet::new();
    let wanted = nodes
        .iter()
        .filter(|node| (way.contains(&node.number) || newest.contains(&node.number)) && seen.insert(node.number));
    wanted.take(MAX_NODES).collect()
}

/// Column and row of each attempt: the first child goes on in its parent's row, others get rows of their own.
fn places(shown: &[&Node]) -> BTreeMap<u32, (usize, usize)> {
    let numbers: BTreeSet<u32> = shown.iter().map(|node| node.number).collect();
    let mut children: BTreeMap<Option<u32>, Vec<u32>> = BTreeMap::new();
    for node in shown {
        // Whatever claims to come from a later attempt, or from one that is not shown, stands at the beginning.
        let parent = node.parent.filter(|parent| numbers.contains(parent) && *parent < node.number);
        children.entry(parent).or_default().push(node.number);
    }
    let mut places = BTreeMap::new();
    let mut next_row = 0;
    let mut open: Vec<(u32, usize, Option<usize>)> =
        children.get(&None).into_iter().flatten().rev().map(|number| (*number, 0, None)).collect();
    while let Some((number, column, row)) = open.pop() {
        let row = row.unwrap_or_else(|| {
            next_row += 1;
            next_row - 1
        });
        places.insert(number, (column, row));
        let own = children.get(&Some(number)).map_or(&[][..], Vec::as_slice);
        for (index, child) in own.iter().enumerate().rev() {
            open.push((*child, column + 1, (index == 0).then_some(row)));
        }
    }
    places
}

fn branch(out: &mut Markup, class: &str, from: (f64, f64), to: (f64, f64)) {
    if (from.1 - to.1).abs() < 0.5 {
        return line(out, class, from, to);
    }
    let bend = f64::midpoint(from.0, to.0);
    let data = format!(
        "M{} {}C{} {} {} {} {} {}",
        coordinate(from.0),
        coordinate(from.1),
        coordinate(bend),
        coordinate(from.1),
        coordinate(bend),
        coordinate(to.1),
        coordinate(to.0),
        coordinate(to.1)
    );
    out.tag("path").with("class", class).with("d", &data).empty();
}

fn mark(out: &mut Markup, node: &Node, (x, y): (f64, f64), is_best: bool) {
    out.tag("a").with("href", &node.href).with("class", "node").around(|out| {
        out.tag("title").text(&node.words);
        if is_best {
            out.tag("circle").with("class", "halo").at("cx", x).at("cy", y).at("r", 16.0).empty();
        }
        out.tag("circle").with("class", &format!("dot {}", node.class)).at("cx", x).at("cy", y).at("r", 12.0).empty();
        out.tag("text").at("x", x).at("y", y + 4.0).with("class", "node-number middle").text(&node.number.to_string());
        out.tag("text").at("x", x).at("y", y + 28.0).with("class", "tick middle").text(&node.label);
    });
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::frame::assert_drawable;
    use super::*;

    fn node(number: u32, parent: Option<u32>) -> Node {
        Node { number, parent, class: "kept", href: format!("/runs/x/attempts/{number}"), ..Node::default() }
    }

    #[test]
    fn the_first_child_goes_on_in_its_parents_row() {
        let nodes = [node(1, None), node(2, Some(1)), node(3, Some(1)), node(4, Some(2)), node(5, None)];
        let places = places(&nodes.iter().collect::<Vec<_>>());
        let expected = [(1, (0, 0)), (2, (1, 0)), (3, (1, 1)), (4, (2, 0)), (5, (0, 2))];
        assert_eq!(places, BTreeMap::from(expected));
    }

    #[test]
    fn the_way_to_the_best_is_marked() {
        let nodes = [node(1, None), node(2, Some(1)), node(3, Some(1)), node(4, Some(3))];
        let chart = lineage(&Caption::new("Lineage", ""), &nodes, Some(4), &[]);
        assert_eq!(chart.as_str().matches("branch best").count(), 2, "{}", chart.as_str());
        assert!(chart.as_str().contains("<a href=\"/runs/x/attempts/4\""));
    }

    #[test]
    fn a_long_run_keeps_the_way_to_its_best() {
        let nodes: Vec<Node> = (1..=10_000).map(|n| node(n, (n > 1).then_some(n / 2).filter(|p| *p > 0))).collect();
        let chart = lineage(&Caption::new("Lineage", ""), &nodes, Some(777), &[]);
        assert!(chart.as_str().contains(">777<") && chart.as_str().contains("9700 older attempts"));
        assert_drawable(&chart);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

        #[test]
        fn whatever_claims_to_be_a_parent_drawing_ends(links in proptest::collection::vec((0..30_u32, any::<Option<u8>>()), 0..60), best in 0..30_u32) {
            let nodes: Vec<Node> = links.into_iter().map(|(number, parent)| node(number, parent.map(|p| u32::from(p % 32)))).collect();
            assert_drawable(&lineage(&Caption::new("Lineage", ""), &nodes, Some(best), &[]));
        }
    }
}
