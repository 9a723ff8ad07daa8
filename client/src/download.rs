//! Bytes that come piece by piece, so that nobody has to hold them all.

use bytes::Bytes;
use reqwest::StatusCode;
use reqwest::header::{CONTENT_LENGTH, CONTENT_RANGE, HeaderMap};

use crate::error::ClientError;
use crate::transport::Answer;

/// Bytes on their way.
pub struct Download {
    answer: Answer,
    begins_at: u64,
    size_bytes: Option<u64>,
}

impl std::fmt::Debug for Download {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Download")
            .field("begins_at", &self.begins_at)
            .field("size_bytes", &self.size_bytes)
            .finish_non_exhaustive()
    }
}

impl Download {
    pub(crate) fn new(answer: Answer) -> Self {
        let (begins_at, size_bytes) = match answer.status {
            StatusCode::PARTIAL_CONTENT => content_range(&answer.headers),
            _ => (0, number(&answer.headers, CONTENT_LENGTH.as_str())),
        };
        Self { answer, begins_at, size_bytes }
    }

    /// Which byte of the whole comes first. A server that cannot begin in the middle begins at 0, whatever was asked.
    #[must_use]
    pub fn begins_at(&self) -> u64 {
        self.begins_at
    }

    /// Size of the whole, when the server says it.
    #[must_use]
    pub fn size_bytes(&self) -> Option<u64> {
        self.size_bytes
    }

    /// The next bytes; none at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        self.answer.chunk().await
    }
}

/// First byte and size of the whole, of `bytes 5-9/10`.
fn content_range(headers: &HeaderMap) -> (u64, Option<u64>) {
    let text = headers.get(CONTENT_RANGE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let range = text.strip_prefix("bytes ").and_then(|range| {
        let (bytes, size) = range.split_once('/')?;
        let (first, _) = bytes.split_once('-')?;
        Some((first.parse().ok()?, size.parse().ok()))
    });
    range.unwrap_or((0, None))
}

pub(crate) fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}
