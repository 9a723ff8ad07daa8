//! Artifacts by hash: a local folder before the server, for the threads that carry out steps.

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

/// For whom a transfer is made.
#[derive(Debug, Clone, Copy)]
pub struct Transfer<'a> {
    /// Ends it.
    pub cancel: &'a CancelFlag,
    /// Where it belongs in the run's trace.
    pub traceparent: Option<&'a str>,
}

/// Where artifacts come from and go to. Blocks.
pub trait ArtifactStore: Send + Sync {
    /// Writes the bytes of an artifact into an empty file.
    fn fetch(&self, hash: &ArtifactHash, into: &mut File, transfer: &Transfer<'_>) -> Result<(), ArtifactError>;
    /// Stores an artifact. Repeating it is safe.
    fn put(&self, bytes: &[u8], transfer: &Transfer<'_>) -> Result<ArtifactHash, ArtifactError>;
}

/// The artifacts, on behalf of one step.
#[derive(Debug, Clone, Copy)]
pub struct StepArtifacts<'a> {
    cache: &'a ArtifactCache,
    transfer: Transfer<'a>,
}

impl<'a> StepArtifacts<'a> {
    /// What this step transfers ends with it.
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

/// Why an artifact could not be had or stored.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// The server could not give or take it.
    #[error("{message}")]
    Server {
        /// The server's code.
        code: String,
        /// What it said.
        message: String,
        /// Whether the same call may succeed later.
        transient: bool,
    },
    /// The bytes do not have the hash that they were asked for by.
    #[error("the artifact {} arrived damaged", hash.short())]
    Damaged {
        /// The hash.
        hash: ArtifactHash,
    },
    /// It is larger than an artifact may be.
    #[error("{size_bytes} bytes are more than an artifact may have ({MAX_ARTIFACT_BYTES})")]
    TooLarge {
        /// Its size.
        size_bytes: usize,
    },
    /// The step that it was for is over.
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
