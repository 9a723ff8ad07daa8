//! A campaign as one file: lines of JSON, compressed with zstd.
//!
//! The first line is the [`Manifest`]. Then come the rows, then the artifacts that they name, and at last a line that
//! says the digest again: without it the file was cut. [`ArchiveReader`] takes the lines one by one and checks all of
//! it; compression and files are the caller's.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::artifact::{ArtifactHash, MAX_ARTIFACT_BYTES};
use crate::id::CampaignId;
use crate::time::TimestampMs;

/// Name of the format, in the first line.
pub const ARCHIVE_FORMAT: &str = "nightshift-archive";
/// Version of the format. Version 1 is the JSON that `nightshift export` writes for people.
pub const ARCHIVE_VERSION: u32 = 2;
/// Media type of an archive.
pub const ARCHIVE_MEDIA_TYPE: &str = "application/zstd";
/// Longest line, in bytes: the largest artifact in base64, and what stands around it.
pub const MAX_ARCHIVE_LINE_BYTES: usize = MAX_ARTIFACT_BYTES.div_ceil(3) * 4 + 4_096;
/// Most bytes of all rows together: they are stored in one transaction.
pub const MAX_ARCHIVE_ROWS_BYTES: usize = 512 * 1024 * 1024;

/// The first line: what the archive holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Manifest {
    /// [`ARCHIVE_FORMAT`].
    pub format: String,
    /// [`ARCHIVE_VERSION`].
    pub version: u32,
    /// The campaign.
    pub campaign: CampaignId,
    /// When it was written.
    pub exported_at: TimestampMs,
    /// Number of rows.
    pub rows: u64,
    /// Number of artifacts.
    pub artifacts: u64,
    /// blake3 over all rows and the hashes of all artifacts, in their order; see [`ArchiveDigest`].
    pub digest: String,
}

/// A line of an archive.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "line", rename_all = "snake_case")]
pub enum ArchiveLine {
    /// The first one.
    Manifest(Manifest),
    /// A row of the database.
    Row {
        /// The row, as the store gave it.
        row: Value,
    },
    /// An artifact.
    Artifact {
        /// Its hash.
        hash: ArtifactHash,
        /// Its bytes, in base64.
        bytes: String,
        /// Which of its bytes these are; none if they are all. The parts of an artifact follow each other.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        part: Option<ArtifactPart>,
    },
    /// The last one.
    End {
        /// The manifest's digest once more.
        digest: String,
    },
}

/// The place of a part in an artifact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ArtifactPart {
    /// Its first byte.
    pub offset: u64,
    /// Size of the whole artifact in bytes.
    pub size_bytes: u64,
}

impl ArchiveLine {
    /// The line of an artifact.
    #[must_use]
    pub fn artifact(hash: ArtifactHash, bytes: &[u8]) -> Self {
        Self::Artifact { hash, bytes: BASE64_STANDARD.encode(bytes), part: None }
    }

    /// The line of a part of a large artifact.
    #[must_use]
    pub fn artifact_part(hash: ArtifactHash, part: ArtifactPart, bytes: &[u8]) -> Self {
        Self::Artifact { hash, bytes: BASE64_STANDARD.encode(bytes), part: Some(part) }
    }

    /// The line as text, with its end.
    pub fn to_text(&self) -> Result<String, ArchiveError> {
        let mut text = serde_json::to_string(self).map_err(|error| ArchiveError::Unreadable(error.to_string()))?;
        text.push('\n');
        Ok(text)
    }
}

/// Why an archive is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveError {
    /// It is no archive, or a damaged one.
    #[error("the file is no readable archive: {0}")]
    Unreadable(String),
    /// Its end is missing.
    #[error("the archive was cut: its last line is missing; copy or export it again")]
    Cut,
    /// Another release wrote it.
    #[error(
        "the archive has version {found} and this release reads version {ARCHIVE_VERSION}: use the release that wrote it"
    )]
    WrongVersion {
        /// The version that it has.
        found: u64,
    },
    /// It does not hold what its first line says.
    #[error("the archive does not hold what its first line says: {0}; copy or export it again")]
    Differs(String),
    /// It is larger than this release takes.
    #[error("the archive is too large: {0}")]
    TooLarge(String),
}

impl ArchiveError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unreadable(_) => "archive.unreadable",
            Self::Cut => "archive.cut",
            Self::WrongVersion { .. } => "archive.wrong_version",
            Self::Differs(_) => "archive.differs",
            Self::TooLarge(_) => "archive.too_large",
        }
    }
}

/// Computes the digest of an archive's content: of all rows, then of all artifacts, in their order.
#[derive(Debug, Clone, Default)]
pub struct ArchiveDigest(blake3::Hasher);

impl ArchiveDigest {
    /// Takes a row; gives its size.
    pub fn row(&mut self, row: &Value) -> Result<usize, ArchiveError> {
        let text = serde_json::to_vec(row).map_err(|error| ArchiveError::Unreadable(error.to_string()))?;
        self.0.update(&text).update(b"\n");
        Ok(text.len())
    }

    /// Takes the hash of an artifact.
    pub fn artifact(&mut self, hash: &ArtifactHash) {
        self.0.update(hash.as_str().as_bytes()).update(b"\n");
    }

    /// The digest of what was taken.
    #[must_use]
    pub fn text(&self) -> String {
        self.0.finalize().to_hex().to_string()
    }
}

/// An artifact that came out of an archive, its hash checked, or a part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnpackedArtifact {
    /// Its hash.
    pub hash: ArtifactHash,
    /// Its bytes, or those of the part.
    pub bytes: Vec<u8>,
    /// Which of its bytes these are; none if they are all. The last part shows whether the hash is right.
    pub part: Option<ArtifactPart>,
}

/// An artifact of which some parts were read.
#[derive(Debug)]
struct OpenArtifact {
    hash: ArtifactHash,
    size_bytes: u64,
    read_bytes: u64,
    hasher: blake3::Hasher,
}

/// What a whole archive held, without the bytes of its artifacts.
#[derive(Debug, Clone, PartialEq)]
pub struct Unpacked {
    /// The first line.
    pub manifest: Manifest,
    /// The rows.
    pub rows: Vec<Value>,
    /// The artifacts.
    pub artifacts: Vec<ArtifactHash>,
}

/// Reads an archive line by line.
#[derive(Debug, Default)]
pub struct ArchiveReader {
    manifest: Option<Manifest>,
    rows: Vec<Value>,
    rows_bytes: usize,
    artifacts: Vec<ArtifactHash>,
    open: Option<OpenArtifact>,
    digest: ArchiveDigest,
    ended: bool,
}

impl ArchiveReader {
    /// Takes the next line; gives its artifact, for the caller to store.
    pub fn accept(&mut self, line: &[u8]) -> Result<Option<UnpackedArtifact>, ArchiveError> {
        if self.ended {
            return Err(ArchiveError::Unreadable("something follows its last line".to_owned()));
        }
        if self.manifest.is_none() {
            self.manifest = Some(read_manifest(line)?);
            return Ok(None);
        }
        match serde_json::from_slice(line).map_err(|error| ArchiveError::Unreadable(error.to_string()))? {
            ArchiveLine::Manifest(_) => Err(ArchiveError::Unreadable("it has two first lines".to_owned())),
            ArchiveLine::Row { .. } if !self.artifacts.is_empty() || self.open.is_some() => {
                Err(ArchiveError::Unreadable("a row follows an artifact".to_owned()))
            }
            ArchiveLine::Row { row } => {
                self.rows_bytes += self.digest.row(&row)?;
                if self.rows_bytes > MAX_ARCHIVE_ROWS_BYTES {
                    return Err(ArchiveError::TooLarge(format!(
                        "its rows have more than {MAX_ARCHIVE_ROWS_BYTES} bytes"
                    )));
                }
                self.rows.push(row);
                Ok(None)
            }
            ArchiveLine::Artifact { hash, bytes, part } => {
                let bytes = BASE64_STANDARD
                    .decode(bytes)
                    .map_err(|error| ArchiveError::Unreadable(format!("artifact {hash}: {error}")))?;
                let part = part.unwrap_or(ArtifactPart { offset: 0, size_bytes: length(&bytes) });
                if self.take(&hash, part, &bytes)? {
                    self.digest.artifact(&hash);
                    self.artifacts.push(hash.clone());
                }
                let is_whole = part.size_bytes == length(&bytes);
                Ok(Some(UnpackedArtifact { hash, bytes, part: (!is_whole).then_some(part) }))
            }
            ArchiveLine::End { digest } => self.end(&digest),
        }
    }

    /// Takes the next part of an artifact. Returns whether it is complete.
    fn take(&mut self, hash: &ArtifactHash, part: ArtifactPart, bytes: &[u8]) -> Result<bool, ArchiveError> {
        let differs = |what: &str| Err(ArchiveError::Differs(format!("artifact {hash} {what}")));
        let begun = |ArtifactPart { size_bytes, .. }| OpenArtifact {
            hash: hash.clone(),
            size_bytes,
            read_bytes: 0,
            hasher: blake3::Hasher::new(),
        };
        let mut open = self.open.take().unwrap_or_else(|| begun(part));
        if open.hash != *hash || open.size_bytes != part.size_bytes || open.read_bytes != part.offset {
            return differs("does not follow the part before it");
        }
        open.hasher.update(bytes);
        open.read_bytes = open.read_bytes.saturating_add(length(bytes));
        if open.read_bytes > open.size_bytes || (bytes.is_empty() && open.size_bytes > 0) {
            return differs("has another size");
        }
        if open.read_bytes < open.size_bytes {
            self.open = Some(open);
            return Ok(false);
        }
        if open.hasher.finalize().to_hex().as_str() != hash.as_str() {
            return differs("has another hash");
        }
        Ok(true)
    }

    fn end(&mut self, said: &str) -> Result<Option<UnpackedArtifact>, ArchiveError> {
        let Some(manifest) = &self.manifest else { return Err(ArchiveError::Cut) };
        let differs = |what: &str| Err(ArchiveError::Differs(what.to_owned()));
        if self.open.is_some() {
            return differs("the last artifact lacks its end");
        }
        if u64::try_from(self.rows.len()) != Ok(manifest.rows) {
            return differs("the number of rows is another one");
        }
        if u64::try_from(self.artifacts.len()) != Ok(manifest.artifacts) {
            return differs("the number of artifacts is another one");
        }
        if self.digest.text() != manifest.digest || said != manifest.digest {
            return differs("the digest is another one");
        }
        self.ended = true;
        Ok(None)
    }

    /// What was read, if the archive was whole.
    pub fn finish(self) -> Result<Unpacked, ArchiveError> {
        match (self.manifest, self.ended) {
            (Some(manifest), true) => Ok(Unpacked { manifest, rows: self.rows, artifacts: self.artifacts }),
            _ => Err(ArchiveError::Cut),
        }
    }
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

/// The first line tells who wrote the rest: its format and version are looked at before anything else of it.
fn read_manifest(line: &[u8]) -> Result<Manifest, ArchiveError> {
    let value: Value = serde_json::from_slice(line)
        .map_err(|error| ArchiveError::Unreadable(format!("its first line is no JSON: {error}")))?;
    if value["format"] != ARCHIVE_FORMAT {
        return Err(ArchiveError::Unreadable(format!("its first line does not name the format {ARCHIVE_FORMAT}")));
    }
    match value["version"].as_u64() {
        Some(version) if version == u64::from(ARCHIVE_VERSION) => {}
        Some(found) => return Err(ArchiveError::WrongVersion { found }),
        None => return Err(ArchiveError::Unreadable("its first line names no version".to_owned())),
    }
    match serde_json::from_value(value) {
        Ok(ArchiveLine::Manifest(manifest)) => Ok(manifest),
        Ok(_) => Err(ArchiveError::Unreadable("its first line is no manifest".to_owned())),
        Err(error) => Err(ArchiveError::Unreadable(format!("its first line: {error}"))),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    fn lines() -> Vec<String> {
        let rows = vec![json!({ "table": "campaign", "share": 0.1 }), json!({ "table": "run" })];
        let hash = ArtifactHash::of(b"bytes");
        let mut digest = ArchiveDigest::default();
        for row in &rows {
            digest.row(row).unwrap();
        }
        digest.artifact(&hash);
        let digest = digest.text();
        let manifest = Manifest {
            format: ARCHIVE_FORMAT.to_owned(),
            version: ARCHIVE_VERSION,
            campaign: CampaignId::from_uuid(Uuid::from_u128(7)),
            exported_at: TimestampMs(1),
            rows: 2,
            artifacts: 1,
            digest: digest.clone(),
        };
        let mut lines = vec![ArchiveLine::Manifest(manifest)];
        lines.extend(rows.into_iter().map(|row| ArchiveLine::Row { row }));
        lines.push(ArchiveLine::artifact(hash, b"bytes"));
        lines.push(ArchiveLine::End { digest });
        lines.iter().map(|line| line.to_text().unwrap()).collect()
    }

    fn read(lines: &[String]) -> Result<Unpacked, ArchiveError> {
        let mut reader = ArchiveReader::default();
        for line in lines {
            reader.accept(line.as_bytes())?;
        }
        reader.finish()
    }

    #[test]
    fn what_was_written_is_read() {
        let unpacked = read(&lines()).unwrap();
        assert_eq!((unpacked.rows.len(), unpacked.artifacts.len()), (2, 1));
    }

    /// The lines with the artifact in parts of these bytes.
    fn in_parts(parts: &[(u64, &[u8])]) -> Vec<String> {
        let mut lines = lines();
        let parts = parts.iter().map(|(offset, bytes)| {
            let part = ArtifactPart { offset: *offset, size_bytes: 5 };
            ArchiveLine::artifact_part(ArtifactHash::of(b"bytes"), part, bytes).to_text().unwrap()
        });
        lines.splice(3..4, parts);
        lines
    }

    #[test]
    fn an_artifact_in_parts_is_read_and_its_order_size_and_hash_are_checked() {
        let lines = in_parts(&[(0, b"by"), (2, b"tes")]);
        assert_eq!(read(&lines).unwrap().artifacts, [ArtifactHash::of(b"bytes")]);
        let wrong: [&[(u64, &[u8])]; 6] = [
            &[(0, b"by")],
            &[(0, b"by"), (1, b"tes")],
            &[(2, b"tes"), (0, b"by")],
            &[(0, b"by"), (2, b"tex")],
            &[(0, b"by"), (2, b"tes!")],
            &[(0, b"by"), (2, b""), (2, b"tes")],
        ];
        for parts in wrong {
            assert!(matches!(read(&in_parts(parts)), Err(ArchiveError::Differs(_))), "{parts:?}");
        }
    }

    #[test]
    fn an_archive_that_ends_early_was_cut() {
        let lines = lines();
        for end in 0..lines.len() {
            assert_eq!(read(&lines[..end]), Err(ArchiveError::Cut), "{end} lines");
        }
    }

    #[test]
    fn a_changed_row_or_artifact_is_noticed() {
        let mut changed = lines();
        changed[1] = changed[1].replace("0.1", "0.2");
        assert!(matches!(read(&changed), Err(ArchiveError::Differs(_))));
        let mut changed = lines();
        changed[3] = changed[3].replace(&BASE64_STANDARD.encode(b"bytes"), &BASE64_STANDARD.encode(b"other"));
        assert!(matches!(read(&changed), Err(ArchiveError::Differs(_))));
        let mut missing = lines();
        missing.remove(2);
        assert!(matches!(read(&missing), Err(ArchiveError::Differs(_))));
    }

    #[test]
    fn another_version_is_named_and_another_format_is_not_read() {
        let mut later = lines();
        later[0] = later[0].replace("\"version\":2", "\"version\":9");
        assert_eq!(read(&later), Err(ArchiveError::WrongVersion { found: 9 }));
        for first in ["", "{", "{}", "[1]", "{\"format\":\"tar\",\"version\":2}"] {
            assert!(matches!(read(&[first.to_owned()]), Err(ArchiveError::Unreadable(_))), "{first}");
        }
    }

    #[test]
    fn nothing_may_follow_the_end() {
        let mut longer = lines();
        longer.push(longer[1].clone());
        assert!(matches!(read(&longer), Err(ArchiveError::Unreadable(_))));
    }
}
