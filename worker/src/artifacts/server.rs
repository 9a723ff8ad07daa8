//! Access to the server's artifacts from threads outside of the runtime.

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::time::Duration;

use nightshift_client::{Client, ClientError, Sink};
use nightshift_protocol::artifact::ArtifactHash;
use tokio::runtime::Handle;

use super::{ArtifactError, ArtifactStore, Transfer};
use nightshift_sandbox::process::CancelFlag;

/// Interval of checks whether the step was cancelled.
const CANCEL_INTERVAL: Duration = Duration::from_millis(20);
/// Delays before a transfer is resumed; together they are longer than the restart of a server.
const DELAYS: [Duration; 5] = [
    Duration::from_millis(100),
    Duration::from_millis(400),
    Duration::from_millis(1_500),
    Duration::from_secs(4),
    Duration::from_secs(8),
];

/// The server's artifacts. A broken transfer is resumed at its position. It ends when its step is cancelled.
#[derive(Debug, Clone)]
pub struct ServerArtifacts {
    client: Client,
    runtime: Handle,
}

impl ServerArtifacts {
    /// Calls of this client are driven by that runtime.
    #[must_use]
    pub fn new(client: Client, runtime: Handle) -> Self {
        Self { client, runtime }
    }

    fn unless_cancelled<T>(
        &self,
        cancel: &CancelFlag,
        transfer: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ArtifactError> {
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                () = cancelled(cancel) => Err(ArtifactError::Cancelled),
                done = transfer => Ok(done?),
            }
        })
    }
}

impl ArtifactStore for ServerArtifacts {
    fn fetch(&self, hash: &ArtifactHash, into: &mut File, transfer: &Transfer<'_>) -> Result<(), ArtifactError> {
        let client = self.client.in_trace(transfer.traceparent);
        let mut sink = FileSink { file: into, stored_bytes: 0 };
        self.unless_cancelled(transfer.cancel, async {
            let mut delays = DELAYS.into_iter();
            loop {
                let before = sink.stored_bytes;
                match client.download_artifact(hash, &mut sink).await {
                    Err(error) if error.is_transient() => {
                        if sink.stored_bytes > before {
                            delays = DELAYS.into_iter();
                        }
                        let Some(delay) = delays.next() else { return Err(error) };
                        tracing::debug!(artifact.hash = %hash, error = %error, "a download is taken up again");
                        tokio::time::sleep(delay).await;
                    }
                    other => return other,
                }
            }
        })
    }

    fn put(&self, bytes: &[u8], transfer: &Transfer<'_>) -> Result<ArtifactHash, ArtifactError> {
        let client = self.client.in_trace(transfer.traceparent);
        self.unless_cancelled(transfer.cancel, async {
            let mut delays = DELAYS.into_iter();
            loop {
                match client.put_artifact(bytes).await {
                    Err(error) if error.is_transient() => {
                        let Some(delay) = delays.next() else { return Err(error) };
                        tracing::debug!(error = %error, "an upload is taken up again");
                        tokio::time::sleep(delay).await;
                    }
                    other => return other,
                }
            }
        })
    }
}

async fn cancelled(cancel: &CancelFlag) {
    while !cancel.is_cancelled() {
        tokio::time::sleep(CANCEL_INTERVAL).await;
    }
}

/// A file for a download. The step's own thread writes it, which may block.
struct FileSink<'a> {
    file: &'a mut File,
    stored_bytes: u64,
}

impl Sink for FileSink<'_> {
    fn stored_bytes(&self) -> u64 {
        self.stored_bytes
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.stored_bytes += bytes.len() as u64;
        Ok(())
    }

    fn begin_again(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.stored_bytes = 0;
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    /// Starts a server that accepts connections and never answers.
    async fn silent() -> (tokio::net::TcpListener, ServerArtifacts) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = Client::new(&format!("http://{}", listener.local_addr().unwrap()), None).unwrap();
        (listener, ServerArtifacts::new(client, Handle::current()))
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_transfer_ends_when_its_step_is_cancelled() {
        let (listener, artifacts) = silent().await;
        let cancel = CancelFlag::default();
        let step = {
            let cancel = cancel.clone();
            std::thread::spawn(move || {
                let transfer = Transfer { cancel: &cancel, traceparent: None };
                let mut file = tempfile::tempfile().unwrap();
                let fetched = artifacts.fetch(&ArtifactHash::of(b"x"), &mut file, &transfer);
                (fetched, artifacts.put(b"y", &transfer))
            })
        };
        // The call has arrived: it would wait for its answer for minutes.
        let _open = listener.accept().await.unwrap();
        cancel.cancel();
        let (fetched, put) = tokio::task::spawn_blocking(|| step.join().unwrap()).await.unwrap();
        assert!(matches!(fetched, Err(ArtifactError::Cancelled)), "{fetched:?}");
        assert!(matches!(put, Err(ArtifactError::Cancelled)), "{put:?}");
    }
}
