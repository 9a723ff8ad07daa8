//! Artifacts in memory, for a process without a server.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use nightshift_protocol::artifact::ArtifactHash;

use super::{ArtifactError, ArtifactStore, Transfer};

/// Artifacts in memory.
#[derive(Debug, Default)]
pub struct MemoryArtifacts(Mutex<HashMap<ArtifactHash, Vec<u8>>>);

impl ArtifactStore for MemoryArtifacts {
    fn fetch(&self, hash: &ArtifactHash, into: &mut File, _: &Transfer<'_>) -> Result<(), ArtifactError> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = kept.get(hash).ok_or_else(|| ArtifactError::Server {
            code: "artifact.not_found".to_owned(),
            message: format!("there is no artifact {}", hash.short()),
            transient: false,
        })?;
        into.write_all(bytes).map_err(|source| ArtifactError::Io { path: PathBuf::new(), source })
    }

    fn put(&self, bytes: &[u8], _: &Transfer<'_>) -> Result<ArtifactHash, ArtifactError> {
        let hash = ArtifactHash::of(bytes);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(hash.clone(), bytes.to_vec());
        Ok(hash)
    }
}
