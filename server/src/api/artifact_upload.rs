//! `PUT /artifacts/{hash}` for a whole blob, `PATCH` for parts. Neither holds more than one part in memory, and both
//! resume an earlier upload.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, BodyDataStream, Bytes, HttpBody as _};
use axum::extract::State;
use axum::http::header::CONTENT_LENGTH;
use axum::http::{HeaderMap, Response, StatusCode};
use axum::response::IntoResponse;
use futures::StreamExt;
use nightshift_engine::store::{ArtifactProgress, StoreError};
use nightshift_protocol::api::{MAX_UPLOAD_PART_BYTES, UPLOAD_OFFSET_HEADER, UPLOAD_SIZE_HEADER, UploadProgress};
use nightshift_protocol::artifact::ArtifactHash;
use serde_json::json;

use crate::api::artifacts::with_progress;
use crate::call_limits::CallLimits;
use crate::error::ApiFailure;
use crate::extract::TextPath;
use crate::shared::Shared;

/// Maximum time without a byte of an upload, because each upload holds one of a few places.
const STALLED_AFTER: Duration = Duration::from_secs(30);
/// Maximum number of tries to append a part during a concurrent upload of the same blob.
const MAX_APPENDS: u32 = 8;

/// Stores a blob under its hash, which is checked.
pub(crate) async fn put(
    State(shared): State<Arc<Shared>>,
    State(limits): State<Arc<CallLimits>>,
    TextPath(text): TextPath,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, ApiFailure> {
    let hash = hash_of(&text)?;
    // A request without a body may omit the header.
    let said = number(&headers, CONTENT_LENGTH.as_str())?.or_else(|| body.size_hint().exact());
    let size = said.ok_or_else(|| {
        ApiFailure::new(
            StatusCode::LENGTH_REQUIRED,
            "artifact.no_length",
            "a whole artifact needs the header `content-length`; without it, send the artifact in parts with PATCH",
        )
    })?;
    let _transfer = transfer(&limits).await?;
    let mut upload = Upload::begin(&shared, hash, size).await?;
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = next_chunk(&mut chunks).await? {
        upload.take(&chunk).await?;
    }
    upload.finish().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Appends a part at the offset in the header. The answer to a wrong offset contains the right one.
pub(crate) async fn append(
    State(shared): State<Arc<Shared>>,
    State(limits): State<Arc<CallLimits>>,
    TextPath(text): TextPath,
    headers: HeaderMap,
    body: Body,
) -> Result<Response<Body>, ApiFailure> {
    let hash = hash_of(&text)?;
    let needed = |name: &'static str| {
        ApiFailure::bad("request.invalid", format!("a part of an artifact needs the header `{name}` with a number"))
    };
    let size = number(&headers, UPLOAD_SIZE_HEADER)?.ok_or_else(|| needed(UPLOAD_SIZE_HEADER))?;
    let offset = number(&headers, UPLOAD_OFFSET_HEADER)?.ok_or_else(|| needed(UPLOAD_OFFSET_HEADER))?;
    if number(&headers, CONTENT_LENGTH.as_str())?.is_some_and(|said| usize::try_from(said).map_or(true, is_too_large)) {
        return Err(part_too_large());
    }
    let _transfer = transfer(&limits).await?;
    let bytes = read_part(body).await?;
    match append_part(&shared, &hash, size, offset, &bytes).await {
        Ok(progress) => Ok(answer(StatusCode::OK, progress, Json(shown(progress)).into_response())),
        Err(StoreError::Refused { code: WRONG_OFFSET, message }) => {
            let nothing = ArtifactProgress { size_bytes: size, stored_bytes: 0, complete: false };
            let progress = shared.store.artifacts.artifact_progress(&hash).await?.unwrap_or(nothing);
            let failure = ApiFailure::new(StatusCode::CONFLICT, WRONG_OFFSET, message)
                .with_details(json!({ "progress": shown(progress) }));
            Ok(answer(StatusCode::CONFLICT, progress, failure.into_response()))
        }
        Err(error) => Err(failed(error)),
    }
}

fn is_too_large(bytes: usize) -> bool {
    bytes > MAX_UPLOAD_PART_BYTES
}

fn part_too_large() -> ApiFailure {
    ApiFailure::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "artifact.part_too_large",
        format!("a part of an artifact may have at most {MAX_UPLOAD_PART_BYTES} bytes"),
    )
}

/// Reads a part, up to the maximum size.
async fn read_part(body: Body) -> Result<Vec<u8>, ApiFailure> {
    let mut part = Vec::new();
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = next_chunk(&mut chunks).await? {
        if is_too_large(part.len() + chunk.len()) {
            return Err(part_too_large());
        }
        part.extend_from_slice(&chunk);
    }
    Ok(part)
}

/// Returns the next bytes of a body; none at its end.
async fn next_chunk(chunks: &mut BodyDataStream) -> Result<Option<Bytes>, ApiFailure> {
    let chunk = tokio::time::timeout(STALLED_AFTER, chunks.next()).await.map_err(|_| {
        ApiFailure::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "server.timed_out",
            format!("no byte of the upload arrived for {} s: try again later", STALLED_AFTER.as_secs()),
        )
    })?;
    chunk.transpose().map_err(|_| ApiFailure::bad("request.incomplete", "the body arrived incompletely"))
}

/// Store error for a part at a wrong offset.
const WRONG_OFFSET: &str = "artifact.wrong_offset";
/// Store error for bytes that do not match the hash.
const WRONG_HASH: &str = "artifact.wrong_hash";

fn answer(status: StatusCode, progress: ArtifactProgress, mut response: Response<Body>) -> Response<Body> {
    *response.status_mut() = status;
    if let Ok(head) = with_progress(Response::builder(), progress).body(()) {
        response.headers_mut().extend(head.into_parts().0.headers);
    }
    response
}

fn shown(progress: ArtifactProgress) -> UploadProgress {
    UploadProgress { size_bytes: progress.size_bytes, stored_bytes: progress.stored_bytes, complete: progress.complete }
}

/// The upload of a whole blob, part by part.
struct Upload<'a> {
    shared: &'a Shared,
    hash: ArtifactHash,
    size: u64,
    /// Received bytes that are not stored yet, unless a concurrent upload stored them.
    part: Vec<u8>,
    /// Offset of `part`.
    offset: u64,
    /// Number of stored bytes at the last check.
    stored: u64,
    hasher: blake3::Hasher,
}

impl<'a> Upload<'a> {
    async fn begin(shared: &'a Shared, hash: ArtifactHash, size: u64) -> Result<Self, ApiFailure> {
        let mut upload =
            Self { shared, hash, size, part: Vec::new(), offset: 0, stored: 0, hasher: blake3::Hasher::new() };
        upload.look().await.map_err(failed)?;
        Ok(upload)
    }

    /// Reads the upload progress from the store.
    async fn look(&mut self) -> Result<(), StoreError> {
        let progress = self.shared.store.artifacts.renew_artifact(&self.hash, self.shared.clock.now()).await?;
        self.stored = progress.map_or(0, |progress| progress.stored_bytes);
        Ok(())
    }

    async fn take(&mut self, bytes: &Bytes) -> Result<(), ApiFailure> {
        self.hasher.update(bytes);
        let mut rest: &[u8] = bytes;
        while !rest.is_empty() {
            let room = MAX_UPLOAD_PART_BYTES - self.part.len();
            let (now, later) = rest.split_at(room.min(rest.len()));
            self.part.extend_from_slice(now);
            rest = later;
            // The last part is held back until the hash is known.
            if self.part.len() == MAX_UPLOAD_PART_BYTES && self.end() < self.size {
                self.flush().await?;
            }
        }
        Ok(())
    }

    async fn finish(mut self) -> Result<(), ApiFailure> {
        let actual = self.hasher.finalize().to_hex().to_string();
        if actual != self.hash.as_str() {
            if self.offset > 0 && self.stored == self.offset {
                // If the hash does not match, the store deletes all parts.
                self.flush().await?;
            }
            return Err(wrong_hash(&actual));
        }
        if self.size == 0 || (self.offset == 0 && self.stored == 0) {
            let stored =
                self.shared.store.artifacts.put_artifact(&self.hash, &self.part, self.shared.clock.now()).await;
            self.shared.store_health.note_error(&stored);
            return stored.map_err(failed);
        }
        self.flush().await
    }

    fn end(&self) -> u64 {
        self.offset + u64::try_from(self.part.len()).unwrap_or(u64::MAX)
    }

    /// Appends the bytes of the part that are not stored yet.
    async fn flush(&mut self) -> Result<(), ApiFailure> {
        let mut appends = 0;
        while self.stored < self.end() {
            appends += 1;
            let known = usize::try_from(self.stored.saturating_sub(self.offset)).unwrap_or(usize::MAX);
            let new = self.part.get(known..).unwrap_or_default();
            if self.stored < self.offset || appends > MAX_APPENDS {
                return Err(ApiFailure::new(
                    StatusCode::CONFLICT,
                    "artifact.upload_disturbed",
                    "a concurrent upload stored other bytes under this hash: upload it again",
                ));
            }
            match append_part(self.shared, &self.hash, self.size, self.stored, new).await {
                Ok(progress) => self.stored = progress.stored_bytes,
                Err(StoreError::Refused { code: WRONG_OFFSET, .. }) => self.look().await.map_err(failed)?,
                Err(error) => return Err(failed(error)),
            }
        }
        self.offset = self.end();
        self.part.clear();
        Ok(())
    }
}

async fn append_part(
    shared: &Shared,
    hash: &ArtifactHash,
    size: u64,
    offset: u64,
    bytes: &[u8],
) -> Result<ArtifactProgress, StoreError> {
    let appended = shared.store.artifacts.append_artifact(hash, size, offset, bytes, shared.clock.now()).await;
    shared.store_health.note_error(&appended);
    appended
}

fn hash_of(text: &str) -> Result<ArtifactHash, ApiFailure> {
    text.parse().map_err(|error| ApiFailure::bad("artifact.invalid_hash", format!("{error}")))
}

fn number(headers: &HeaderMap, name: &str) -> Result<Option<u64>, ApiFailure> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let number = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    number.map(Some).ok_or_else(|| ApiFailure::bad("request.invalid", format!("the header `{name}` must be a number")))
}

async fn transfer(limits: &CallLimits) -> Result<tokio::sync::SemaphorePermit<'_>, ApiFailure> {
    limits.transfers.acquire().await.map_err(|error| ApiFailure::internal("internal.closed", error.to_string()))
}

fn failed(error: StoreError) -> ApiFailure {
    match error {
        StoreError::Refused { code: WRONG_HASH, message } => ApiFailure::bad(HASH_MISMATCH, message),
        error => error.into(),
    }
}

/// API error for bytes that do not match the hash.
const HASH_MISMATCH: &str = "artifact.hash_mismatch";

fn wrong_hash(actual: &str) -> ApiFailure {
    ApiFailure::bad(HASH_MISMATCH, format!("the bytes have the hash {actual}, not the one in the address"))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use futures::stream;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_upload_that_stalls_gives_its_place_back() {
        let bytes = stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(b"the beginning"))]);
        let mut chunks = Body::from_stream(bytes.chain(stream::pending())).into_data_stream();
        assert_eq!(next_chunk(&mut chunks).await.unwrap().unwrap().as_ref(), b"the beginning");
        let stalled = next_chunk(&mut chunks).await.unwrap_err();
        assert_eq!(stalled.status(), StatusCode::SERVICE_UNAVAILABLE);
        let stalled = read_part(Body::from_stream(stream::pending::<std::io::Result<Bytes>>())).await;
        assert_eq!(stalled.unwrap_err().status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(read_part(Body::from("a part")).await.unwrap(), b"a part");
    }
}
