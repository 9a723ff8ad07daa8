//! Files of a hand-over on the disk: read to their last line, and written under another name until they are whole.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nightshift_protocol::archive::{
    ARCHIVE_FORMAT, ARCHIVE_VERSION, ArchiveDigest, ArchiveError, ArchiveLine, MAX_ARCHIVE_LINE_BYTES, Manifest,
    UnpackedArtifact,
};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::handover::{HandoverError, HandoverHeader, HandoverReader, UnpackedHandover};
use nightshift_protocol::time::TimestampMs;
use serde_json::Value;
use zstd::stream::read::Decoder;
use zstd::stream::write::Encoder;

use crate::failure::{Failure, Result};

/// What the name of a file ends with until it is whole.
const PART: &str = "part";
/// Permissions of the files: one of them holds a key.
const OWNER_ONLY: u32 = 0o600;
/// How hard they are compressed.
const LEVEL: i32 = 3;

impl From<HandoverError> for Failure {
    fn from(error: HandoverError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

/// Reads a file to its last line, and gives each artifact to `take`. A file that was cut or changed fails.
pub(crate) fn read(path: &Path, mut take: impl FnMut(UnpackedArtifact) -> Result<()>) -> Result<UnpackedHandover> {
    let file = File::open(path).map_err(|error| {
        Failure::new("archive.not_read", format!("the file `{}` cannot be read: {error}", path.display()))
    })?;
    let unreadable = |error: std::io::Error| {
        Failure::from(HandoverError::from(ArchiveError::Unreadable(format!(
            "it is not compressed with zstd, or damaged: {error}"
        ))))
    };
    let mut lines = BufReader::new(Decoder::new(file).map_err(unreadable)?);
    let mut reader = HandoverReader::default();
    let mut line = Vec::new();
    let most = u64::try_from(MAX_ARCHIVE_LINE_BYTES).unwrap_or(u64::MAX);
    loop {
        line.clear();
        match (&mut lines).take(most.saturating_add(1)).read_until(b'\n', &mut line) {
            Ok(0) => break,
            Ok(_) if line.len() > MAX_ARCHIVE_LINE_BYTES => {
                let error = ArchiveError::TooLarge("one of its lines is too long".to_owned());
                return Err(HandoverError::from(error).into());
            }
            Ok(_) => {
                if let Some(artifact) = reader.accept(&line)? {
                    take(artifact)?;
                }
            }
            // The compressed stream stops in the middle.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                return Err(HandoverError::from(ArchiveError::Cut).into());
            }
            Err(error) => return Err(unreadable(error)),
        }
    }
    Ok(reader.finish()?)
}

/// The name of a file until it is whole.
pub(crate) fn part_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(PART);
    path.with_file_name(name)
}

/// Makes a file that only its owner reads. One that was left there goes: others may read it, or have it open.
pub(crate) fn create(path: &Path) -> Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(not_written(path, &error)),
        _ => {}
    }
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true).mode(OWNER_ONLY);
    options.open(path).map_err(|error| not_written(path, &error))
}

/// Gives a whole file its name.
pub(crate) fn keep(part: &Path, path: &Path) -> Result<()> {
    std::fs::rename(part, path).map_err(|error| not_written(path, &error))
}

/// The file could not be written.
pub(crate) fn not_written(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new("archive.not_written", format!("the file `{}` cannot be written: {error}", path.display()))
        .hint("make the folder writable, free some space, or name another file with --out")
}

/// What a result holds.
pub(crate) struct Content {
    /// The first line.
    pub(crate) header: HandoverHeader,
    /// What the file is sealed with.
    pub(crate) key: String,
    /// When.
    pub(crate) at: TimestampMs,
    /// The rows.
    pub(crate) rows: Vec<Value>,
    /// The artifacts.
    pub(crate) artifacts: Vec<ArtifactHash>,
}

/// Writes a result, as a whole or not at all; gives its size in bytes. `load` gives an artifact.
pub(crate) fn write(
    path: &Path,
    content: &Content,
    mut load: impl FnMut(&ArtifactHash) -> Result<Vec<u8>>,
) -> Result<u64> {
    let refused = |error: ArchiveError| Failure::from(HandoverError::from(error));
    let Content { header, key, at, rows, artifacts } = content;
    let mut digest = ArchiveDigest::default();
    for row in rows {
        digest.row(row).map_err(refused)?;
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
        let line = ArchiveLine::Row { row: row.clone() }.to_text().map_err(refused)?;
        encoder.write_all(line.as_bytes()).map_err(failed)?;
    }
    for hash in artifacts {
        let line = ArchiveLine::artifact(hash.clone(), &load(hash)?).to_text().map_err(refused)?;
        encoder.write_all(line.as_bytes()).map_err(failed)?;
    }
    let last = ArchiveLine::End { digest }.to_text().map_err(refused)?;
    encoder.write_all(last.as_bytes()).map_err(failed)?;
    let file = encoder.finish().map_err(failed)?.into_inner().map_err(|error| failed(error.into_error()))?;
    file.sync_all().map_err(failed)?;
    let size_bytes = file.metadata().map_err(failed)?.len();
    keep(&part, path)?;
    Ok(size_bytes)
}
