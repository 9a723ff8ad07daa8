//! Temporary storage of a campaign's rows during an export: a compressed file.
//!
//! The first line of an archive counts the following ones, and no transaction stays open while a client reads.

use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use nightshift_engine::store::{ArtifactNames, RowSink, StoreError};
use nightshift_protocol::archive::{ArchiveDigest, ArchiveError, ArchiveLine};
use nightshift_protocol::artifact::ArtifactHash;
use serde_json::Value;
use zstd::stream::write::Encoder;

/// Why rows could not be stored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpoolError {
    /// A row cannot be written as JSON.
    #[error(transparent)]
    Format(#[from] ArchiveError),
    /// The hash of an artifact cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file could not be written or read.
    #[error("the rows of an archive could not be stored in the folder for temporary files: {0}")]
    File(#[from] std::io::Error),
    /// Writing failed before.
    #[error("writing the rows of an archive failed")]
    Broken,
}

/// Compresses rows into an unnamed file, which is deleted with this value.
pub(crate) struct Spool(Arc<Mutex<Option<Writing>>>);

struct Writing {
    encoder: Encoder<'static, BufWriter<File>>,
    digest: ArchiveDigest,
    artifacts: ArtifactNames,
    rows: u64,
}

/// The rows of an archive.
pub(crate) struct Spooled {
    /// The compressed lines: a zstd frame.
    file: File,
    /// The digest of the archive, so far.
    pub(crate) digest: ArchiveDigest,
    /// The artifacts that the rows reference.
    pub(crate) artifacts: Vec<ArtifactHash>,
    /// Number of rows.
    pub(crate) rows: u64,
}

impl Spool {
    /// Creates an empty spool.
    pub(crate) fn new(level: i32) -> Result<Self, SpoolError> {
        let encoder = Encoder::new(BufWriter::new(tempfile::tempfile()?), level)?;
        let (digest, artifacts, rows) = (ArchiveDigest::default(), ArtifactNames::default(), 0);
        Ok(Self(Arc::new(Mutex::new(Some(Writing { encoder, digest, artifacts, rows })))))
    }

    /// Returns the stored rows, positioned at the beginning.
    pub(crate) async fn finish(&self) -> Result<Spooled, SpoolError> {
        let writing = self.0.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or(SpoolError::Broken)?;
        off_the_runtime(move || {
            let mut file = writing.encoder.finish()?.into_inner().map_err(std::io::IntoInnerError::into_error)?;
            file.seek(SeekFrom::Start(0))?;
            let artifacts = writing.artifacts.into_hashes()?;
            Ok(Spooled { file, digest: writing.digest, artifacts, rows: writing.rows })
        })
        .await
    }
}

impl Writing {
    fn write(&mut self, row: Value) -> Result<(), SpoolError> {
        self.digest.row(&row)?;
        self.artifacts.note(&row);
        self.rows += 1;
        Ok(self.encoder.write_all(ArchiveLine::Row { row }.to_text()?.as_bytes())?)
    }
}

#[async_trait]
impl RowSink for Spool {
    async fn take(&self, rows: Vec<Value>) -> Result<(), StoreError> {
        let writing = Arc::clone(&self.0);
        let written = off_the_runtime(move || {
            let mut writing = writing.lock().unwrap_or_else(PoisonError::into_inner);
            let writing = writing.as_mut().ok_or(SpoolError::Broken)?;
            rows.into_iter().try_for_each(|row| writing.write(row))
        });
        written.await.map_err(|error| StoreError::Other(error.to_string()))
    }
}

impl Spooled {
    /// Returns the next part of the compressed lines, of at most `max_bytes` bytes; empty at the end.
    pub(crate) async fn part(self, max_bytes: u64) -> Result<(Self, Vec<u8>), SpoolError> {
        off_the_runtime(move || {
            let mut part = Vec::new();
            (&self.file).take(max_bytes).read_to_end(&mut part)?;
            Ok((self, part))
        })
        .await
    }
}

/// Runs blocking work, such as compressing and reading files, outside of the runtime's threads.
async fn off_the_runtime<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SpoolError> + Send + 'static,
) -> Result<T, SpoolError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| SpoolError::Broken)?
}
