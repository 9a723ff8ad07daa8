//! Pages of lists: the limit, and the cursor of the next page.

use nightshift_engine::store::PageRequest;
use nightshift_protocol::api::{MAX_PAGE_ROWS, Page};

use crate::error::ApiFailure;

/// Default number of rows per page.
pub(crate) const DEFAULT_PAGE_ROWS: u32 = 100;
/// Maximum length of a cursor.
const MAX_CURSOR_BYTES: usize = 64;

/// Returns the page to request from the store: one more row than wanted, which shows whether a next page exists.
pub(crate) fn page_request(limit: Option<u32>, before: Option<String>) -> Result<PageRequest, ApiFailure> {
    let limit = limit.unwrap_or(DEFAULT_PAGE_ROWS);
    if !(1..=MAX_PAGE_ROWS).contains(&limit) {
        return Err(ApiFailure::bad("request.invalid_query", format!("`limit` must be from 1 to {MAX_PAGE_ROWS}")));
    }
    if before.as_ref().is_some_and(|cursor| cursor.is_empty() || cursor.len() > MAX_CURSOR_BYTES) {
        return Err(ApiFailure::bad("request.invalid_query", "`before` must be the `next` of the page before"));
    }
    Ok(PageRequest { limit: limit + 1, before })
}

/// Returns the page, from one row more than wanted.
pub(crate) fn page<T>(request: &PageRequest, mut items: Vec<T>, cursor: impl Fn(&T) -> String) -> Page<T> {
    let wanted = usize::try_from(request.limit.saturating_sub(1)).unwrap_or(usize::MAX);
    let more = items.len() > wanted;
    items.truncate(wanted);
    let next = if more { items.last().map(cursor) } else { None };
    Page { items, next }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_given_only_when_there_is_more() {
        let request = page_request(Some(2), None).unwrap();
        assert_eq!(request.limit, 3);
        let full = page(&request, vec![9, 8, 7], ToString::to_string);
        assert_eq!((full.items, full.next), (vec![9, 8], Some("8".to_owned())));
        let last = page(&request, vec![9, 8], ToString::to_string);
        assert_eq!((last.items, last.next), (vec![9, 8], None));
    }

    #[test]
    fn a_limit_out_of_range_is_refused() {
        assert!(page_request(Some(0), None).is_err());
        assert!(page_request(Some(MAX_PAGE_ROWS + 1), None).is_err());
        assert!(page_request(None, Some("x".repeat(65))).is_err());
    }
}
