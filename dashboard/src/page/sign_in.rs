//! Where a visitor shows who they are.

use leptos::prelude::*;

use crate::island::SignIn;
use crate::shell::Page;

/// The page; afterwards the visitor goes on to `next`.
pub(crate) fn page(next: &str) -> Page {
    let next = next.to_owned();
    Page::new(
        "Sign in",
        view! {
            <section class="blank">
                <h1>"Sign in"</h1>
                <p>
                    "A token says what you may do: a viewer reads, an operator controls campaigns, an admin does everything. "
                    "Who runs this server makes one for you with "<code>"nightshift token create"</code>"."
                </p>
                <SignIn next=next />
                <noscript><p>"Signing in needs scripts. Without them, pages can be read where reading needs no token."</p></noscript>
            </section>
        },
    )
}
