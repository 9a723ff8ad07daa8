//! Streamed bytes, for contents that do not have to fit into memory.

use bytes::Bytes;
use reqwest::StatusCode;
use reqwest::header::{CONTENT_LENGTH, CONTENT_RANGE, HeaderMap};

use crate::error::ClientError;
use crate::transport::Answer;

/// A running download.
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

    /// Returns the offset of the first byte. A server without range support begins at 0, regardless of the request.
    #[must_use]
    pub fn begins_at(&self) -> u64 {
        self.begins_at
    }

    /// Returns the total size, if the server states it.
    #[must_use]
    pub fn size_bytes(&self) -> Option<u64> {
        self.size_bytes
    }

    /// Returns the next bytes; none at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        self.answer.chunk().await
    }
}

/// Returns offset and total size of `bytes 5-9/10`.
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
