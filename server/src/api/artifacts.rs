//! `PUT` and `GET /artifacts/{hash}`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue,
};
use axum::response::{IntoResponse, Response};
use nightshift_protocol::artifact::{ArtifactHash, MAX_ARTIFACT_BYTES};

use crate::app::App;
use crate::error::ApiFailure;
use crate::extract::{RawBody, TextPath};

/// Stores a blob under its hash, which is checked.
pub(crate) async fn put(
    State(app): State<Arc<App>>,
    TextPath(text): TextPath,
    RawBody(bytes): RawBody,
) -> Result<StatusCode, ApiFailure> {
    let hash: ArtifactHash =
        text.parse().map_err(|error| ApiFailure::bad("artifact.invalid_hash", format!("{error}")))?;
    if bytes.len() > MAX_ARTIFACT_BYTES {
        return Err(too_large());
    }
    let _transfer = app.transfers.acquire().await.map_err(|_| too_large())?;
    let hashed = bytes.clone();
    let actual = tokio::task::spawn_blocking(move || ArtifactHash::of(&hashed))
        .await
        .map_err(|error| ApiFailure::internal("internal.panicked", error.to_string()))?;
    if actual != hash {
        return Err(ApiFailure::bad(
            "artifact.hash_mismatch",
            format!("the bytes have the hash {actual}, not the one in the address"),
        ));
    }
    let result = app.store.put_artifact(&hash, &bytes).await;
    app.trouble.note_error(&result);
    result?;
    Ok(StatusCode::NO_CONTENT)
}

/// A blob. It may hold anything, so a browser must neither interpret nor run it.
pub(crate) async fn get(State(app): State<Arc<App>>, TextPath(text): TextPath) -> Result<Response, ApiFailure> {
    let hash: ArtifactHash =
        text.parse().map_err(|error| ApiFailure::not_found("artifact.not_found", format!("{error}")))?;
    let bytes = app.store.get_artifact(&hash).await?;
    let headers: [(HeaderName, HeaderValue); 4] = [
        (CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
        (CONTENT_DISPOSITION, HeaderValue::from_static("attachment")),
        (CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'; sandbox")),
        (CACHE_CONTROL, HeaderValue::from_static("private, max-age=31536000, immutable")),
    ];
    Ok((headers, bytes).into_response())
}

fn too_large() -> ApiFailure {
    ApiFailure::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "artifact.too_large",
        format!("an artifact may have at most {MAX_ARTIFACT_BYTES} bytes"),
    )
}
