//! What the keyboard can do, told by `?`.

use leptos::prelude::*;

use super::Section;
use crate::keys;

const KEYS: [(&str, &str); 9] = [
    ("j, k", "next or previous row"),
    ("Enter", "open the row"),
    ("x", "select the row"),
    ("Shift and click", "select all rows from the one that was clicked before"),
    ("c", "compare what is selected, two or more"),
    ("/", "search"),
    ("r", "read the page again"),
    ("Escape", "fold a question or a form, give up a part of a picture"),
    ("?", "this list"),
];

/// The list, with a switch for those whom single keys disturb.
pub(super) fn dialog(keys_are_off: bool, back: &str) -> impl IntoView + use<> {
    let (words, wanted, label) = if keys_are_off {
        ("Keys without Ctrl or Alt are switched off, but for Escape.", "on", "Switch single keys on")
    } else {
        ("Single keys can be in the way of speech input.", keys::OFF, "Switch single keys off")
    };
    // As it is: the route takes the rest of its address for the page to go back to.
    let action = format!("/keys?back={back}");
    let keys = KEYS.into_iter().map(|(key, what)| line(key.to_owned(), what)).collect::<Vec<_>>();
    let jumps = Section::ALL.into_iter().map(|section| line(format!("g {}", section.key()), section.label()));
    view! {
        <dialog id="help" aria-labelledby="help-title">
            <h2 id="help-title">"Keyboard"</h2>
            <dl class="keys">{keys}{jumps.collect::<Vec<_>>()}</dl>
            <form method="post" action=action>
                <p class="quiet">{words}</p>
                <input type="hidden" name=keys::COOKIE value=wanted />
                <button>{label}</button>
            </form>
            <form method="dialog"><button>"Close"</button></form>
        </dialog>
    }
}

fn line(key: String, what: &'static str) -> impl IntoView {
    view! { <dt><kbd>{key}</kbd></dt><dd>{what}</dd> }
}
