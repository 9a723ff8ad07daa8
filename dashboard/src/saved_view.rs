//! Addresses of saved views.

use crate::address::Address;

/// Returns the address of a view. It is a page of this server, also when the stored text names another site.
pub(crate) fn href(page: &str, query: &str) -> String {
    let path = format!("/{}", page.trim_matches(['/', '\\']));
    if query.is_empty() { path } else { format!("{path}?{query}") }
}

/// A page as it is stored; the first one has no name of its own.
pub(crate) fn stored(page: &str) -> String {
    let page = page.trim_matches('/');
    if page.is_empty() { "/".to_owned() } else { page.to_owned() }
}

/// Where a page with this address is saved.
pub(crate) fn save_href(address: &str) -> String {
    let (path, query) = address.split_once('?').unwrap_or((address, ""));
    Address::parse("/views").with("of", Some(&stored(path))).with("query", Some(query)).href()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_leads_back_to_what_was_seen_and_never_to_another_site() {
        assert_eq!(href("attempts", "sort=speedup&q=a%20b"), "/attempts?sort=speedup&q=a%20b");
        assert_eq!(href("/", ""), "/");
        assert_eq!(href("//evil.example", ""), "/evil.example");
        let saved = Address::parse(&save_href("/campaigns/cmp_1?status=failed&sort=task"));
        assert_eq!((saved.get("of"), saved.get("query")), (Some("campaigns/cmp_1"), Some("status=failed&sort=task")));
        assert_eq!(Address::parse(&save_href("/?q=x")).get("of"), Some("/"));
    }
}
