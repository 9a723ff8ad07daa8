//! The connection indicator.

use leptos::prelude::*;

use crate::browser::link::{self, Link};

/// Shows the state of the connection on pages with data that changes.
#[island]
pub(crate) fn LinkState(
    /// Whether the page shows data that changes.
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
