//! Hand-overs of campaigns to other machines.

use std::time::Duration;

use nightshift_protocol::api::{BeginHandover, HandoverDetail, HandoverFile, HandoverFinished};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::id::CampaignId;
use reqwest::Method;
use reqwest::header::CONTENT_TYPE;

use crate::download::Download;
use crate::error::ClientError;
use crate::transport::Client;

/// Timeout of a file transfer, including the time for steps in flight.
const TRANSFER_TIMEOUT: Duration = Duration::from_hours(1);

impl Client {
    /// Checks a campaign out. Steps in flight have `wait_s` seconds to end.
    pub async fn begin_handover(&self, id: &CampaignId, wait_s: u32) -> Result<HandoverDetail, ClientError> {
        let url = self.url(&["campaigns", id.as_str(), "handover"], &[]);
        self.json(self.request(Method::POST, url).timeout(TRANSFER_TIMEOUT).json(&BeginHandover { wait_s })).await
    }

    /// Streams the file of the campaign's hand-over, without the given artifacts, which the other machine has.
    pub async fn handover_file(&self, id: &CampaignId, without: Vec<ArtifactHash>) -> Result<Download, ClientError> {
        let url = self.url(&["campaigns", id.as_str(), "handover", "file"], &[]);
        let request = self.request(Method::POST, url).timeout(TRANSFER_TIMEOUT).json(&HandoverFile { without });
        Ok(Download::new(self.open(request).await?))
    }

    /// Cancels a hand-over without results.
    pub async fn cancel_handover(&self, id: &CampaignId) -> Result<HandoverDetail, ClientError> {
        let url = self.url(&["campaigns", id.as_str(), "handover", "cancel"], &[]);
        self.json(self.request(Method::POST, url)).await
    }

    /// Returns the results of another machine, given the bytes of their file.
    pub async fn finish_handover(&self, file: Vec<u8>) -> Result<HandoverFinished, ClientError> {
        let request = self
            .request(Method::POST, self.url(&["handovers", "finish"], &[]))
            .timeout(TRANSFER_TIMEOUT)
            .header(CONTENT_TYPE, "application/octet-stream")
            .body(file);
        self.json(request).await
    }
}
