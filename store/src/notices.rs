//! What commits bring about, told to whoever listens in this process. A hint, never the truth.

use std::collections::HashSet;

use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use nightshift_engine::store::Notice;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::mpsc;

/// Notices that a slow listener may be behind; then it gets [`Notice::Unknown`] for what was dropped.
const MAX_BEHIND: usize = 4_096;
/// Bundles that wait for being told to other processes.
const MAX_BUNDLES: usize = 256;

/// Where notices go.
#[derive(Debug, Clone)]
pub(crate) struct Notices {
    local: broadcast::Sender<Notice>,
    remote: Option<mpsc::Sender<HashSet<Notice>>>,
}

impl Notices {
    /// For this process alone.
    pub(crate) fn local() -> Self {
        Self { local: broadcast::channel(MAX_BEHIND).0, remote: None }
    }

    /// For other processes too; what comes out of the receiver has to be told to them.
    pub(crate) fn shared() -> (Self, mpsc::Receiver<HashSet<Notice>>) {
        let (remote, receiver) = mpsc::channel(MAX_BUNDLES);
        (Self { remote: Some(remote), ..Self::local() }, receiver)
    }

    /// Tells what a commit brought about.
    pub(crate) fn send(&self, notices: HashSet<Notice>) {
        if notices.is_empty() {
            return;
        }
        for notice in &notices {
            self.send_local(notice.clone());
        }
        if let Some(remote) = &self.remote {
            // Others look by themselves before long: a queue that is full delays them, and us not at all.
            let _dropped = remote.try_send(notices);
        }
    }

    /// Tells what another process committed.
    pub(crate) fn send_local(&self, notice: Notice) {
        // Without listeners there is nobody to tell.
        let _nobody = self.local.send(notice);
    }

    /// What is told from now on.
    pub(crate) fn stream(&self) -> BoxStream<'static, Notice> {
        stream::unfold(self.local.subscribe(), |mut receiver| async move {
            match receiver.recv().await {
                Ok(notice) => Some((notice, receiver)),
                Err(RecvError::Lagged(_)) => Some((Notice::Unknown, receiver)),
                Err(RecvError::Closed) => None,
            }
        })
        .boxed()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_is_too_slow_hears_that_something_happened() {
        let notices = Notices::local();
        let mut stream = notices.stream();
        for number in 0..=MAX_BEHIND {
            notices.send(HashSet::from([Notice::Ready(number.to_string())]));
        }
        assert_eq!(stream.next().await.unwrap(), Notice::Unknown);
        assert_eq!(stream.next().await.unwrap(), Notice::Ready("1".to_owned()));
    }
}
