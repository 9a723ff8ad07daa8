//! Artifacts by hash: a local cache in front of the server, for the threads of steps.

mod cache;
mod memory;
mod server;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use nightshift_client::ClientError;
use nightshift_protocol::artifact::{ArtifactHash, MAX_ARTIFACT_BYTES};
use nightshift_protocol::step::StepFailure;

pub use self::cache::{ArtifactCache, MAX_CACHE_BYTES};
pub use self::memory::MemoryArtifacts;
pub use self::server::ServerArtifacts;
use nightshift_sandbox::process::CancelFlag;

/// The step of a transfer.
#[derive(Debug, Clone, Copy)]
pub struct Transfer<'a> {
    /// Cancels the transfer.
    pub cancel: &'a CancelFlag,
    /// Trace context of the step.
    pub traceparent: Option<&'a str>,
}

/// A store of artifacts. Blocks.
pub trait ArtifactStore: Send + Sync {
    /// Writes the bytes of an artifact into an empty file.
    fn fetch(&self, hash: &ArtifactHash, into: &mut File, transfer: &Transfer<'_>) -> Result<(), ArtifactError>;
    /// Stores an artifact. The call is idempotent.
    fn put(&self, bytes: &[u8], transfer: &Transfer<'_>) -> Result<ArtifactHash, ArtifactError>;
}

/// Access to artifacts for one step.
#[derive(Debug, Clone, Copy)]
pub struct StepArtifacts<'a> {
    cache: &'a ArtifactCache,
    transfer: Transfer<'a>,
}

impl<'a> StepArtifacts<'a> {
    /// Creates access for a step. Cancelling the step ends its transfers.
    #[must_use]
    pub fn new(cache: &'a ArtifactCache, transfer: Transfer<'a>) -> Self {
        Self { cache, transfer }
    }

    /// The bytes of an artifact.
    pub fn get(&self, hash: &ArtifactHash) -> Result<Vec<u8>, ArtifactError> {
        self.cache.get(hash, &self.transfer)
    }

    /// Writes an artifact to a file.
    pub fn copy_to(&self, hash: &ArtifactHash, path: &Path) -> Result<(), ArtifactError> {
        self.cache.copy_to(hash, path, &self.transfer)
    }

    /// Stores an artifact.
    pub fn put(&self, bytes: &[u8]) -> Result<ArtifactHash, ArtifactError> {
        self.cache.put(bytes, &self.transfer)
    }
}

/// The error of reading or storing an artifact.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// The call to the server failed.
    #[error("{message}")]
    Server {
        /// The server's code.
        code: String,
        /// The server's message.
        message: String,
        /// Whether the same call may succeed later.
        transient: bool,
    },
    /// The bytes do not have the requested hash.
    #[error("the artifact {} arrived damaged", hash.short())]
    Damaged {
        /// The hash.
        hash: ArtifactHash,
    },
    /// The artifact exceeds the size limit.
    #[error("{size_bytes} bytes are more than an artifact may have ({MAX_ARTIFACT_BYTES})")]
    TooLarge {
        /// Its size.
        size_bytes: usize,
    },
    /// The step was cancelled.
    #[error("the transfer was cancelled")]
    Cancelled,
    /// A local file could not be written.
    #[error("the artifact could not be written to {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl From<ClientError> for ArtifactError {
    fn from(error: ClientError) -> Self {
        Self::Server { code: error.code().to_owned(), message: error.to_string(), transient: error.is_transient() }
    }
}

impl From<ArtifactError> for StepFailure {
    fn from(error: ArtifactError) -> Self {
        let message = error.to_string();
        match error {
            ArtifactError::Server { code, transient: true, .. } => Self::retriable(code, message),
            ArtifactError::Server { code, .. } => Self::fatal(code, message),
            ArtifactError::Damaged { .. } => Self::retriable("artifact.damaged", message),
            ArtifactError::Cancelled => Self::retriable("step.cancelled", message),
            ArtifactError::TooLarge { .. } => Self::fatal("artifact.too_large", message),
            ArtifactError::Io { source, .. } => Self::retriable("worker.disk", format!("{message}: {source}")),
        }
    }
}

impl nightshift_toolchain::build::ArtifactSink for StepArtifacts<'_> {
    fn put(&self, bytes: &[u8]) -> Result<ArtifactHash, StepFailure> {
        Ok(StepArtifacts::put(self, bytes)?)
    }
}
