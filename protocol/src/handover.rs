//! The two files of a hand-over: the outgoing campaign and the returning result.
//!
//! Such a file is an archive with two more lines. The first line is the [`HandoverHeader`], the second the manifest of the
//! archive, the third the seal: a keyed blake3 hash over the first two lines. The manifest holds the digest of everything
//! that follows, so that the seal authenticates the whole file. The outgoing file carries the key of its hand-over: anyone who
//! has that file can write a result.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::archive::{ArchiveError, ArchiveLine, ArchiveReader, Manifest, Unpacked, UnpackedArtifact};
use crate::artifact::ArtifactHash;
use crate::id::{CampaignId, HandoverId, RunId};

/// Name of the format, in the first line.
pub const HANDOVER_FORMAT: &str = "nightshift-handover";
/// Version of the format.
pub const HANDOVER_VERSION: u32 = 1;
/// Digits of a key: 32 bytes in hexadecimal.
pub const HANDOVER_KEY_DIGITS: usize = 2 * blake3::KEY_LEN;

/// Which way a file goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// To the machine without a network.
    Out,
    /// Back to the server.
    Back,
}

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandoverHeader {
    /// [`HANDOVER_FORMAT`].
    pub format: String,
    /// [`HANDOVER_VERSION`].
    pub version: u32,
    /// The hand-over.
    pub handover: HandoverId,
    /// The campaign.
    pub campaign: CampaignId,
    /// Which way it goes.
    pub direction: Direction,
    /// Name of the server that handed it over.
    pub server: String,
    /// Release that wrote the file.
    pub release: String,
    /// The format of states that this release writes.
    pub state_format: u32,
    /// The key, in hexadecimal; only on the way out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Runs to be carried out; only on the way out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<RunId>,
    /// Artifacts that the rows name and the file leaves out, because the reader has them. On the way back they are those
    /// that came with the campaign.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<ArtifactHash>,
}

/// The third line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Seal {
    seal: String,
}

/// Why a file of a hand-over is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HandoverError {
    /// The archive in the file is damaged, or the file does not belong to a hand-over.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// It goes the other way.
    #[error(
        "this file {}",
        match found {
            Direction::Out => "is on its way out: `nightshift handover run` carries it out, and its result is brought back",
            Direction::Back => "is a result: `nightshift handover finish` brings it back to the server that made the hand-over",
        }
    )]
    WrongDirection {
        /// Which way it goes.
        found: Direction,
    },
    /// It has another version.
    #[error(
        "the file has version {found} of the format and this release reads version {HANDOVER_VERSION}: use the same release \
         on both machines"
    )]
    WrongVersion {
        /// The version that it has.
        found: u64,
    },
    /// A newer release wrote it.
    #[error("release {release} wrote the file, and this release cannot read its states: use that release here")]
    NewerRelease {
        /// That release.
        release: String,
    },
    /// Its seal is not right.
    #[error("the file was changed after it was written, or was not made for this hand-over: copy it again")]
    Tampered,
}

impl HandoverError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Archive(error) => error.code(),
            Self::WrongDirection { .. } => "handover.wrong_direction",
            Self::WrongVersion { .. } => "handover.wrong_version",
            Self::NewerRelease { .. } => "handover.newer_release",
            Self::Tampered => "handover.tampered",
        }
    }
}

impl HandoverHeader {
    /// Refuses a file that goes the other way, or whose states only a newer release reads.
    pub fn examine(&self, direction: Direction, state_format: u32) -> Result<(), HandoverError> {
        if self.direction != direction {
            return Err(HandoverError::WrongDirection { found: self.direction });
        }
        if self.state_format > state_format {
            return Err(HandoverError::NewerRelease { release: self.release.clone() });
        }
        Ok(())
    }

    /// The first three lines of a file, each with its end. Then follow the rows, the artifacts and the last line.
    pub fn first_lines(&self, manifest: Manifest, key: &str) -> Result<String, HandoverError> {
        let mut text = serde_json::to_string(self).map_err(|error| ArchiveError::Unreadable(error.to_string()))?;
        text.push('\n');
        text.push_str(&ArchiveLine::Manifest(manifest).to_text()?);
        let seal = Seal { seal: seal(text.as_bytes(), key).ok_or(HandoverError::Tampered)?.to_hex().to_string() };
        text.push_str(&serde_json::to_string(&seal).map_err(|error| ArchiveError::Unreadable(error.to_string()))?);
        text.push('\n');
        Ok(text)
    }
}

/// Returns the keyed hash, or nothing if the key is malformed.
fn seal(sealed: &[u8], key: &str) -> Option<blake3::Hash> {
    let key = blake3::Hash::from_hex(key).ok()?;
    Some(blake3::keyed_hash(key.as_bytes(), sealed))
}

/// The content of a complete file, without the bytes of its artifacts.
#[derive(Debug, Clone, PartialEq)]
pub struct UnpackedHandover {
    /// The first line.
    pub header: HandoverHeader,
    /// The archive.
    pub archive: Unpacked,
    /// Tells one file from another: the digest of the archive.
    sealed: Vec<u8>,
    seal: String,
}

impl UnpackedHandover {
    /// Refuses a file that was not sealed with this key.
    pub fn authenticate(&self, key: &str) -> Result<(), HandoverError> {
        authenticate(&self.sealed, &self.seal, key)
    }

    /// Hash of what was sealed: two files with the same one are the same.
    #[must_use]
    pub fn digest(&self) -> String {
        blake3::hash(&self.sealed).to_hex().to_string()
    }
}

fn authenticate(sealed: &[u8], found: &str, key: &str) -> Result<(), HandoverError> {
    let (Some(expected), Ok(found)) = (seal(sealed, key), blake3::Hash::from_hex(found)) else {
        return Err(HandoverError::Tampered);
    };
    // Compared in constant time.
    if expected == found { Ok(()) } else { Err(HandoverError::Tampered) }
}

/// Reads a file of a hand-over line by line.
#[derive(Debug, Default)]
pub struct HandoverReader {
    header: Option<HandoverHeader>,
    seal: Option<String>,
    sealed: Vec<u8>,
    archive: ArchiveReader,
    lines: u8,
}

impl HandoverReader {
    /// The first line, once the seal was read.
    #[must_use]
    pub fn header(&self) -> Option<&HandoverHeader> {
        self.header.as_ref().filter(|_| self.seal.is_some())
    }

    /// Refuses a file that was not sealed with this key, or whose seal was not read yet. Only its end shows whether the file
    /// is the one that was sealed.
    pub fn authenticate(&self, key: &str) -> Result<(), HandoverError> {
        authenticate(&self.sealed, self.seal.as_deref().unwrap_or_default(), key)
    }

    /// Hash of what was sealed, once the seal was read.
    #[must_use]
    pub fn digest(&self) -> String {
        blake3::hash(&self.sealed).to_hex().to_string()
    }

    /// Takes the next line, without its end; gives its artifact, for the caller to store.
    pub fn accept(&mut self, line: &[u8]) -> Result<Option<UnpackedArtifact>, HandoverError> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        if self.lines < 3 {
            self.lines += 1;
        } else {
            return Ok(self.archive.accept(line)?);
        }
        if self.lines == 3 {
            let read: Seal = serde_json::from_slice(line)
                .map_err(|error| ArchiveError::Unreadable(format!("its third line is no seal: {error}")))?;
            self.seal = Some(read.seal);
            return Ok(None);
        }
        self.sealed.extend_from_slice(line);
        self.sealed.push(b'\n');
        if self.lines == 1 {
            self.header = Some(read_header(line)?);
            return Ok(None);
        }
        Ok(self.archive.accept(line)?)
    }

    /// Returns the content if the file was complete.
    pub fn finish(self) -> Result<UnpackedHandover, HandoverError> {
        let archive = self.archive.finish()?;
        match (self.header, self.seal) {
            (Some(header), Some(_)) if header.campaign != archive.manifest.campaign => {
                Err(ArchiveError::Differs("its archive is of another campaign".to_owned()).into())
            }
            (Some(header), Some(seal)) => Ok(UnpackedHandover { header, archive, sealed: self.sealed, seal }),
            _ => Err(ArchiveError::Cut.into()),
        }
    }
}

/// The rows of a result: those that differ from the rows that came with the campaign. A row of a budget says how much was used
/// up between the two, because the server may have counted more meanwhile.
pub fn result_rows(came: &[Value], now: Vec<Value>) -> Result<Vec<Value>, HandoverError> {
    let known: HashSet<ArtifactHash> = came.iter().map(hash_of).collect::<Result<_, _>>()?;
    let of_budget = |row: &Value| Some((row["resource"].as_str()?.to_owned(), row["used"].as_u64()?));
    let before: HashMap<String, u64> =
        came.iter().filter(|row| row["table"] == "budget").filter_map(of_budget).collect();
    let mut rows = Vec::new();
    for mut row in now {
        if known.contains(&hash_of(&row)?) {
            continue;
        }
        if row["table"] == "budget"
            && let Some((resource, used)) = of_budget(&row)
        {
            row["used"] = used.saturating_sub(before.get(&resource).copied().unwrap_or_default()).into();
        }
        rows.push(row);
    }
    Ok(rows)
}

fn hash_of(row: &Value) -> Result<ArtifactHash, ArchiveError> {
    let text = serde_json::to_vec(row).map_err(|error| ArchiveError::Unreadable(error.to_string()))?;
    Ok(ArtifactHash::of(&text))
}

/// The format and the version are looked at before anything else.
fn read_header(line: &[u8]) -> Result<HandoverHeader, HandoverError> {
    let unreadable = |why: String| HandoverError::from(ArchiveError::Unreadable(why));
    let value: Value =
        serde_json::from_slice(line).map_err(|error| unreadable(format!("its first line is no JSON: {error}")))?;
    if value["format"] != HANDOVER_FORMAT {
        let hint = if value["format"] == crate::archive::ARCHIVE_FORMAT {
            "; it is an archive: `nightshift import` takes it"
        } else {
            ""
        };
        return Err(unreadable(format!("its first line does not name the format {HANDOVER_FORMAT}{hint}")));
    }
    match value["version"].as_u64() {
        Some(version) if version == u64::from(HANDOVER_VERSION) => {}
        Some(found) => return Err(HandoverError::WrongVersion { found }),
        None => return Err(unreadable("its first line names no version".to_owned())),
    }
    serde_json::from_value(value).map_err(|error| unreadable(format!("its first line: {error}")))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;
    use crate::archive::{ARCHIVE_FORMAT, ARCHIVE_VERSION, ArchiveDigest};
    use crate::time::TimestampMs;

    const KEY: &str = "0101010101010101010101010101010101010101010101010101010101010101";
    const OTHER_KEY: &str = "0201010101010101010101010101010101010101010101010101010101010101";

    fn header() -> HandoverHeader {
        HandoverHeader {
            format: HANDOVER_FORMAT.to_owned(),
            version: HANDOVER_VERSION,
            handover: HandoverId::from_uuid(Uuid::from_u128(3)),
            campaign: CampaignId::from_uuid(Uuid::from_u128(7)),
            direction: Direction::Back,
            server: "lab".to_owned(),
            release: "1.0.0".to_owned(),
            state_format: 2,
            key: None,
            runs: Vec::new(),
            left_out: Vec::new(),
        }
    }

    fn lines() -> Vec<String> {
        let row = json!({ "table": "campaign" });
        let mut digest = ArchiveDigest::default();
        digest.row(&row).unwrap();
        let manifest = Manifest {
            format: ARCHIVE_FORMAT.to_owned(),
            version: ARCHIVE_VERSION,
            campaign: header().campaign,
            exported_at: TimestampMs(1),
            rows: 1,
            artifacts: 0,
            digest: digest.text(),
        };
        let first = header().first_lines(manifest, KEY).unwrap();
        let mut lines: Vec<String> = first.split_inclusive('\n').map(str::to_owned).collect();
        lines.push(ArchiveLine::Row { row }.to_text().unwrap());
        lines.push(ArchiveLine::End { digest: digest.text() }.to_text().unwrap());
        lines
    }

    fn read(lines: &[String]) -> Result<UnpackedHandover, HandoverError> {
        let mut reader = HandoverReader::default();
        for line in lines {
            reader.accept(line.as_bytes())?;
        }
        reader.finish()
    }

    #[test]
    fn what_was_written_is_read_and_authenticated() {
        let unpacked = read(&lines()).unwrap();
        assert_eq!((&unpacked.header, unpacked.archive.rows.len()), (&header(), 1));
        assert_eq!(unpacked.authenticate(KEY), Ok(()));
        assert_eq!(unpacked.authenticate(OTHER_KEY), Err(HandoverError::Tampered));
        assert_eq!(unpacked.authenticate("no key"), Err(HandoverError::Tampered));
    }

    #[test]
    fn a_file_that_ends_early_was_cut() {
        let lines = lines();
        for end in 0..lines.len() {
            assert_eq!(read(&lines[..end]), Err(ArchiveError::Cut.into()), "{end} lines");
        }
    }

    #[test]
    fn a_change_anywhere_is_noticed() {
        let change = |line: usize, from: &str, to: &str| {
            let mut lines = lines();
            assert!(lines[line].contains(from));
            lines[line] = lines[line].replace(from, to);
            read(&lines).and_then(|unpacked| unpacked.authenticate(KEY))
        };
        assert_eq!(change(0, "lab", "bar"), Err(HandoverError::Tampered));
        assert_eq!(change(1, "\"exported_at\":1", "\"exported_at\":2"), Err(HandoverError::Tampered));
        assert_eq!(change(2, "\"seal\":\"", "\"seal\":\"0"), Err(HandoverError::Tampered));
        assert!(matches!(change(3, "campaign", "another"), Err(HandoverError::Archive(ArchiveError::Differs(_)))));
    }

    #[test]
    fn other_versions_and_directions_and_newer_states_are_named() {
        let mut later = lines();
        later[0] = later[0].replace("\"version\":1", "\"version\":9");
        assert_eq!(read(&later), Err(HandoverError::WrongVersion { found: 9 }));
        assert_eq!(header().examine(Direction::Back, 2), Ok(()));
        assert_eq!(header().examine(Direction::Out, 2).unwrap_err().code(), "handover.wrong_direction");
        assert_eq!(header().examine(Direction::Back, 1).unwrap_err().code(), "handover.newer_release");
    }

    #[test]
    fn a_result_has_the_rows_that_changed_and_what_was_used_between() {
        let budget = |resource: &str, used: u64| json!({"table": "budget", "resource": resource, "used": used});
        let came = [json!({"table": "run", "status": "paused"}), budget("tokens", 30), budget("attempts", 2)];
        let now =
            vec![came[0].clone(), budget("tokens", 50), budget("attempts", 2), json!({"table": "event", "seq": 9})];
        let rows = result_rows(&came, now).unwrap();
        assert_eq!(rows, [budget("tokens", 20), json!({"table": "event", "seq": 9})]);
    }

    #[test]
    fn an_archive_is_not_taken_for_a_hand_over() {
        let error = read(&["{\"format\":\"nightshift-archive\",\"version\":2}".to_owned()]).unwrap_err();
        assert_eq!(error.code(), "archive.unreadable");
        assert!(error.to_string().contains("nightshift import"), "{error}");
    }
}
