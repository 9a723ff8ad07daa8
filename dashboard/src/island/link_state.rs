//! Whether what a page shows is what the server knows.

use leptos::prelude::*;

use crate::browser::link::{self, Link};

/// A word about the connection, where a page is about something that changes.
#[island]
pub(crate) fn LinkState(
    /// Whether the page is such a page.
    live: bool,
) -> impl IntoView {
    let state = RwSignal::new(if live { Link::Connecting } else { Link::Still });
    Effect::new(move |_| link::subscribe(move |link| state.set(link)));
    view! {
        <span class="link" role="status" data-link=move || state.with(Link::as_str) title=move || state.with(Link::title)>
            <span class="link-words">{move || state.with(Link::text)}</span>
        </span>
    }
}
