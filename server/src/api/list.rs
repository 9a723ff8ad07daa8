//! Pages of lists: the limit, and the cursor of the next page.

use nightshift_engine::store::{PageRequest, StoreError};
use nightshift_protocol::api::{MAX_PAGE_ROWS, Page};
use serde::Deserialize;

use crate::error::ApiFailure;

/// Default number of rows per page.
pub(crate) const DEFAULT_PAGE_ROWS: u32 = 100;
/// Maximum length of a cursor.
const MAX_CURSOR_BYTES: usize = 64;

/// Number of hexadecimal digits of a cursor that is derived from the fields of a row.
const DERIVED_CURSOR_CHARS: usize = 32;

/// The query of a list without a filter.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PageQuery {
    limit: Option<u32>,
    before: Option<String>,
}

impl PageQuery {
    /// Takes `limit` and `before` from the pairs of a query.
    pub(crate) fn take(pairs: &mut Vec<(String, String)>) -> Result<Self, ApiFailure> {
        let mut query = Self::default();
        for (name, value) in pairs.extract_if(.., |(name, _)| matches!(name.as_str(), "limit" | "before")) {
            match name.as_str() {
                "limit" => query.limit = Some(value.parse().map_err(|_| invalid_limit())?),
                _ => query.before = Some(value),
            }
        }
        Ok(query)
    }

    /// Returns the page to request from the store; see [`page_request`].
    pub(crate) fn request(self) -> Result<PageRequest, ApiFailure> {
        page_request(self.limit, self.before)
    }

    /// Returns the page of a short list that is read as a whole. Without `limit` and `before` that is the whole list, as
    /// in earlier releases.
    pub(crate) fn of_all<T>(self, mut rows: Vec<T>, cursor: impl Fn(&T) -> String) -> Result<Page<T>, ApiFailure> {
        if self.limit.is_none() && self.before.is_none() {
            return Ok(Page { items: rows, next: None });
        }
        let request = self.request()?;
        if let Some(before) = &request.before {
            let place = rows.iter().position(|row| cursor(row) == *before).ok_or_else(invalid_cursor)?;
            rows.drain(..=place);
        }
        Ok(page(&request, rows, cursor))
    }

    /// Returns the page of a short list whose rows change their places. Pages come in the order of their cursors, so that no
    /// row is left out or repeated; without `limit` and `before` the list keeps its own order.
    pub(crate) fn of_moving<T>(self, mut rows: Vec<T>, cursor: impl Fn(&T) -> String) -> Result<Page<T>, ApiFailure> {
        if self.limit.is_none() && self.before.is_none() {
            return Ok(Page { items: rows, next: None });
        }
        let request = self.request()?;
        if let Some(before) = &request.before {
            rows.retain(|row| cursor(row) > *before);
        }
        rows.sort_by_cached_key(&cursor);
        Ok(page(&request, rows, cursor))
    }
}

/// Returns the cursor of a row that these fields identify.
pub(crate) fn derived_cursor(fields: &[&str]) -> String {
    let mut hasher = blake3::Hasher::new();
    for field in fields {
        hasher.update(&u64::try_from(field.len()).unwrap_or(u64::MAX).to_le_bytes()).update(field.as_bytes());
    }
    hasher.finalize().to_hex()[..DERIVED_CURSOR_CHARS].to_owned()
}

fn invalid_limit() -> ApiFailure {
    ApiFailure::bad("request.invalid_query", format!("`limit` must be from 1 to {MAX_PAGE_ROWS}"))
}

fn invalid_cursor() -> ApiFailure {
    ApiFailure::bad(
        "request.invalid_query",
        "`before` must be the `next` of the page before, and its row must still be there",
    )
}

/// Converts the error of a list whose other names were found: what is missing is the row of its cursor.
pub(crate) fn cursor_failure(error: StoreError) -> ApiFailure {
    match error {
        StoreError::NotFound { .. } => invalid_cursor(),
        other => other.into(),
    }
}

/// Returns the page to request from the store: one more row than wanted, which shows whether a next page exists.
pub(crate) fn page_request(limit: Option<u32>, before: Option<String>) -> Result<PageRequest, ApiFailure> {
    let limit = limit.unwrap_or(DEFAULT_PAGE_ROWS);
    if !(1..=MAX_PAGE_ROWS).contains(&limit) {
        return Err(invalid_limit());
    }
    if before.as_ref().is_some_and(|cursor| cursor.is_empty() || cursor.len() > MAX_CURSOR_BYTES) {
        return Err(invalid_cursor());
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
    fn the_pages_of_a_short_list_are_the_whole_list() {
        let rows = vec![5, 4, 3, 2, 1];
        let list = |limit, before| PageQuery { limit, before }.of_all(rows.clone(), ToString::to_string);
        assert_eq!(list(None, None).unwrap(), Page { items: rows.clone(), next: None });
        let (mut pages, mut before) = (Vec::new(), None);
        loop {
            let page = list(Some(2), before).unwrap();
            pages.push(page.items);
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        assert_eq!(pages, [vec![5, 4], vec![3, 2], vec![1]]);
        assert!(list(Some(2), Some("9".to_owned())).is_err(), "no such row");
        assert!(list(Some(0), None).is_err());
    }

    #[test]
    fn limit_and_cursor_are_taken_from_a_query() {
        let mut pairs = vec![("limit".to_owned(), "7".to_owned()), ("task".to_owned(), "a".to_owned())];
        let query = PageQuery::take(&mut pairs).unwrap();
        assert_eq!((query.limit, query.before, pairs.len()), (Some(7), None, 1));
        assert!(PageQuery::take(&mut vec![("limit".to_owned(), "x".to_owned())]).is_err());
    }

    #[test]
    fn a_derived_cursor_depends_on_every_field_and_its_borders() {
        assert_ne!(derived_cursor(&["ab", "c"]), derived_cursor(&["a", "bc"]));
        assert_eq!(derived_cursor(&["a"]).len(), DERIVED_CURSOR_CHARS);
    }

    #[test]
    fn a_limit_out_of_range_is_refused() {
        assert!(page_request(Some(0), None).is_err());
        assert!(page_request(Some(MAX_PAGE_ROWS + 1), None).is_err());
        assert!(page_request(None, Some("x".repeat(65))).is_err());
    }
}
