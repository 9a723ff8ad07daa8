//! Idempotency keys: the same key with the same request is done once.

use axum::http::HeaderMap;
use nightshift_protocol::api::IDEMPOTENCY_HEADER;
use serde::Serialize;

use crate::error::ApiFailure;

/// Longest idempotency key.
const MAX_IDEMPOTENCY_KEY_CHARS: usize = 128;

/// The key that the caller sent.
pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, ApiFailure> {
    let Some(value) = headers.get(IDEMPOTENCY_HEADER) else { return Ok(None) };
    match value.to_str() {
        Ok(key) if (1..=MAX_IDEMPOTENCY_KEY_CHARS).contains(&key.len()) => Ok(Some(key.to_owned())),
        _ => Err(ApiFailure::bad(
            "request.invalid_idempotency_key",
            format!("the idempotency key must have 1 to {MAX_IDEMPOTENCY_KEY_CHARS} printable ASCII characters"),
        )),
    }
}

/// The digest of a request: of its canonical text, in which neither spaces nor the order of fields differ.
pub(crate) fn digest(request: &impl Serialize) -> Result<String, ApiFailure> {
    let canonical = serde_json::to_vec(request)
        .map_err(|error| ApiFailure::bad("request.invalid", format!("the request cannot be stored: {error}")))?;
    Ok(blake3::hash(&canonical).to_hex().to_string())
}
