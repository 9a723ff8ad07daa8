//! Methods of the port for artifacts that need more than one operation.

use nightshift_engine::store::{ArtifactProgress, ModelCallRecord, Store as _, StoreError};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::time::TimestampMs;

use crate::direct::{artifact, model_call};
use crate::store::SqlStore;

impl SqlStore {
    /// Stores a whole blob, or renews it if it is stored.
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
            // It may be deleted in between.
            if transaction!(self, |tx, same, at| artifact::renew(tx.connection, same, *at))? {
                return Ok(());
            }
        }
        let (hash, bytes) = (hash.clone(), bytes.to_vec());
        transaction!(self, |tx, hash, bytes, at| artifact::put(tx.connection, hash, bytes, *at))
    }

    /// Renews an old artifact. Returns its upload progress.
    pub(crate) async fn renew_old_artifact(
        &self,
        hash: &ArtifactHash,
        at: TimestampMs,
    ) -> Result<Option<ArtifactProgress>, StoreError> {
        if read!(self, |connection| artifact::is_old(connection, hash, at))? {
            let hash = hash.clone();
            transaction!(self, |tx, hash, at| artifact::renew(tx.connection, hash, *at))?;
        }
        self.artifact_progress(hash).await
    }

    /// Stores a model call with artifacts whose bytes match their hashes.
    pub(crate) async fn keep_model_call(
        &self,
        call: ModelCallRecord,
        artifacts: Vec<(ArtifactHash, Vec<u8>)>,
    ) -> Result<(), StoreError> {
        for (hash, bytes) in &artifacts {
            artifact::check(hash, bytes)?;
        }
        transaction!(self, |tx, call, artifacts| model_call::record(tx, call, artifacts))
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
        transaction!(self, |tx, hash, size_bytes, offset, bytes, at| artifact::append(
            tx,
            hash,
            *size_bytes,
            *offset,
            bytes,
            *at
        ))?
    }
}
