//! Live events: one stream, read event by event.

use std::time::Duration;

use nightshift_protocol::api::{LAST_EVENT_ID_HEADER, LiveEvent, LiveMessage};
use nightshift_protocol::id::{CampaignId, RunId};
use reqwest::Method;

use crate::error::ClientError;
use crate::transport::{Answer, Client};

/// Timeout of a stream. The server ends it earlier.
pub const MAX_LIVE: Duration = Duration::from_hours(24);
/// Maximum size of an event, in bytes.
pub const MAX_EVENT_BYTES: usize = 1 << 20;

impl Client {
    /// Opens a stream of changes from now on, optionally of one campaign or one run.
    ///
    /// `after` is the id of the caller's last event (see [`LiveStream::last_id`]). Later events follow, or
    /// [`LiveEvent::Resync`] if the server does not have them any more.
    pub async fn live(
        &self,
        campaign: Option<&CampaignId>,
        run: Option<&RunId>,
        after: Option<&str>,
    ) -> Result<LiveStream, ClientError> {
        let query = [("campaign", campaign.map(ToString::to_string)), ("run", run.map(ToString::to_string))];
        let mut request = self.request(Method::GET, self.url(&["live"], &query)).timeout(MAX_LIVE);
        if let Some(after) = after {
            request = request.header(LAST_EVENT_ID_HEADER, after);
        }
        let answer = self.open(request).await?;
        let last_id = after.map(str::to_owned);
        Ok(LiveStream { address: self.address(), answer, frames: Frames::default(), last_id })
    }
}

/// A stream of live events.
pub struct LiveStream {
    address: String,
    answer: Answer,
    frames: Frames,
    last_id: Option<String>,
}

impl std::fmt::Debug for LiveStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveStream").field("last_id", &self.last_id).finish_non_exhaustive()
    }
}

impl LiveStream {
    /// Returns the next event; none when the server ended the stream. Unknown events of a newer release are skipped.
    ///
    /// An idle server sends heartbeats. After three missing ones, close the stream and open it again.
    pub async fn next(&mut self) -> Result<Option<LiveMessage>, ClientError> {
        loop {
            while let Some(frame) = self.frames.take() {
                if let Some(id) = &frame.id {
                    self.last_id = Some(id.clone());
                }
                if let Ok(event) = serde_json::from_str::<LiveEvent>(&frame.data) {
                    return Ok(Some(LiveMessage { id: frame.id, event }));
                }
            }
            if self.frames.buffer.len() > MAX_EVENT_BYTES {
                return Err(ClientError::TooLarge { address: self.address.clone(), limit_bytes: MAX_EVENT_BYTES });
            }
            match self.answer.chunk().await? {
                Some(bytes) => self.frames.buffer.extend_from_slice(&bytes),
                None => return Ok(None),
            }
        }
    }

    /// Returns the id of the last event, from which a later stream continues.
    #[must_use]
    pub fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }
}

/// Splits a stream into its frames.
#[derive(Debug, Default)]
struct Frames {
    buffer: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
struct Frame {
    id: Option<String>,
    data: String,
}

impl Frames {
    /// Returns the next complete frame with data.
    fn take(&mut self) -> Option<Frame> {
        loop {
            let end = self.buffer.windows(2).position(|pair| pair == b"\n\n")?;
            let bytes: Vec<u8> = self.buffer.drain(..end + 2).collect();
            let text = String::from_utf8_lossy(&bytes);
            let mut frame = Frame { id: None, data: String::new() };
            for line in text.lines() {
                match line.split_once(": ") {
                    Some(("id", id)) => frame.id = Some(id.to_owned()),
                    Some(("data", data)) => frame.data.push_str(data),
                    _ => {}
                }
            }
            if !frame.data.is_empty() {
                return Some(frame);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_however_the_bytes_arrive() {
        let text =
            "retry: 1000\nid: a-1\nevent: opened\ndata: {\"x\":1}\n\n: a comment\n\nid: a-2\ndata: {}\n\nid: a-3";
        let mut frames = Frames::default();
        let mut found = Vec::new();
        for byte in text.bytes() {
            frames.buffer.push(byte);
            found.extend(std::iter::from_fn(|| frames.take()));
        }
        let frame = |id: &str, data: &str| Frame { id: Some(id.to_owned()), data: data.to_owned() };
        assert_eq!(found, [frame("a-1", "{\"x\":1}"), frame("a-2", "{}")]);
    }
}
