//! Artifacts: verified on both ways, large ones in parts, and gone on with where a broken connection left off.

use std::time::Duration;

use bytes::Bytes;
use nightshift_protocol::api::{MAX_UPLOAD_PART_BYTES, UPLOAD_OFFSET_HEADER, UPLOAD_SIZE_HEADER, UploadProgress};
use nightshift_protocol::artifact::{ArtifactHash, MAX_ARTIFACT_BYTES};
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, RANGE};
use reqwest::{Method, StatusCode};

use crate::download::{Download, number};
use crate::error::ClientError;
use crate::transport::Client;

/// Longest time that the transfer of one artifact, or of a part of it, may take.
const TRANSFER_TIMEOUT: Duration = Duration::from_mins(5);
/// Up to this size an artifact goes in one piece: asking how far it is would cost more than sending it again.
pub const MAX_WHOLE_UPLOAD_BYTES: usize = 1 << 20;
/// How often a transfer is taken up again without any progress in between.
const MAX_STANDSTILLS: u32 = 2;

impl Client {
    /// The bytes of an artifact. Bytes that do not have this hash are an error.
    pub async fn get_artifact(&self, hash: &ArtifactHash) -> Result<Vec<u8>, ClientError> {
        let mut bytes = Vec::new();
        self.download_artifact(hash, &mut bytes).await?;
        if ArtifactHash::of(&bytes) == *hash { Ok(bytes) } else { Err(ClientError::Damaged { hash: hash.to_string() }) }
    }

    /// Takes the bytes of an artifact into `sink`, from where it stands. A connection that breaks is taken up again
    /// where it broke, while there is progress; after an error, another call with the same sink goes on. The bytes are
    /// not verified: the sink's owner does that once all are there.
    pub async fn download_artifact<S: Sink>(&self, hash: &ArtifactHash, sink: &mut S) -> Result<(), ClientError> {
        let mut standstills = 0;
        loop {
            let before = sink.stored_bytes();
            match self.download_rest(hash, sink).await {
                Ok(()) => return Ok(()),
                Err(error) if error.is_transient() => {
                    standstills = if sink.stored_bytes() > before { 0 } else { standstills + 1 };
                    if standstills > MAX_STANDSTILLS {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn download_rest<S: Sink>(&self, hash: &ArtifactHash, sink: &mut S) -> Result<(), ClientError> {
        let already = sink.stored_bytes();
        let mut download = match self.artifact_from(hash, already).await {
            // Nothing begins there: all is here already, or more than there is.
            Err(error) if already > 0 && error.status() == Some(StatusCode::RANGE_NOT_SATISFIABLE.as_u16()) => {
                return Ok(());
            }
            other => other?,
        };
        if download.begins_at() != already {
            if download.begins_at() != 0 {
                return Err(ClientError::Damaged { hash: hash.to_string() });
            }
            sink.begin_again().map_err(|source| ClientError::Sink { source })?;
        }
        let limit_bytes = MAX_ARTIFACT_BYTES;
        while let Some(bytes) = download.next().await? {
            let size_bytes = sink.stored_bytes().saturating_add(bytes.len() as u64);
            if size_bytes > limit_bytes as u64 {
                return Err(ClientError::TooLarge { address: self.address(), limit_bytes });
            }
            sink.append(&bytes).map_err(|source| ClientError::Sink { source })?;
        }
        // A body whose end was announced by nothing but its end may have been cut.
        match download.size_bytes() {
            Some(size_bytes) if sink.stored_bytes() < size_bytes => {
                Err(ClientError::Cut { address: self.address(), stored_bytes: sink.stored_bytes(), size_bytes })
            }
            _ => Ok(()),
        }
    }

    /// The bytes of an artifact from this one on, as they come.
    pub async fn artifact_from(&self, hash: &ArtifactHash, offset: u64) -> Result<Download, ClientError> {
        let url = self.url(&["artifacts", hash.as_str()], &[]);
        let mut request = self.request(Method::GET, url).timeout(TRANSFER_TIMEOUT);
        if offset > 0 {
            request = request.header(RANGE, format!("bytes={offset}-"));
        }
        Ok(Download::new(self.open(request).await?))
    }

    /// Stores an artifact under its hash: a small one at once, a large one in parts, of which a server that has some
    /// already is only sent the rest. Repeating it is safe, and goes on where an earlier call failed.
    pub async fn put_artifact(&self, bytes: &[u8]) -> Result<ArtifactHash, ClientError> {
        let hash = ArtifactHash::of(bytes);
        if bytes.len() <= MAX_WHOLE_UPLOAD_BYTES {
            let url = self.url(&["artifacts", hash.as_str()], &[]);
            let request = self
                .request(Method::PUT, url)
                .timeout(TRANSFER_TIMEOUT)
                .header(CONTENT_TYPE, "application/octet-stream")
                .body(bytes.to_vec());
            self.send(request).await?;
        } else {
            self.put_in_parts(&hash, bytes).await?;
        }
        Ok(hash)
    }

    async fn put_in_parts(&self, hash: &ArtifactHash, bytes: &[u8]) -> Result<(), ClientError> {
        let size_bytes = bytes.len() as u64;
        let (mut furthest, mut standstills) = (0, 0);
        // The server's word counts: after a broken connection, what of a part arrived is not known here.
        let mut known: Option<u64> = None;
        loop {
            let sent = match known {
                None => self.upload_progress(hash).await.map(|progress| {
                    progress.unwrap_or(UploadProgress { size_bytes, stored_bytes: 0, complete: false })
                }),
                Some(offset) => {
                    let begin = usize::try_from(offset).unwrap_or(bytes.len()).min(bytes.len());
                    let end = (begin + MAX_UPLOAD_PART_BYTES).min(bytes.len());
                    let part = bytes.get(begin..end).unwrap_or_default();
                    self.put_artifact_part(hash, size_bytes, offset, Bytes::copy_from_slice(part)).await
                }
            };
            match sent {
                Ok(progress) if progress.complete => return Ok(()),
                Ok(progress) => {
                    let answers_part = known.replace(progress.stored_bytes).is_some();
                    if progress.stored_bytes > furthest {
                        (furthest, standstills) = (progress.stored_bytes, 0);
                    } else if answers_part {
                        standstills += 1;
                    }
                    if standstills > MAX_STANDSTILLS {
                        let stored_bytes = progress.stored_bytes;
                        return Err(ClientError::Cut { address: self.address(), stored_bytes, size_bytes });
                    }
                }
                // Somebody else uploads the same, or the answer to a part was lost: ask again where it stands.
                Err(error) if error.is_transient() || error.status() == Some(StatusCode::CONFLICT.as_u16()) => {
                    standstills += 1;
                    if standstills > MAX_STANDSTILLS {
                        return Err(error);
                    }
                    known = None;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// How far the upload of an artifact is; none when nothing of it is there.
    pub async fn upload_progress(&self, hash: &ArtifactHash) -> Result<Option<UploadProgress>, ClientError> {
        let url = self.url(&["artifacts", hash.as_str()], &[]);
        let headers = match self.send_with_headers(self.request(Method::HEAD, url)).await {
            Ok((_, headers, _)) => headers,
            Err(error) if error.status() == Some(StatusCode::NOT_FOUND.as_u16()) => return Ok(None),
            Err(error) => return Err(error),
        };
        // Without headers of an upload it is an artifact as any other: whole.
        let size_bytes = number(&headers, UPLOAD_SIZE_HEADER).or_else(|| number(&headers, CONTENT_LENGTH.as_str()));
        let size_bytes = size_bytes.unwrap_or_default();
        let stored_bytes = number(&headers, UPLOAD_OFFSET_HEADER);
        let complete = stored_bytes.is_none_or(|stored| stored >= size_bytes);
        Ok(Some(UploadProgress { size_bytes, stored_bytes: stored_bytes.unwrap_or(size_bytes), complete }))
    }

    /// Sends a part of an artifact: at most [`MAX_UPLOAD_PART_BYTES`], at the offset up to which the server has it.
    pub async fn put_artifact_part(
        &self,
        hash: &ArtifactHash,
        size_bytes: u64,
        offset: u64,
        part: Bytes,
    ) -> Result<UploadProgress, ClientError> {
        let request = self
            .request(Method::PATCH, self.url(&["artifacts", hash.as_str()], &[]))
            .timeout(TRANSFER_TIMEOUT)
            .header(CONTENT_TYPE, "application/octet-stream")
            .header(UPLOAD_SIZE_HEADER, size_bytes)
            .header(UPLOAD_OFFSET_HEADER, offset)
            .body(part);
        self.json(request).await
    }
}

/// What takes the bytes of a download.
pub trait Sink {
    /// How many it has.
    fn stored_bytes(&self) -> u64;
    /// Takes further ones.
    fn append(&mut self, bytes: &[u8]) -> std::io::Result<()>;
    /// Forgets all: they come again from the first.
    fn begin_again(&mut self) -> std::io::Result<()>;
}

impl Sink for Vec<u8> {
    fn stored_bytes(&self) -> u64 {
        self.len() as u64
    }

    fn append(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.extend_from_slice(bytes);
        Ok(())
    }

    fn begin_again(&mut self) -> std::io::Result<()> {
        self.clear();
        Ok(())
    }
}
