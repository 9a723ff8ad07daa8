//! The read time of a page without live updates, with a link to reload it.

use leptos::prelude::*;
use nightshift_protocol::time::TimestampMs;

use crate::address::Address;
use crate::format::when;

/// A line for the head of the page.
pub(crate) fn as_of(address: &Address, now: TimestampMs) -> AnyView {
    let href = address.href();
    view! { <span class="quiet as-of">"As of "{when(now)}" "<a href=href>"Read anew"</a></span> }.into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_leads_to_the_same_page_with_its_filter() {
        let html = Owner::new().with(|| as_of(&Address::parse("/attempts?task=gemm"), TimestampMs(0)).to_html());
        assert!(html.contains("href=\"/attempts?task=gemm\"") && html.contains("1970-01-01T00:00:00Z"), "{html}");
    }
}
