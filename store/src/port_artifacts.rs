//! Artifacts, where a method of the port does more than one thing.

use nightshift_engine::store::{ArtifactProgress, ModelCallRecord, Store as _, StoreError};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::time::TimestampMs;

use crate::direct::{artifact, model_call};
use crate::store::SqlStore;

impl SqlStore {
    /// Stores a whole blob. One that is there is made young again instead.
    pub(crate) async fn store_artifact(
        &self,
        hash: &ArtifactHash,
        bytes: &[u8],
        at: TimestampMs,
    ) -> Result<(), StoreError> {
        artifact::check(hash, bytes)?;
        let progress = read!(self, |connection| artifact::progress(connection, hash))?;
        if progress.is_some_and(|progress| progress.complete) {
            let same = hash.clone();
            // It may be deleted meanwhile.
            if write!(self, |transaction, same, at| artifact::renew(transaction.connection, same, *at))? {
                return Ok(());
            }
        }
        let (hash, bytes) = (hash.clone(), bytes.to_vec());
        write!(self, |transaction, hash, bytes, at| artifact::put(transaction.connection, hash, bytes, *at))
    }

    /// Makes an artifact young again when it is old; how far it is in the store.
    pub(crate) async fn renew_old_artifact(
        &self,
        hash: &ArtifactHash,
        at: TimestampMs,
    ) -> Result<Option<ArtifactProgress>, StoreError> {
        if read!(self, |connection| artifact::is_old(connection, hash, at))? {
            let hash = hash.clone();
            write!(self, |transaction, hash, at| artifact::renew(transaction.connection, hash, *at))?;
        }
        self.artifact_progress(hash).await
    }

    /// Stores a model call with artifacts that are what their hashes say.
    pub(crate) async fn keep_model_call(
        &self,
        call: ModelCallRecord,
        artifacts: Vec<(ArtifactHash, Vec<u8>)>,
    ) -> Result<(), StoreError> {
        for (hash, bytes) in &artifacts {
            artifact::check(hash, bytes)?;
        }
        write!(self, |transaction, call, artifacts| model_call::record(transaction, call, artifacts))
    }

    /// Appends a part, at an offset of an artifact of this size.
    pub(crate) async fn append_to_artifact(
        &self,
        hash: &ArtifactHash,
        (size_bytes, offset): (u64, u64),
        bytes: &[u8],
        at: TimestampMs,
    ) -> Result<ArtifactProgress, StoreError> {
        let (hash, bytes) = (hash.clone(), bytes.to_vec());
        write!(self, |transaction, hash, size_bytes, offset, bytes, at| artifact::append(
            transaction,
            hash,
            *size_bytes,
            *offset,
            bytes,
            *at
        ))?
    }
}
