//! Reads an archive while it arrives: decompresses in small steps, splits lines, and stores artifacts.

use axum::body::Body;
use futures::StreamExt;
use nightshift_engine::store::{StoreError, store_unpacked};
use nightshift_protocol::archive::{ArchiveError, ArchiveReader, MAX_ARCHIVE_LINE_BYTES, Unpacked, UnpackedArtifact};
use nightshift_protocol::handover::{HandoverError, HandoverReader, UnpackedHandover};
use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

use crate::api::handover_admission;
use crate::error::ApiFailure;
use crate::shared::Shared;

/// Bytes decompressed at a time, because a small input may expand without limit.
const STEP_BYTES: usize = 128 * 1024;
/// Size from which a line counts as large.
const LARGE_LINE_BYTES: usize = 1024 * 1024;

/// Why an archive was not read completely.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnpackError {
    /// The file is invalid.
    #[error(transparent)]
    File(#[from] HandoverError),
    /// An artifact could not be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file is refused here.
    #[error("{}", .0.message())]
    Refused(ApiFailure),
    /// The connection broke.
    #[error("the body arrived incompletely")]
    Incomplete,
}

impl From<ArchiveError> for UnpackError {
    fn from(error: ArchiveError) -> Self {
        Self::File(error.into())
    }
}

/// A line-based reader of an archive or of a hand-over file.
pub(crate) trait Lines: Default + Send + 'static {
    /// The content of a complete file.
    type Content;

    /// Refuses a file based on the lines read so far, before the first artifact is stored.
    async fn admit(&self, shared: &Shared) -> Result<(), UnpackError>;

    /// Accepts the next line, and returns its artifact.
    fn accept(&mut self, line: &[u8]) -> Result<Option<UnpackedArtifact>, HandoverError>;

    /// Returns the content if the file was complete.
    fn finish(self) -> Result<Self::Content, HandoverError>;
}

impl Lines for ArchiveReader {
    type Content = Unpacked;

    async fn admit(&self, _shared: &Shared) -> Result<(), UnpackError> {
        Ok(())
    }

    fn accept(&mut self, line: &[u8]) -> Result<Option<UnpackedArtifact>, HandoverError> {
        Ok(Self::accept(self, line)?)
    }

    fn finish(self) -> Result<Unpacked, HandoverError> {
        Ok(Self::finish(self)?)
    }
}

impl Lines for HandoverReader {
    type Content = UnpackedHandover;

    async fn admit(&self, shared: &Shared) -> Result<(), UnpackError> {
        handover_admission::admit(shared, self).await.map_err(UnpackError::Refused)
    }

    fn accept(&mut self, line: &[u8]) -> Result<Option<UnpackedArtifact>, HandoverError> {
        Self::accept(self, line)
    }

    fn finish(self) -> Result<UnpackedHandover, HandoverError> {
        Self::finish(self)
    }
}

/// Unpacks a file.
pub(crate) struct Unpacker<'a, R> {
    shared: &'a Shared,
    max_bytes: u64,
    reader: R,
    is_admitted: bool,
    line: Vec<u8>,
}

impl<'a, R: Lines> Unpacker<'a, R> {
    /// Creates an unpacker for a file of at most `max_bytes`, as sent.
    pub(crate) fn new(shared: &'a Shared, max_bytes: u64) -> Self {
        Self { shared, max_bytes, reader: R::default(), is_admitted: false, line: Vec::new() }
    }

    /// Stores the artifacts of the file and returns its other content.
    pub(crate) async fn unpack(mut self, body: Body) -> Result<R::Content, UnpackError> {
        let mut decoder = Decoder::new().map_err(|error| unreadable(&error))?;
        let mut output = vec![0; STEP_BYTES];
        let mut taken_bytes = 0;
        // Whether the decompressor is at the end of a frame. A file that ends within a frame is truncated.
        let mut is_whole = true;
        let mut chunks = body.into_data_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|_| UnpackError::Incomplete)?;
            taken_bytes += u64::try_from(chunk.len()).unwrap_or(u64::MAX);
            if taken_bytes > self.max_bytes {
                return Err(ArchiveError::TooLarge(format!("it has more than {} bytes", self.max_bytes)).into());
            }
            let mut input = InBuffer::around(&chunk);
            loop {
                let before = input.pos();
                let mut out = OutBuffer::around(output.as_mut_slice());
                let hint = decoder.run(&mut input, &mut out).map_err(|error| unreadable(&error))?;
                let made = out.pos();
                // A call without input returns the needs of the next frame.
                if made > 0 || input.pos() > before {
                    is_whole = hint == 0;
                }
                self.take(&output[..made]).await?;
                // After a full output, more output may be pending.
                if input.pos() == chunk.len() && made < STEP_BYTES {
                    break;
                }
            }
        }
        if taken_bytes == 0 {
            return Err(ArchiveError::Unreadable("it is empty".to_owned()).into());
        }
        if !is_whole || !self.line.is_empty() {
            return Err(ArchiveError::Cut.into());
        }
        Ok(self.reader.finish()?)
    }

    async fn take(&mut self, mut bytes: &[u8]) -> Result<(), UnpackError> {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.line.extend_from_slice(&bytes[..end]);
            bytes = &bytes[end + 1..];
            let line = std::mem::take(&mut self.line);
            if let Some(artifact) = self.accept(line).await? {
                if !self.is_admitted {
                    self.reader.admit(self.shared).await?;
                    self.is_admitted = true;
                }
                store_unpacked(&*self.shared.store.artifacts, &artifact, self.shared.clock.now()).await?;
            }
        }
        if self.line.len() + bytes.len() > MAX_ARCHIVE_LINE_BYTES {
            return Err(ArchiveError::TooLarge(format!("a line has more than {MAX_ARCHIVE_LINE_BYTES} bytes")).into());
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    /// Accepts a line. A large line is decoded and hashed outside of the runtime's threads.
    async fn accept(&mut self, line: Vec<u8>) -> Result<Option<UnpackedArtifact>, UnpackError> {
        if line.len() < LARGE_LINE_BYTES {
            return Ok(self.reader.accept(&line)?);
        }
        let mut reader = std::mem::take(&mut self.reader);
        let reading = tokio::task::spawn_blocking(move || {
            let read = reader.accept(&line);
            (reader, read)
        });
        let (reader, read) = reading.await.map_err(|_| UnpackError::Incomplete)?;
        self.reader = reader;
        Ok(read?)
    }
}

fn unreadable(error: &std::io::Error) -> ArchiveError {
    ArchiveError::Unreadable(format!("it is not compressed with zstd, or damaged: {error}"))
}
