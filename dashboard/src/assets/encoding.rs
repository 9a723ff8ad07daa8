//! Compressing answers for who accepts it.

use std::io::Write as _;

use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, VARY};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;

/// Pages below this size are sent as they are: one packet carries them anyway.
const MIN_PACKED_BYTES: usize = 1_400;
/// Pages up to this size are packed as well as it goes within a few milliseconds.
const MAX_WELL_PACKED_BYTES: usize = 256 << 10;

/// Encodings that a browser accepts. On plain HTTP from another machine that is gzip alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Encodings {
    pub(crate) brotli: bool,
    pub(crate) gzip: bool,
}

impl Encodings {
    /// Reads an `Accept-Encoding` header.
    pub(crate) fn accepted(header: &str) -> Self {
        let takes = |name: &str| {
            header.split(',').any(|part| {
                let mut parts = part.split(';').map(str::trim);
                let is_named = parts.next().is_some_and(|named| named.eq_ignore_ascii_case(name));
                is_named && !parts.any(|weight| matches!(weight, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
            })
        };
        Self { brotli: takes("br"), gzip: takes("gzip") }
    }

    /// An answer that is a page.
    pub(crate) fn html(self, page: String) -> Response {
        let packed = if self.gzip && page.len() >= MIN_PACKED_BYTES { pack_page(page.as_bytes()) } else { None };
        let is_packed = packed.is_some();
        let mut response = packed.unwrap_or_else(|| page.into_bytes()).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        // What a page shows may be over in a second, and may be for its visitor alone.
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(VARY, HeaderValue::from_static("accept-encoding, cookie, authorization"));
        if is_packed {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        response
    }
}

/// For what is packed once and sent often.
pub(crate) fn gzip(content: &[u8]) -> Option<Vec<u8>> {
    pack(content, Compression::best())
}

/// For what is sent once: a page of usual size is packed well, because then it is there sooner; a huge one in little time.
fn pack_page(content: &[u8]) -> Option<Vec<u8>> {
    let level = if content.len() <= MAX_WELL_PACKED_BYTES { Compression::default() } else { Compression::fast() };
    pack(content, level)
}

fn pack(content: &[u8], level: Compression) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), level);
    encoder.write_all(content).ok()?;
    encoder.finish().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_read_with_its_weights() {
        let read = |header| {
            let found = Encodings::accepted(header);
            (found.brotli, found.gzip)
        };
        assert_eq!(read("gzip, deflate, br, zstd"), (true, true));
        assert_eq!(read("gzip;q=1.0, br;q=0"), (false, true));
        assert_eq!(read("GZIP"), (false, true));
        assert_eq!(read(""), (false, false));
        assert_eq!(read("brotli, xgzip"), (false, false));
    }

    #[test]
    fn a_page_is_packed_only_for_who_accepts_it() {
        let page = "x".repeat(5_000);
        let packed = Encodings { brotli: true, gzip: true }.html(page.clone());
        assert_eq!(packed.headers()[CONTENT_ENCODING], "gzip");
        let plain = Encodings { brotli: true, gzip: false }.html(page);
        assert!(!plain.headers().contains_key(CONTENT_ENCODING));
    }
}
