//! Refusals of archives and hand-overs.

use axum::http::StatusCode;
use nightshift_protocol::archive::ArchiveError;
use nightshift_protocol::handover::HandoverError;

use crate::error::ApiFailure;

/// Returns why a file is refused.
pub(crate) fn refused(error: &HandoverError) -> ApiFailure {
    let status = match error {
        HandoverError::Archive(ArchiveError::TooLarge(_)) => StatusCode::PAYLOAD_TOO_LARGE,
        _ => StatusCode::UNPROCESSABLE_ENTITY,
    };
    ApiFailure::new(status, error.code(), error.to_string())
}
