//! `GET` and `HEAD /artifacts/{hash}`: blobs, complete or partial, with at most one part in memory.

use std::ops::Range;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE, RANGE,
};
use axum::http::response::Builder;
use axum::http::{HeaderMap, Response, StatusCode};
use futures::{StreamExt, stream};
use nightshift_engine::store::{ArtifactProgress, StoreError};
use nightshift_protocol::api::{MAX_UPLOAD_PART_BYTES, UPLOAD_OFFSET_HEADER, UPLOAD_SIZE_HEADER};
use nightshift_protocol::artifact::ArtifactHash;

use crate::error::ApiFailure;
use crate::extract::TextPath;
use crate::shared::Shared;

/// Returns the upload progress of an artifact: `200` and its size if it is complete, `204` and the next offset if a
/// part is stored.
pub(crate) async fn head(
    State(shared): State<Arc<Shared>>,
    TextPath(text): TextPath,
) -> Result<Response<Body>, ApiFailure> {
    let hash = hash_of(&text)?;
    // A caller that finds the artifact does not upload it, and references it next.
    let progress =
        shared.store.artifacts.renew_artifact(&hash, shared.clock.now()).await?.ok_or_else(|| missing(&hash))?;
    let answer = if progress.complete {
        blob(StatusCode::OK).header(CONTENT_LENGTH, progress.size_bytes)
    } else {
        Response::builder().status(StatusCode::NO_CONTENT)
    };
    finish(with_progress(answer, progress), Body::empty())
}

/// Returns a blob, or one requested range of it. Its content is untrusted, so a browser must not interpret or execute
/// it.
pub(crate) async fn get(
    State(shared): State<Arc<Shared>>,
    TextPath(text): TextPath,
    headers: HeaderMap,
) -> Result<Response<Body>, ApiFailure> {
    let hash = hash_of(&text)?;
    let size = match shared.store.artifacts.artifact_progress(&hash).await? {
        Some(progress) if progress.complete => progress.size_bytes,
        _ => return Err(missing(&hash)),
    };
    let asked = headers.get(RANGE).and_then(|value| value.to_str().ok());
    let (answer, range) = match asked.map_or(RequestedPart::Whole, |text| range_of(text, size)) {
        RequestedPart::Whole => (blob(StatusCode::OK), 0..size),
        RequestedPart::Part(range) => {
            let shown = format!("bytes {}-{}/{size}", range.start, range.end - 1);
            (blob(StatusCode::PARTIAL_CONTENT).header(CONTENT_RANGE, shown), range)
        }
        RequestedPart::Nothing => {
            let answer = Response::builder()
                .status(StatusCode::RANGE_NOT_SATISFIABLE)
                .header(CONTENT_RANGE, format!("bytes */{size}"));
            return finish(answer, Body::empty());
        }
    };
    let answer = answer.header(CONTENT_LENGTH, range.end - range.start);
    finish(answer, read(shared, hash, range).await?)
}

/// Parses the hash in the address. Another text is a missing artifact.
fn hash_of(text: &str) -> Result<ArtifactHash, ApiFailure> {
    text.parse().map_err(|error| ApiFailure::not_found("artifact.not_found", format!("{error}")))
}

fn missing(hash: &ArtifactHash) -> ApiFailure {
    StoreError::NotFound { noun: "artifact", id: hash.to_string() }.into()
}

fn blob(status: StatusCode) -> Builder {
    Response::builder()
        .status(status)
        .header(CONTENT_TYPE, "application/octet-stream")
        .header(CONTENT_DISPOSITION, "attachment")
        .header(CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'; sandbox")
        .header(CACHE_CONTROL, "private, max-age=31536000, immutable")
        .header(ACCEPT_RANGES, "bytes")
}

/// Adds the headers of the upload progress.
pub(super) fn with_progress(answer: Builder, progress: ArtifactProgress) -> Builder {
    answer.header(UPLOAD_OFFSET_HEADER, progress.stored_bytes).header(UPLOAD_SIZE_HEADER, progress.size_bytes)
}

pub(super) fn finish(answer: Builder, body: Body) -> Result<Response<Body>, ApiFailure> {
    answer.body(body).map_err(|error| ApiFailure::internal("internal.unwritable", error.to_string()))
}

/// Streams the bytes in parts. The first part is read before the answer begins, so that its error can still be
/// reported.
async fn read(shared: Arc<Shared>, hash: ArtifactHash, range: Range<u64>) -> Result<Body, ApiFailure> {
    if range.is_empty() {
        return Ok(Body::empty());
    }
    let first = part(&shared, &hash, &range).await?;
    let next = range.start + u64::try_from(first.len()).unwrap_or(u64::MAX);
    if next >= range.end {
        return Ok(Body::from(first));
    }
    let rest = stream::try_unfold((shared, hash, next..range.end), async |(shared, hash, range)| {
        if range.is_empty() {
            return Ok::<_, StoreError>(None);
        }
        let bytes = part(&shared, &hash, &range).await?;
        let next = range.start + u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        Ok(Some((bytes, (shared, hash, next..range.end))))
    });
    Ok(Body::from_stream(stream::iter([Ok(first)]).chain(rest)))
}

async fn part(shared: &Shared, hash: &ArtifactHash, range: &Range<u64>) -> Result<Bytes, StoreError> {
    let length = (range.end - range.start).min(u64::try_from(MAX_UPLOAD_PART_BYTES).unwrap_or(u64::MAX));
    let bytes = shared.store.artifacts.read_artifact(hash, range.start, length).await?;
    if bytes.is_empty() {
        // Deleted in the meantime: abort the answer so that the client notices.
        return Err(StoreError::NotFound { noun: "artifact", id: hash.to_string() });
    }
    Ok(Bytes::from(bytes))
}

/// The requested part of a blob.
#[derive(Debug, PartialEq, Eq)]
enum RequestedPart {
    /// The whole blob; also if the header is unreadable or names several ranges.
    Whole,
    /// This range, which is not empty.
    Part(Range<u64>),
    /// A range outside of the blob.
    Nothing,
}

fn range_of(text: &str, size: u64) -> RequestedPart {
    let parsed = text.strip_prefix("bytes=").and_then(|range| range.split_once('-'));
    let Some((first, last)) = parsed else { return RequestedPart::Whole };
    let (first, last) = (first.trim(), last.trim());
    let range = if first.is_empty() {
        let Ok(length) = last.parse::<u64>() else { return RequestedPart::Whole };
        size.saturating_sub(length)..size
    } else {
        let Ok(first) = first.parse::<u64>() else { return RequestedPart::Whole };
        if last.is_empty() {
            first..size
        } else {
            match last.parse::<u64>() {
                Ok(last) if last >= first => first..size.min(last.saturating_add(1)),
                _ => return RequestedPart::Whole,
            }
        }
    };
    if range.start < range.end { RequestedPart::Part(range) } else { RequestedPart::Nothing }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_of_bytes_is_understood() {
        let cases = [
            ("bytes=0-3", RequestedPart::Part(0..4)),
            ("bytes=2-", RequestedPart::Part(2..10)),
            ("bytes=-4", RequestedPart::Part(6..10)),
            ("bytes=-40", RequestedPart::Part(0..10)),
            ("bytes=8-99", RequestedPart::Part(8..10)),
            ("bytes=10-", RequestedPart::Nothing),
            ("bytes=-0", RequestedPart::Nothing),
            ("bytes=3-2", RequestedPart::Whole),
            ("bytes=0-1,3-4", RequestedPart::Whole),
            ("lines=0-3", RequestedPart::Whole),
            ("bytes=x-", RequestedPart::Whole),
        ];
        for (text, expected) in cases {
            assert_eq!(range_of(text, 10), expected, "{text}");
        }
        assert_eq!(range_of("bytes=0-0", 0), RequestedPart::Nothing);
    }
}
