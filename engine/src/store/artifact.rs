//! Artifacts.

use async_trait::async_trait;
use nightshift_protocol::archive::{ArtifactPart, UnpackedArtifact};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::time::TimestampMs;

use super::StoreError;

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

/// Artifacts: blobs that are named by their hash.
#[async_trait]
pub trait ArtifactStore: Send + Sync {
    /// Stores a whole blob. Storing it again changes nothing.
    async fn put_artifact(&self, hash: &ArtifactHash, bytes: &[u8], at: TimestampMs) -> Result<(), StoreError>;

    /// Loads a blob.
    async fn get_artifact(&self, hash: &ArtifactHash) -> Result<Vec<u8>, StoreError>;

    /// Returns the upload progress of an artifact, or none if no part of it is stored.
    async fn artifact_progress(&self, hash: &ArtifactHash) -> Result<Option<ArtifactProgress>, StoreError>;

    /// Returns the upload progress before the caller references the artifact. The call protects a complete artifact
    /// from pruning until then.
    async fn renew_artifact(
        &self,
        hash: &ArtifactHash,
        at: TimestampMs,
    ) -> Result<Option<ArtifactProgress>, StoreError>;

    /// Appends a part of an artifact at `offset`, which must equal [`ArtifactProgress::stored_bytes`].
    ///
    /// Another offset is `Refused` with `artifact.wrong_offset`. The last part checks the hash. A wrong hash
    /// (`artifact.wrong_hash`) deletes all parts.
    async fn append_artifact(
        &self,
        hash: &ArtifactHash,
        size_bytes: u64,
        offset: u64,
        bytes: &[u8],
        at: TimestampMs,
    ) -> Result<ArtifactProgress, StoreError>;

    /// Reads a part of a complete artifact: at most `length` bytes from `offset`.
    async fn read_artifact(&self, hash: &ArtifactHash, offset: u64, length: u64) -> Result<Vec<u8>, StoreError>;

    /// Moves some artifacts, in the order of their hashes, from the database into the object store.
    ///
    /// It verifies each hash, and works while other servers do the same and while the artifacts are read.
    async fn move_artifacts(&self, after: Option<ArtifactHash>, at: TimestampMs) -> Result<MovedArtifacts, StoreError>;
}

/// Stores an artifact that came out of an archive, or the next part of one. Parts that are stored already are skipped.
pub async fn store_unpacked(
    store: &dyn ArtifactStore,
    artifact: &UnpackedArtifact,
    at: TimestampMs,
) -> Result<(), StoreError> {
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
