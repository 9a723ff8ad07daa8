//! What the keyboard can do, told by `?`.

use leptos::prelude::*;

use super::Section;

const KEYS: [(&str, &str); 9] = [
    ("j, k", "next or previous row"),
    ("Enter", "open the row"),
    ("x", "select the row"),
    ("Shift and click", "select all rows from the one that was clicked before"),
    ("c", "compare what is selected, two or more"),
    ("/", "search"),
    ("r", "read the page again"),
    ("Escape", "fold a question or a form"),
    ("?", "this list"),
];

pub(super) fn dialog() -> impl IntoView {
    let keys = KEYS.into_iter().map(|(key, what)| line(key.to_owned(), what)).collect::<Vec<_>>();
    let jumps = Section::ALL.into_iter().map(|section| line(format!("g {}", section.key()), section.label()));
    view! {
        <dialog id="help" aria-labelledby="help-title">
            <h2 id="help-title">"Keyboard"</h2>
            <dl class="keys">{keys}{jumps.collect::<Vec<_>>()}</dl>
            <form method="dialog"><button>"Close"</button></form>
        </dialog>
    }
}

fn line(key: String, what: &'static str) -> impl IntoView {
    view! { <dt><kbd>{key}</kbd></dt><dd>{what}</dd> }
}
