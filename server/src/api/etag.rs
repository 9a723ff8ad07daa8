//! Versions of answers: the headers `ETag` and `If-None-Match` (RFC 9110).

use axum::Json;
use axum::http::header::{CACHE_CONTROL, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::error::ApiFailure;

/// Length of the digest in a version, in hexadecimal digits.
const DIGEST_CHARS: usize = 32;

/// The version of an answer. It is weak: answers of one version say the same, and their bytes may differ.
pub(crate) struct Version(String);

impl Version {
    /// Returns the version that follows from these facts. They must determine the answer; equal facts give equal
    /// versions on every server of one release.
    pub(crate) fn of(facts: &impl Serialize) -> Result<Self, ApiFailure> {
        let facts = serde_json::to_vec(&(env!("CARGO_PKG_VERSION"), facts))
            .map_err(|error| ApiFailure::internal("internal.json", error.to_string()))?;
        let digest = blake3::hash(&facts).to_hex();
        Ok(Self(format!("W/\"{}\"", &digest[..DIGEST_CHARS])))
    }

    /// Returns the answer 304 if the caller has this version already.
    pub(crate) fn unchanged(&self, headers: &HeaderMap) -> Option<Response> {
        self.is_named_by(headers).then(|| self.on(StatusCode::NOT_MODIFIED))
    }

    /// Returns the answer with this body and version.
    pub(crate) fn answer<T: Serialize>(&self, body: T) -> Response {
        self.on(Json(body))
    }

    fn on(&self, answer: impl IntoResponse) -> Response {
        let mut response = answer.into_response();
        let headers = response.headers_mut();
        headers.extend(HeaderValue::from_str(&self.0).ok().map(|version| (ETAG, version)));
        // The caller may keep it, and has to ask whether it still holds.
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
        response
    }

    /// Compares weakly, as the standard demands for this header.
    fn is_named_by(&self, headers: &HeaderMap) -> bool {
        let opaque = |version: &str| version.trim().trim_start_matches("W/").to_owned();
        let mut named = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
        named.any(|list| list.split(',').any(|one| one.trim() == "*" || opaque(one) == opaque(&self.0)))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn with(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(IF_NONE_MATCH, HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn a_version_is_found_in_every_form_of_the_header() {
        let version = Version::of(&(1, "a")).unwrap();
        let strong = version.0.trim_start_matches("W/");
        for known in [version.0.clone(), strong.to_owned(), format!("\"other\", {}", version.0), "*".to_owned()] {
            assert!(version.unchanged(&with(&known)).is_some(), "{known}");
        }
        for other in ["\"other\"", "", "W/"] {
            assert!(version.unchanged(&with(other)).is_none(), "{other}");
        }
        assert!(version.unchanged(&HeaderMap::new()).is_none());
    }

    #[test]
    fn other_facts_are_another_version() {
        assert_ne!(Version::of(&1).unwrap().0, Version::of(&2).unwrap().0);
        assert_eq!(Version::of(&1).unwrap().0, Version::of(&1).unwrap().0);
    }
}
