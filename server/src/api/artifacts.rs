//! `GET` and `HEAD /artifacts/{hash}`: blobs, as a whole or in part, never more than one part of them in memory.

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

use crate::app::App;
use crate::error::ApiFailure;
use crate::extract::TextPath;

/// How far an artifact is: `200` and its size when it is complete, `204` and where to go on when a part of it is there.
pub(crate) async fn head(State(app): State<Arc<App>>, TextPath(text): TextPath) -> Result<Response<Body>, ApiFailure> {
    let hash = hash_of(&text)?;
    // Who finds it here does not upload it, and names it next.
    let progress = app.store.renew_artifact(&hash, app.clock.now()).await?.ok_or_else(|| missing(&hash))?;
    let answer = if progress.complete {
        blob(StatusCode::OK).header(CONTENT_LENGTH, progress.size_bytes)
    } else {
        Response::builder().status(StatusCode::NO_CONTENT)
    };
    finish(with_progress(answer, progress), Body::empty())
}

/// A blob, or the one range of it that was asked for. It may hold anything, so a browser must neither interpret nor run
/// it.
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    TextPath(text): TextPath,
    headers: HeaderMap,
) -> Result<Response<Body>, ApiFailure> {
    let hash = hash_of(&text)?;
    let size = match app.store.artifact_progress(&hash).await? {
        Some(progress) if progress.complete => progress.size_bytes,
        _ => return Err(missing(&hash)),
    };
    let asked = headers.get(RANGE).and_then(|value| value.to_str().ok());
    let (answer, range) = match asked.map_or(Asked::Whole, |text| range_of(text, size)) {
        Asked::Whole => (blob(StatusCode::OK), 0..size),
        Asked::Part(range) => {
            let shown = format!("bytes {}-{}/{size}", range.start, range.end - 1);
            (blob(StatusCode::PARTIAL_CONTENT).header(CONTENT_RANGE, shown), range)
        }
        Asked::Nothing => {
            let answer = Response::builder()
                .status(StatusCode::RANGE_NOT_SATISFIABLE)
                .header(CONTENT_RANGE, format!("bytes */{size}"));
            return finish(answer, Body::empty());
        }
    };
    let answer = answer.header(CONTENT_LENGTH, range.end - range.start);
    finish(answer, read(app, hash, range).await?)
}

/// The hash in the address: a text that is none names nothing.
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

/// Says how far an upload is.
pub(super) fn with_progress(answer: Builder, progress: ArtifactProgress) -> Builder {
    answer.header(UPLOAD_OFFSET_HEADER, progress.stored_bytes).header(UPLOAD_SIZE_HEADER, progress.size_bytes)
}

pub(super) fn finish(answer: Builder, body: Body) -> Result<Response<Body>, ApiFailure> {
    answer.body(body).map_err(|error| ApiFailure::internal("internal.unwritable", error.to_string()))
}

/// The bytes, part after part. The first one is read before the answer begins, so that its error can still be told.
async fn read(app: Arc<App>, hash: ArtifactHash, range: Range<u64>) -> Result<Body, ApiFailure> {
    if range.is_empty() {
        return Ok(Body::empty());
    }
    let first = part(&app, &hash, &range).await?;
    let next = range.start + u64::try_from(first.len()).unwrap_or(u64::MAX);
    if next >= range.end {
        return Ok(Body::from(first));
    }
    let rest = stream::try_unfold((app, hash, next..range.end), async |(app, hash, range)| {
        if range.is_empty() {
            return Ok::<_, StoreError>(None);
        }
        let bytes = part(&app, &hash, &range).await?;
        let next = range.start + u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        Ok(Some((bytes, (app, hash, next..range.end))))
    });
    Ok(Body::from_stream(stream::iter([Ok(first)]).chain(rest)))
}

async fn part(app: &App, hash: &ArtifactHash, range: &Range<u64>) -> Result<Bytes, StoreError> {
    let length = (range.end - range.start).min(u64::try_from(MAX_UPLOAD_PART_BYTES).unwrap_or(u64::MAX));
    let bytes = app.store.read_artifact(hash, range.start, length).await?;
    if bytes.is_empty() {
        // Deleted meanwhile: an answer that is cut off says so, one that never ends would not.
        return Err(StoreError::NotFound { noun: "artifact", id: hash.to_string() });
    }
    Ok(Bytes::from(bytes))
}

/// What of a blob was asked for.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    /// All of it; also when the header cannot be read, or names several ranges.
    Whole,
    /// This range, which is not empty.
    Part(Range<u64>),
    /// A range that the blob does not have.
    Nothing,
}

fn range_of(text: &str, size: u64) -> Asked {
    let parsed = text.strip_prefix("bytes=").and_then(|range| range.split_once('-'));
    let Some((first, last)) = parsed else { return Asked::Whole };
    let (first, last) = (first.trim(), last.trim());
    let range = if first.is_empty() {
        let Ok(length) = last.parse::<u64>() else { return Asked::Whole };
        size.saturating_sub(length)..size
    } else {
        let Ok(first) = first.parse::<u64>() else { return Asked::Whole };
        if last.is_empty() {
            first..size
        } else {
            match last.parse::<u64>() {
                Ok(last) if last >= first => first..size.min(last.saturating_add(1)),
                _ => return Asked::Whole,
            }
        }
    };
    if range.start < range.end { Asked::Part(range) } else { Asked::Nothing }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_of_bytes_is_understood() {
        let cases = [
            ("bytes=0-3", Asked::Part(0..4)),
            ("bytes=2-", Asked::Part(2..10)),
            ("bytes=-4", Asked::Part(6..10)),
            ("bytes=-40", Asked::Part(0..10)),
            ("bytes=8-99", Asked::Part(8..10)),
            ("bytes=10-", Asked::Nothing),
            ("bytes=-0", Asked::Nothing),
            ("bytes=3-2", Asked::Whole),
            ("bytes=0-1,3-4", Asked::Whole),
            ("lines=0-3", Asked::Whole),
            ("bytes=x-", Asked::Whole),
        ];
        for (text, expected) in cases {
            assert_eq!(range_of(text, 10), expected, "{text}");
        }
        assert_eq!(range_of("bytes=0-0", 0), Asked::Nothing);
    }
}
