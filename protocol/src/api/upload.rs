//! Artifacts that are uploaded in parts.

use serde::{Deserialize, Serialize};

/// How far an upload is: `HEAD` and `PATCH /artifacts/{hash}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UploadProgress {
    /// Size of the whole in bytes.
    pub size_bytes: u64,
    /// Bytes that are there: the offset to go on from.
    pub stored_bytes: u64,
    /// Whether all are there and their hash is right.
    pub complete: bool,
}

/// Header with the size of the whole artifact, of a partial upload.
pub const UPLOAD_SIZE_HEADER: &str = "nightshift-upload-size";

/// Header with the offset of a partial upload.
pub const UPLOAD_OFFSET_HEADER: &str = "nightshift-upload-offset";

/// Largest part of a partial upload, in bytes.
pub const MAX_UPLOAD_PART_BYTES: usize = 4 * 1024 * 1024;
