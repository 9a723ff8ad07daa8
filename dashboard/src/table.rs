//! Tables that are sorted and filtered by plain links: they work without scripts, and their state is in the address.

use std::cmp::Ordering;

use leptos::prelude::*;

use crate::address::Address;

/// A column that rows can be sorted by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    /// Its name in the address; empty when rows cannot be sorted by it.
    pub(crate) key: &'static str,
    /// Its name for people.
    pub(crate) label: &'static str,
    kind: Kind,
}

/// The kind of a column's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    /// Numbers stand at the right, and the largest comes first.
    Number,
    /// The latest comes first.
    Moment,
}

impl Column {
    /// A column that rows cannot be sorted by.
    pub(crate) const fn plain(label: &'static str) -> Self {
        Self { key: "", label, kind: Kind::Text }
    }

    /// A column of texts.
    pub(crate) const fn text(key: &'static str, label: &'static str) -> Self {
        Self { key, label, kind: Kind::Text }
    }

    /// A column of numbers.
    pub(crate) const fn number(key: &'static str, label: &'static str) -> Self {
        Self { key, label, kind: Kind::Number }
    }

    /// A column of moments.
    pub(crate) const fn moment(key: &'static str, label: &'static str) -> Self {
        Self { key, label, kind: Kind::Moment }
    }

    /// Returns whether the first click sorts in descending order.
    fn begins_descending(self) -> bool {
        self.kind != Kind::Text
    }
}

/// By which column rows are sorted, and from which end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sorting {
    /// The column.
    pub(crate) key: &'static str,
    /// Whether the largest comes first.
    pub(crate) descending: bool,
}

impl Sorting {
    /// Returns the order of the address among these columns, else `other`.
    pub(crate) fn of(address: &Address, columns: &[Column], other: Self) -> Self {
        let asked = address.get("sort").and_then(|key| columns.iter().find(|column| column.key == key));
        let Some(column) = asked else { return other };
        let descending = match address.get("order") {
            Some("asc") => false,
            Some("desc") => true,
            _ => column.begins_descending(),
        };
        Self { key: column.key, descending }
    }

    /// An order of this direction.
    pub(crate) fn directed(self, order: Ordering) -> Ordering {
        if self.descending { order.reverse() } else { order }
    }

    /// Orders numbers in this direction. Missing numbers come last in both directions.
    pub(crate) fn numbers(self, a: Option<f64>, b: Option<f64>) -> Ordering {
        match (a, b) {
            (Some(a), Some(b)) => self.directed(a.total_cmp(&b)),
            _ => a.is_none().cmp(&b.is_none()),
        }
    }
}

/// Renders the head of a table: a link for each column, which reverses the order of the current one.
pub(crate) fn head(address: &Address, columns: &[Column], sorting: Sorting) -> impl IntoView + use<> {
    let cells = columns
        .iter()
        .map(|column| {
            if column.key.is_empty() {
                let class = (column.kind == Kind::Number).then_some("number");
                return view! { <th scope="col" class=class>{column.label}</th> }.into_any();
            }
            let is_current = sorting.key == column.key;
            let descending = if is_current { !sorting.descending } else { column.begins_descending() };
            let order = if descending { "desc" } else { "asc" };
            let href = address.with("sort", Some(column.key)).with("order", Some(order)).with("before", None).href();
            let state = is_current.then_some(if sorting.descending { "descending" } else { "ascending" });
            let sign = match state {
                Some("descending") => " ↓",
                Some(_) => " ↑",
                None => "",
            };
            view! {
                <th scope="col" class=(column.kind == Kind::Number).then_some("number") aria-sort=state>
                    <a href=href>{column.label}{sign}</a>
                </th>
            }
            .into_any()
        })
        .collect::<Vec<_>>();
    view! { <thead><tr>{cells}</tr></thead> }
}

/// Renders the values of a property as links; the first one is no filter.
pub(crate) fn chips(
    address: &Address,
    name: &'static str,
    label: &'static str,
    choices: &[(&str, String)],
) -> impl IntoView + use<> {
    let current = address.get(name).unwrap_or_default();
    let links = choices
        .iter()
        .map(|(value, words)| {
            let href = address.with(name, Some(value)).with("before", None).href();
            let is_current = (current == *value).then_some("true");
            view! { <li><a href=href aria-current=is_current>{words.clone()}</a></li> }
        })
        .collect::<Vec<_>>();
    view! { <ul class="chips" aria-label=label>{links}</ul> }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 2] = [Column::text("name", "Name"), Column::number("size", "Size")];
    const BY_NAME: Sorting = Sorting { key: "name", descending: false };

    #[test]
    fn the_address_says_how_rows_are_sorted() {
        let read = |address: &str| Sorting::of(&Address::parse(address), &COLUMNS, BY_NAME);
        assert_eq!(read("/x"), BY_NAME);
        assert_eq!(read("/x?sort=size"), Sorting { key: "size", descending: true });
        assert_eq!(read("/x?sort=size&order=asc"), Sorting { key: "size", descending: false });
        assert_eq!(read("/x?sort=colour"), BY_NAME);
    }

    #[test]
    fn missing_numbers_come_last_in_both_directions() {
        let sorted = |descending| {
            let mut values = [None, Some(2.0), Some(-1.0), None, Some(0.0)];
            values.sort_by(|a, b| Sorting { key: "size", descending }.numbers(*a, *b));
            values
        };
        assert_eq!(sorted(false), [Some(-1.0), Some(0.0), Some(2.0), None, None]);
        assert_eq!(sorted(true), [Some(2.0), Some(0.0), Some(-1.0), None, None]);
    }

    #[test]
    fn a_second_click_turns_the_order_round() {
        let address = Address::parse("/x?q=a");
        let html = head(&address, &COLUMNS, BY_NAME).to_html();
        assert!(html.contains("sort=name&amp;order=desc") || html.contains("sort=name&order=desc"), "{html}");
        assert!(html.contains("aria-sort=\"ascending\"") && html.contains("q=a"), "{html}");
    }
}
