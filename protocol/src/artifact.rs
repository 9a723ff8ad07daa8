//! Artifacts: blobs addressed by their blake3 hash.

use serde::{Deserialize, Serialize};

/// Largest artifact that a program makes or holds in memory, in bytes. A server stores larger ones, which pass through it in
/// parts.
pub const MAX_ARTIFACT_BYTES: usize = 64 * 1024 * 1024;

/// The blake3 hash of a blob, as 64 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ArtifactHash(String);

/// A text that is no artifact hash.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an artifact hash: expected 64 hexadecimal digits")]
pub struct InvalidArtifactHash(String);

impl ArtifactHash {
    /// The hash of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(blake3::hash(bytes).to_hex().to_string())
    }

    /// The digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first twelve digits, for tables and messages.
    #[must_use]
    pub fn short(&self) -> &str {
        self.0.get(..12).unwrap_or(&self.0)
    }
}

impl std::str::FromStr for ArtifactHash {
    type Err = InvalidArtifactHash;

    fn from_str(text: &str) -> Result<Self, InvalidArtifactHash> {
        if text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit()) {
            Ok(Self(text.to_ascii_lowercase()))
        } else {
            Err(InvalidArtifactHash(text.to_owned()))
        }
    }
}

impl TryFrom<String> for ArtifactHash {
    type Error = InvalidArtifactHash;

    fn try_from(text: String) -> Result<Self, InvalidArtifactHash> {
        text.parse()
    }
}

impl From<ArtifactHash> for String {
    fn from(hash: ArtifactHash) -> Self {
        hash.0
    }
}

impl std::fmt::Display for ArtifactHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
