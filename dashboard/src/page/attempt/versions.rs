//! Versions of the program that the Coder fixed within the attempt.

use leptos::prelude::*;
use nightshift_protocol::attempt::{Attempt, EarlierVersion};

use crate::page::components::{Cell, artifact, table, words};

/// The section; none when the first version was the last one.
pub(super) fn section(attempt: &Attempt) -> Option<AnyView> {
    if attempt.earlier_versions.is_empty() {
        return None;
    }
    let rows: Vec<Vec<Cell>> = (1..).zip(&attempt.earlier_versions).map(row).collect();
    let versions = table(&["Version", "Outcome", "Why", "Source", "Compiler output"], &rows);
    let note =
        "The Coder fixed these versions within the attempt. What the page shows otherwise is about the last version.";
    Some(view! { <p class="quiet">{note}</p>{versions} }.into_any())
}

fn row((number, version): (u32, &EarlierVersion)) -> Vec<Cell> {
    let outcome = version.outcome.as_str();
    vec![
        Cell::Number(number.to_string()),
        Cell::Tag(outcome.to_owned(), words(outcome)),
        version.reason().unwrap_or_default().into(),
        artifact(&version.source),
        version.build.as_ref().map_or_else(|| "it was not built".into(), |build| artifact(&build.log)),
    ]
}
