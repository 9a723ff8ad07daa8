//! Links to a list as a file: the whole of it, with the filter that the page has.

use leptos::prelude::*;
use nightshift_protocol::api::{TableFormat, TableName};

use crate::address::Address;

/// A link for each format. `name` tells which list, where a page has several; pairs that are empty are left out.
pub(crate) fn links<'a>(
    name: &'static str,
    table: TableName,
    pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> AnyView {
    let filtered = pairs
        .into_iter()
        .fold(Address::parse(&format!("/api/v1/tables/{}", table.as_str())), |address, (name, value)| {
            address.with(name, Some(value))
        });
    let links = TableFormat::ALL
        .into_iter()
        .map(|format| {
            let label = match format {
                TableFormat::Csv => "CSV",
                TableFormat::Json => "JSON",
                TableFormat::Parquet => "Parquet",
            };
            let href = filtered.with("format", Some(format.as_str())).href();
            let spoken = format!("{name} as {label}");
            view! { " "<a href=href aria-label=spoken download="">{label}</a> }
        })
        .collect::<Vec<_>>();
    view! { <p class="quiet files">{format!("{name} as a file:")}{links}</p> }.into_any()
}

/// The pairs of an address that say which rows are shown, and in which order: all but the place in them.
pub(crate) fn kept<'a>(address: &'a Address, names: &[&str]) -> Vec<(&'a str, &'a str)> {
    address.pairs().filter(|(name, _)| names.contains(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_filter_of_its_page() {
        let address = Address::parse("/attempts?q=a%26b&sort=speedup&before=x&outcome=");
        let owner = Owner::new();
        let html =
            owner.with(|| links("Attempts", TableName::Attempts, kept(&address, &["q", "sort", "outcome"])).to_html());
        for format in ["csv", "json", "parquet"] {
            let href = format!("/api/v1/tables/attempts?q=a%26b&amp;sort=speedup&amp;format={format}");
            assert!(html.contains(&href), "{href}: {html}");
        }
        assert!(!html.contains("before"), "{html}");
    }
}
