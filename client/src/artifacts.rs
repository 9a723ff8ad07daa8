//! Artifacts: verified in both directions, transferred in parts if large, and resumed after a broken connection.

use std::time::Duration;

use bytes::Bytes;
use nightshift_protocol::api::{MAX_UPLOAD_PART_BYTES, UPLOAD_OFFSET_HEADER, UPLOAD_SIZE_HEADER, UploadProgress};
use nightshift_protocol::artifact::{ArtifactHash, MAX_ARTIFACT_BYTES};
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, RANGE};
use reqwest::{Method, StatusCode};

use crate::download::{Download, number};
use crate::error::ClientError;
use crate::transport::Client;

/// Timeout of the transfer of one artifact, or of one part of it.
const TRANSFER_TIMEOUT: Duration = Duration::from_mins(5);
/// Maximum size for an upload in one piece. Asking for its progress would cost more than sending it again.
pub const MAX_WHOLE_UPLOAD_BYTES: usize = 1 << 20;
/// Maximum number of retries of a transfer without progress in between.
const MAX_STANDSTILLS: u32 = 2;

impl Client {
    /// Downloads an artifact. Bytes that do not match the hash are an error.
    pub async fn get_artifact(&self, hash: &ArtifactHash) -> Result<Vec<u8>, ClientError> {
        let mut bytes = Vec::new();
        self.download_artifact(hash, &mut bytes).await?;
        if ArtifactHash::of(&bytes) == *hash { Ok(bytes) } else { Err(ClientError::Damaged { hash: hash.to_string() }) }
    }

    /// Downloads an artifact into `sink`, from the current position of the sink.
    ///
    /// A broken connection is resumed while there is progress. After an error, another call with the same sink
    /// continues. The bytes are not verified: the sink's owner does that after the last byte.
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
            // Nothing begins at this offset: the sink has all bytes, or more than there are.
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
        // Without a declared length, a body may have been truncated.
        match download.size_bytes() {
            Some(size_bytes) if sink.stored_bytes() < size_bytes => {
                Err(ClientError::Cut { address: self.address(), stored_bytes: sink.stored_bytes(), size_bytes })
            }
            _ => Ok(()),
        }
    }

    /// Streams the bytes of an artifact from this offset on.
    pub async fn artifact_from(&self, hash: &ArtifactHash, offset: u64) -> Result<Download, ClientError> {
        let url = self.url(&["artifacts", hash.as_str()], &[]);
        let mut request = self.request(Method::GET, url).timeout(TRANSFER_TIMEOUT);
        if offset > 0 {
            request = request.header(RANGE, format!("bytes={offset}-"));
        }
        Ok(Download::new(self.open(request).await?))
    }

    /// Stores an artifact under its hash: a small one at once, a large one in parts. Parts that the server has are not
    /// sent.
    ///
    /// Repeating the call is safe, and continues where an earlier call failed.
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
        // Ask the server: after a broken connection, the stored length is unknown here.
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
                // A concurrent upload of the same artifact, or a lost answer: ask for the progress again.
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

    /// Returns the upload progress of an artifact; none if no part of it is stored.
    pub async fn upload_progress(&self, hash: &ArtifactHash) -> Result<Option<UploadProgress>, ClientError> {
        let url = self.url(&["artifacts", hash.as_str()], &[]);
        let headers = match self.send_with_headers(self.request(Method::HEAD, url)).await {
            Ok((_, headers, _)) => headers,
            Err(error) if error.status() == Some(StatusCode::NOT_FOUND.as_u16()) => return Ok(None),
            Err(error) => return Err(error),
        };
        // Without upload headers, the artifact is complete.
        let size_bytes = number(&headers, UPLOAD_SIZE_HEADER).or_else(|| number(&headers, CONTENT_LENGTH.as_str()));
        let size_bytes = size_bytes.unwrap_or_default();
        let stored_bytes = number(&headers, UPLOAD_OFFSET_HEADER);
        let complete = stored_bytes.is_none_or(|stored| stored >= size_bytes);
        Ok(Some(UploadProgress { size_bytes, stored_bytes: stored_bytes.unwrap_or(size_bytes), complete }))
    }

    /// Sends a part of an artifact: at most [`MAX_UPLOAD_PART_BYTES`], at the server's current length.
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

/// The receiver of a download.
pub trait Sink {
    /// Returns the number of received bytes.
    fn stored_bytes(&self) -> u64;
    /// Appends bytes.
    fn append(&mut self, bytes: &[u8]) -> std::io::Result<()>;
    /// Discards all bytes: the download starts again.
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
