//! Rows of a campaign on their way into an archive: compressed into a file of their own, because the first line of an
//! archive counts what follows, and because no transaction is open while a client reads.

use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use nightshift_engine::store::{ArtifactNames, RowSink, StoreError};
use nightshift_protocol::archive::{ArchiveDigest, ArchiveError, ArchiveLine};
use nightshift_protocol::artifact::ArtifactHash;
use serde_json::Value;
use zstd::stream::write::Encoder;

/// Why rows could not be written down.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpoolError {
    /// A row cannot be written as JSON.
    #[error(transparent)]
    Format(#[from] ArchiveError),
    /// The hash of an artifact cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file could not be written or read.
    #[error("the rows of an archive could not be kept in the folder for temporary files: {0}")]
    File(#[from] std::io::Error),
    /// Writing broke down.
    #[error("writing the rows of an archive broke down")]
    Broken,
}

/// Takes rows and keeps them compressed in a file without a name, which ends with this value.
pub(crate) struct Spool(Arc<Mutex<Option<Writing>>>);

struct Writing {
    encoder: Encoder<'static, BufWriter<File>>,
    digest: ArchiveDigest,
    artifacts: ArtifactNames,
    rows: u64,
}

/// The rows of an archive.
pub(crate) struct Spooled {
    /// Their compressed lines: a frame of zstd.
    file: File,
    /// The digest of the archive, so far.
    pub(crate) digest: ArchiveDigest,
    /// The artifacts that they name.
    pub(crate) artifacts: Vec<ArtifactHash>,
    /// How many there are.
    pub(crate) rows: u64,
}

impl Spool {
    /// An empty one.
    pub(crate) fn new(level: i32) -> Result<Self, SpoolError> {
        let encoder = Encoder::new(BufWriter::new(tempfile::tempfile()?), level)?;
        let (digest, artifacts, rows) = (ArchiveDigest::default(), ArtifactNames::default(), 0);
        Ok(Self(Arc::new(Mutex::new(Some(Writing { encoder, digest, artifacts, rows })))))
    }

    /// Returns what was taken, to be read from its beginning.
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
    /// The next part of the compressed lines, at most so many bytes; empty at their end.
    pub(crate) async fn part(self, max_bytes: u64) -> Result<(Self, Vec<u8>), SpoolError> {
        off_the_runtime(move || {
            let mut part = Vec::new();
            (&self.file).take(max_bytes).read_to_end(&mut part)?;
            Ok((self, part))
        })
        .await
    }
}

/// Compressing and reading files take their time.
async fn off_the_runtime<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SpoolError> + Send + 'static,
) -> Result<T, SpoolError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| SpoolError::Broken)?
}
