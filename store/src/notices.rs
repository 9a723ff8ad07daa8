//! Broadcasts notices about commits within this process. A notice is a hint: receivers check the store.

use std::collections::HashSet;

use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use nightshift_engine::store::Notice;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::mpsc;

/// Maximum lag of a receiver, in notices. Beyond it, [`Notice::Unknown`] replaces the dropped notices.
const MAX_BEHIND: usize = 4_096;
/// Capacity of the queue to other processes, in batches.
const MAX_BUNDLES: usize = 256;

/// The broadcaster.
#[derive(Debug, Clone)]
pub(crate) struct Notices {
    local: broadcast::Sender<Notice>,
    remote: Option<mpsc::Sender<HashSet<Notice>>>,
}

impl Notices {
    /// Creates a broadcaster for this process alone.
    pub(crate) fn local() -> Self {
        Self { local: broadcast::channel(MAX_BEHIND).0, remote: None }
    }

    /// Creates a broadcaster for other processes too. The caller forwards the batches of the receiver to them.
    pub(crate) fn shared() -> (Self, mpsc::Receiver<HashSet<Notice>>) {
        let (remote, receiver) = mpsc::channel(MAX_BUNDLES);
        (Self { remote: Some(remote), ..Self::local() }, receiver)
    }

    /// Broadcasts the notices of a commit.
    pub(crate) fn send(&self, notices: HashSet<Notice>) {
        if notices.is_empty() {
            return;
        }
        for notice in &notices {
            self.send_local(notice.clone());
        }
        if let Some(remote) = &self.remote {
            // Other processes poll anyway: a full queue delays them, and must not block this process.
            let _dropped = remote.try_send(notices);
        }
    }

    /// Broadcasts a notice of another process.
    pub(crate) fn send_local(&self, notice: Notice) {
        // Without receivers, the notice is dropped.
        let _dropped = self.local.send(notice);
    }

    /// Returns the notices from now on.
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
    async fn a_slow_receiver_gets_an_unknown_notice() {
        let notices = Notices::local();
        let mut stream = notices.stream();
        for number in 0..=MAX_BEHIND {
            notices.send(HashSet::from([Notice::Ready(number.to_string())]));
        }
        assert_eq!(stream.next().await.unwrap(), Notice::Unknown);
        assert_eq!(stream.next().await.unwrap(), Notice::Ready("1".to_owned()));
    }
}
