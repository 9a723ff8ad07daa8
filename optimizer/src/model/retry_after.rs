//! The `Retry-After` header: seconds, or a date.

use reqwest::header::{DATE, HeaderMap, HeaderValue, RETRY_AFTER};

/// Longest wait that a server is believed, in milliseconds: six hours.
const MAX_RETRY_AFTER_MS: u64 = 6 * 3_600 * 1_000;

/// How long the server wants us to wait, in milliseconds.
///
/// A date is compared with the same reply's `Date` header, so that neither our clock nor its difference to the server's
/// plays a part.
pub(super) fn retry_after_ms(headers: &HeaderMap) -> Option<u64> {
    // Some services give the finer value beside the standard one.
    if let Some(exact) = text(headers.get("retry-after-ms")).and_then(|text| text.parse::<u64>().ok()) {
        return Some(exact.min(MAX_RETRY_AFTER_MS));
    }
    let wanted = text(headers.get(RETRY_AFTER))?;
    if let Ok(seconds) = wanted.parse::<u64>() {
        return Some(seconds.saturating_mul(1_000).min(MAX_RETRY_AFTER_MS));
    }
    let until = httpdate::parse_http_date(wanted).ok()?;
    let now = httpdate::parse_http_date(text(headers.get(DATE))?).ok()?;
    let wait = until.duration_since(now).unwrap_or_default();
    Some(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).min(MAX_RETRY_AFTER_MS))
}

fn text(value: Option<&HeaderValue>) -> Option<&str> {
    value.and_then(|value| value.to_str().ok()).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| ((*name).parse(), HeaderValue::from_static(value))).fold(
            HeaderMap::new(),
            |mut map, (name, value)| {
                let Ok(name) = name else { panic!("no header name") };
                let name: reqwest::header::HeaderName = name;
                map.insert(name, value);
                map
            },
        )
    }

    #[test]
    fn seconds_and_dates_are_understood() {
        assert_eq!(retry_after_ms(&headers(&[("retry-after", "7")])), Some(7_000));
        let dated = [("date", "Wed, 21 Oct 2015 07:28:00 GMT"), ("retry-after", "Wed, 21 Oct 2015 07:29:30 GMT")];
        assert_eq!(retry_after_ms(&headers(&dated)), Some(90_000));
    }

    #[test]
    fn a_date_in_the_past_means_now() {
        let dated = [("date", "Wed, 21 Oct 2015 07:28:00 GMT"), ("retry-after", "Wed, 21 Oct 2015 07:00:00 GMT")];
        assert_eq!(retry_after_ms(&headers(&dated)), Some(0));
    }

    #[test]
    fn an_absurd_wait_is_cut() {
        assert_eq!(retry_after_ms(&headers(&[("retry-after", "99999999999999999")])), Some(MAX_RETRY_AFTER_MS));
    }

    #[test]
    fn what_cannot_be_read_is_no_wish() {
        assert_eq!(retry_after_ms(&headers(&[("retry-after", "soon")])), None);
        assert_eq!(retry_after_ms(&headers(&[("retry-after", "-3")])), None);
        assert_eq!(retry_after_ms(&headers(&[])), None);
    }
}
