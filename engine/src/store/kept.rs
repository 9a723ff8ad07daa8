//! Data stored in addition to runs: answered model calls, artifacts, tokens.

use nightshift_protocol::access::TokenView;
use nightshift_protocol::archive::{ArtifactPart, UnpackedArtifact};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::budget::Amount;
use nightshift_protocol::id::RunId;
use nightshift_protocol::time::TimestampMs;
use serde_json::Value;

use super::{Store, StoreError};

/// An answered model call. A stored call is never paid for again.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelCallRecord {
    /// The run.
    pub run: RunId,
    /// The step's key.
    pub step_key: String,
    /// Turn within the step, from 1.
    pub turn: u32,
    /// blake3 over model, parameters and rendered prompt.
    pub request_hash: String,
    /// The summary, as JSON.
    pub summary: Value,
    /// Reservations of the call that are released with it.
    pub released: Vec<Amount>,
    /// Amounts that the call used.
    pub used: Vec<Amount>,
    /// Time of the answer.
    pub at: TimestampMs,
}

/// A token with the hash of its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRecord {
    /// The view in lists.
    pub view: TokenView,
    /// blake3 of the secret, as hexadecimal digits.
    pub secret_hash: String,
}

/// Upload progress of an artifact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArtifactProgress {
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Bytes that are stored.
    pub stored_bytes: u64,
    /// Whether all bytes are stored and the hash matches.
    pub complete: bool,
}

/// Stores an artifact that came out of an archive, or the next part of one. Parts that are stored already are skipped.
pub async fn store_unpacked(store: &dyn Store, artifact: &UnpackedArtifact, at: TimestampMs) -> Result<(), StoreError> {
    let UnpackedArtifact { hash, bytes, part } = artifact;
    let Some(ArtifactPart { offset, size_bytes }) = *part else { return store.put_artifact(hash, bytes, at).await };
    let appended = store.append_artifact(hash, size_bytes, offset, bytes, at).await;
    let end = offset.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    match appended {
        // An earlier import was interrupted.
        Err(StoreError::Refused { code: "artifact.wrong_offset", message }) => {
            let stored = store.artifact_progress(hash).await?.map_or(0, |progress| progress.stored_bytes);
            if stored >= end {
                return Ok(());
            }
            // A part of this part is stored.
            let known = usize::try_from(stored.saturating_sub(offset)).unwrap_or(usize::MAX);
            match bytes.get(known..).filter(|_| stored > offset) {
                Some(rest) => store.append_artifact(hash, size_bytes, stored, rest, at).await.map(|_| ()),
                None => Err(StoreError::Refused { code: "artifact.wrong_offset", message }),
            }
        }
        appended => appended.map(|_| ()),
    }
}

/// Artifacts that were moved from the database into the object store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MovedArtifacts {
    /// Number of moved artifacts.
    pub artifacts: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The last artifact that was looked at; none if there is none left. The next call goes on after it.
    pub last: Option<ArtifactHash>,
}
