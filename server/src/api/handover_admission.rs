//! Decides whether a file of a hand-over is accepted.

use axum::http::StatusCode;
use nightshift_engine::store::StoreError;
use nightshift_protocol::archive::ArchiveError;
use nightshift_protocol::handover::{Direction, HandoverError, HandoverHeader, HandoverReader};

use crate::api::refused_file::refused;
use crate::error::ApiFailure;
use crate::shared::Shared;

/// Refuses a file before the first of its artifacts is stored.
pub(super) async fn admit(shared: &Shared, file: &HandoverReader) -> Result<(), ApiFailure> {
    let header = file.header().ok_or_else(|| refused(&ArchiveError::Cut.into()))?;
    examine(shared, header, &file.digest(), |key| file.authenticate(key)).await
}

/// Refuses results that do not belong to an open hand-over of this server or to one that they finished.
pub(super) async fn examine(
    shared: &Shared,
    header: &HandoverHeader,
    digest: &str,
    authenticate: impl Fn(&str) -> Result<(), HandoverError>,
) -> Result<(), ApiFailure> {
    header.examine(Direction::Back, shared.state_format).map_err(|error| refused(&error))?;
    let handover = match shared.store.handovers.load_handover(&header.handover).await {
        Err(StoreError::NotFound { .. }) => return Err(unknown(shared, header)),
        other => other?,
    };
    authenticate(&handover.key).map_err(|error| refused(&error))?;
    handover.takes(digest)?;
    Ok(())
}

fn unknown(shared: &Shared, header: &HandoverHeader) -> ApiFailure {
    let HandoverHeader { handover: id, server, .. } = header;
    let name = &shared.config.name;
    // Two servers of one machine have the same name.
    let other = if server == name { " (another data folder or database)" } else { "" };
    let message = format!(
        "this server ({name}) does not know the hand-over {id}: use the server that created the file, which is named \
         {server}{other}"
    );
    conflict("handover.unknown", message)
}

pub(super) fn conflict(code: &str, message: String) -> ApiFailure {
    ApiFailure::new(StatusCode::CONFLICT, code, message)
}
