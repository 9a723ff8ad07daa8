//! The page for what could not be shown.

use leptos::prelude::*;

use crate::shell::document;

/// Code and message of an error.
pub(crate) fn page(code: &str, message: &str) -> String {
    let (code, message) = (code.to_owned(), message.to_owned());
    document(
        "Error",
        false,
        view! {
            <h1>"This page cannot be shown"</h1>
            <p>{message}</p>
            <p class="quiet">"Code: "<code>{code}</code>". "<a href="/">"All campaigns"</a></p>
        },
    )
}
