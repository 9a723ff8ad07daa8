//! `PUT /artifacts/{hash}` for a whole blob, `PATCH` for one part after the other. Neither holds more than a part in
//! memory, and both go on where an earlier upload ended.

use std::sync::Arc;

use axum::Json;
use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::State;
use axum::http::header::CONTENT_LENGTH;
use axum::http::{HeaderMap, Response, StatusCode};
use axum::response::IntoResponse;
use futures::StreamExt;
use nightshift_engine::store::{ArtifactProgress, StoreError};
use nightshift_protocol::api::{MAX_UPLOAD_PART_BYTES, UPLOAD_OFFSET_HEADER, UPLOAD_SIZE_HEADER, UploadProgress};
use nightshift_protocol::artifact::{ArtifactHash, MAX_ARTIFACT_BYTES};
use serde_json::json;

use crate::api::artifacts::with_progress;
use crate::app::App;
use crate::error::ApiFailure;
use crate::extract::TextPath;

/// How often a part is appended anew because somebody else uploads the same blob at the same time.
const MAX_APPENDS: u32 = 8;

/// Stores a blob under its hash, which is checked.
pub(crate) async fn put(
    State(app): State<Arc<App>>,
    TextPath(text): TextPath,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, ApiFailure> {
    let hash = hash_of(&text)?;
    // A request without a body may leave the header out.
    let said = number(&headers, CONTENT_LENGTH.as_str())?.or_else(|| body.size_hint().exact());
    let size = said.ok_or_else(|| {
        ApiFailure::new(
            StatusCode::LENGTH_REQUIRED,
            "artifact.no_length",
            "an artifact that is sent as a whole needs the header `content-length`; else send it in parts with PATCH",
        )
    })?;
    check_size(size)?;
    let _transfer = transfer(&app).await?;
    let mut upload = Upload::begin(&app, hash, size).await?;
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| ApiFailure::bad("request.incomplete", "the body did not arrive as a whole"))?;
        upload.take(&chunk).await?;
    }
    upload.finish().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Appends a part at the offset that the header says. A wrong offset is answered with the right one.
pub(crate) async fn append(
    State(app): State<Arc<App>>,
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
    check_size(size)?;
    if number(&headers, CONTENT_LENGTH.as_str())?.is_some_and(|said| usize::try_from(said).map_or(true, is_too_large)) {
        return Err(part_too_large());
    }
    let _transfer = transfer(&app).await?;
    let bytes = read_part(body).await?;
    match append_part(&app, &hash, size, offset, &bytes).await {
        Ok(progress) => Ok(answer(StatusCode::OK, progress, Json(shown(progress)).into_response())),
        Err(StoreError::Refused { code: WRONG_OFFSET, message }) => {
            let nothing = ArtifactProgress { size_bytes: size, stored_bytes: 0, complete: false };
            let progress = app.store.artifact_progress(&hash).await?.unwrap_or(nothing);
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

/// Reads a part, never more than may be one.
async fn read_part(body: Body) -> Result<Vec<u8>, ApiFailure> {
    let mut part = Vec::new();
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| ApiFailure::bad("request.incomplete", "the body did not arrive as a whole"))?;
        if is_too_large(part.len() + chunk.len()) {
            return Err(part_too_large());
        }
        part.extend_from_slice(&chunk);
    }
    Ok(part)
}

/// Code of the store for a part that does not follow what is there.
const WRONG_OFFSET: &str = "artifact.wrong_offset";
/// Code of the store for bytes that do not have the hash.
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

/// A whole blob on its way into the store, part by part.
struct Upload<'a> {
    app: &'a App,
    hash: ArtifactHash,
    size: u64,
    /// What was received and is not in the store yet, unless somebody else put it there.
    part: Vec<u8>,
    /// Where the part begins.
    offset: u64,
    /// What the store had when it was asked last.
    stored: u64,
    hasher: blake3::Hasher,
}

impl<'a> Upload<'a> {
    async fn begin(app: &'a App, hash: ArtifactHash, size: u64) -> Result<Self, ApiFailure> {
        let mut upload =
            Self { app, hash, size, part: Vec::new(), offset: 0, stored: 0, hasher: blake3::Hasher::new() };
        upload.look().await.map_err(failed)?;
        Ok(upload)
    }

    /// Asks the store how far the blob is.
    async fn look(&mut self) -> Result<(), StoreError> {
        let progress = self.app.store.renew_artifact(&self.hash, self.app.clock.now()).await?;
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
            // The last part is kept back until the hash is known.
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
                // The store forgets all parts of what does not have the hash.
                self.flush().await?;
            }
            return Err(wrong_hash(&actual));
        }
        if self.size == 0 || (self.offset == 0 && self.stored == 0) {
            let stored = self.app.store.put_artifact(&self.hash, &self.part, self.app.clock.now()).await;
            self.app.trouble.note_error(&stored);
            return stored.map_err(failed);
        }
        self.flush().await
    }

    fn end(&self) -> u64 {
        self.offset + u64::try_from(self.part.len()).unwrap_or(u64::MAX)
    }

    /// Appends what of the part is not in the store yet.
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
                    "somebody else uploaded other bytes under this hash meanwhile: upload it again",
                ));
            }
            match append_part(self.app, &self.hash, self.size, self.stored, new).await {
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
    app: &App,
    hash: &ArtifactHash,
    size: u64,
    offset: u64,
    bytes: &[u8],
) -> Result<ArtifactProgress, StoreError> {
    let appended = app.store.append_artifact(hash, size, offset, bytes, app.clock.now()).await;
    app.trouble.note_error(&appended);
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

fn check_size(size: u64) -> Result<(), ApiFailure> {
    if size > u64::try_from(MAX_ARTIFACT_BYTES).unwrap_or(u64::MAX) {
        return Err(ApiFailure::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "artifact.too_large",
            format!("an artifact may have at most {MAX_ARTIFACT_BYTES} bytes"),
        ));
    }
    Ok(())
}

async fn transfer(app: &App) -> Result<tokio::sync::SemaphorePermit<'_>, ApiFailure> {
    app.transfers.acquire().await.map_err(|error| ApiFailure::internal("internal.closed", error.to_string()))
}

fn failed(error: StoreError) -> ApiFailure {
    match error {
        StoreError::Refused { code: WRONG_HASH, message } => ApiFailure::bad(HASH_MISMATCH, message),
        error => error.into(),
    }
}

/// Code of the API for bytes that do not have the hash.
const HASH_MISMATCH: &str = "artifact.hash_mismatch";

fn wrong_hash(actual: &str) -> ApiFailure {
    ApiFailure::bad(HASH_MISMATCH, format!("the bytes have the hash {actual}, not the one in the address"))
}
