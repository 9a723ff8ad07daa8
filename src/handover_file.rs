//! Files of a hand-over on the disk: read to their last line, and written under another name until they are whole.

use std::io::{BufWriter, Write};
use std::path::Path;

use nightshift_protocol::archive::{
    ARCHIVE_FORMAT, ARCHIVE_VERSION, ArchiveDigest, ArchiveLine, Manifest, UnpackedArtifact,
};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::handover::{HandoverError, HandoverHeader, HandoverReader, UnpackedHandover};
use nightshift_protocol::time::TimestampMs;
use serde_json::Value;
use zstd::stream::write::Encoder;

use crate::archive_file::{self, create, keep, not_written, part_of};
use crate::failure::{Failure, Result};

/// How hard they are compressed.
const LEVEL: i32 = 3;

impl From<HandoverError> for Failure {
    fn from(error: HandoverError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

/// Reads a file to its last line, and gives each artifact to `take`. A file that was cut or changed fails.
pub(crate) fn read(path: &Path, mut take: impl FnMut(UnpackedArtifact) -> Result<()>) -> Result<UnpackedHandover> {
    let mut reader = HandoverReader::default();
    archive_file::read_lines(archive_file::open(path)?, |line| match reader.accept(line)? {
        Some(artifact) => take(artifact),
        None => Ok(()),
    })?;
    Ok(reader.finish()?)
}

/// The content of a result.
pub(crate) struct Content {
    /// The first line.
    pub(crate) header: HandoverHeader,
    /// The key of the seal.
    pub(crate) key: String,
    /// When.
    pub(crate) at: TimestampMs,
    /// The rows.
    pub(crate) rows: Vec<Value>,
    /// The artifacts.
    pub(crate) artifacts: Vec<ArtifactHash>,
}

/// Writes a result, as a whole or not at all. Returns its size in bytes. `load` gives an artifact.
pub(crate) fn write(
    path: &Path,
    content: &Content,
    mut load: impl FnMut(&ArtifactHash) -> Result<Vec<u8>>,
) -> Result<u64> {
    let Content { header, key, at, rows, artifacts } = content;
    let mut digest = ArchiveDigest::default();
    for row in rows {
        digest.row(row)?;
    }
    for hash in artifacts {
        digest.artifact(hash);
    }
    let digest = digest.text();
    let manifest = Manifest {
        format: ARCHIVE_FORMAT.to_owned(),
        version: ARCHIVE_VERSION,
        campaign: header.campaign.clone(),
        exported_at: *at,
        rows: u64::try_from(rows.len()).unwrap_or(u64::MAX),
        artifacts: u64::try_from(artifacts.len()).unwrap_or(u64::MAX),
        digest: digest.clone(),
    };
    let part = part_of(path);
    let failed = |error: std::io::Error| not_written(&part, &error);
    let mut encoder = Encoder::new(BufWriter::new(create(&part)?), LEVEL).map_err(failed)?;
    encoder.write_all(header.first_lines(manifest, key)?.as_bytes()).map_err(failed)?;
    for row in rows {
        let line = ArchiveLine::Row { row: row.clone() }.to_text()?;
        encoder.write_all(line.as_bytes()).map_err(failed)?;
    }
    for hash in artifacts {
        let line = ArchiveLine::artifact(hash.clone(), &load(hash)?).to_text()?;
        encoder.write_all(line.as_bytes()).map_err(failed)?;
    }
    let last = ArchiveLine::End { digest }.to_text()?;
    encoder.write_all(last.as_bytes()).map_err(failed)?;
    let file = encoder.finish().map_err(failed)?.into_inner().map_err(|error| failed(error.into_error()))?;
    file.sync_all().map_err(failed)?;
    let size_bytes = file.metadata().map_err(failed)?.len();
    keep(&part, path)?;
    Ok(size_bytes)
}
