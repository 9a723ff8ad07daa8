//! Answers that are kept instead of shown.

use axum::http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};

/// JSON under that name, which is one of ours.
pub(crate) fn json(name: &str, bytes: Vec<u8>) -> Response {
    let headers = [
        (CONTENT_TYPE, "application/json".to_owned()),
        (CONTENT_DISPOSITION, format!("attachment; filename=\"{name}\"")),
        (CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'; sandbox".to_owned()),
        (CACHE_CONTROL, "private, no-cache".to_owned()),
    ];
    (headers, bytes).into_response()
}
