//! Artifacts, verified on both ways.

use std::time::Duration;

use nightshift_protocol::artifact::ArtifactHash;
use reqwest::Method;
use reqwest::header::CONTENT_TYPE;

use crate::error::ClientError;
use crate::transport::Client;

/// Longest time that the transfer of one artifact may take.
const TRANSFER_TIMEOUT: Duration = Duration::from_mins(5);

impl Client {
    /// The bytes of an artifact. Bytes that do not have this hash are an error.
    pub async fn get_artifact(&self, hash: &ArtifactHash) -> Result<Vec<u8>, ClientError> {
        let url = self.url(&["artifacts", hash.as_str()], &[]);
        let (_, bytes) = self.send(self.request(Method::GET, url).timeout(TRANSFER_TIMEOUT)).await?;
        if ArtifactHash::of(&bytes) == *hash { Ok(bytes) } else { Err(ClientError::Damaged { hash: hash.to_string() }) }
    }

    /// Stores an artifact under its hash. Repeating it is safe.
    pub async fn put_artifact(&self, bytes: &[u8]) -> Result<ArtifactHash, ClientError> {
        let hash = ArtifactHash::of(bytes);
        let url = self.url(&["artifacts", hash.as_str()], &[]);
        let request = self
            .request(Method::PUT, url)
            .timeout(TRANSFER_TIMEOUT)
            .header(CONTENT_TYPE, "application/octet-stream")
            .body(bytes.to_vec());
        self.send(request).await?;
        Ok(hash)
    }
}
