//! Links to the tabs of an attempt's page.

use leptos::prelude::*;

use super::look::Look;
use super::tab::Tab;

/// Links to all tabs; the current one is marked.
pub(super) fn navigation(look: &Look) -> AnyView {
    let links = Tab::ALL
        .into_iter()
        .map(|tab| {
            let is_current = (tab == look.tab).then_some("page");
            view! { <li><a href=look.opened(tab).href("") aria-current=is_current>{tab.title()}</a></li> }
        })
        .collect::<Vec<_>>();
    view! { <nav class="tabs" aria-label="Attempt"><ul>{links}</ul></nav> }.into_any()
}
