//! A server that dies without a shutdown. It runs on a thread and a runtime of its own, which are stopped.

use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;

use nightshift_protocol::api::CampaignCreated;
use nightshift_protocol::id::RunId;
use tokio::sync::Notify;

use crate::setup::TestServer;

/// The server.
pub(crate) struct Doomed {
    server: Arc<TestServer>,
    end: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

impl Doomed {
    /// Starts the server on a single thread, so a blocked task blocks the whole server.
    pub(crate) fn start<F, S>(start: F) -> Self
    where
        F: FnOnce() -> S + Send + 'static,
        S: Future<Output = TestServer>,
    {
        let end = Arc::new(Notify::new());
        let (say, hear) = mpsc::channel();
        let thread = std::thread::spawn({
            let end = end.clone();
            move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let server = Arc::new(start().await);
                    say.send(server.clone()).unwrap();
                    end.notified().await;
                });
                // Every task is dropped immediately: nothing is drained or retired.
                runtime.shutdown_background();
            }
        });
        let server = tokio::task::block_in_place(|| hear.recv().unwrap());
        Self { server, end, thread: Some(thread) }
    }

    /// Creates a campaign with one task.
    pub(crate) fn campaign(&self) -> (CampaignCreated, RunId) {
        self.with(async |server: &TestServer| server.campaign().await)
    }

    /// Calls the server like a client, on the test's own runtime.
    pub(crate) fn with<T>(&self, call: impl AsyncFnOnce(&TestServer) -> T) -> T {
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(call(&self.server)))
    }

    /// Kills the server.
    pub(crate) fn kill(mut self) {
        self.end.notify_one();
        if let Some(thread) = self.thread.take() {
            tokio::task::block_in_place(|| thread.join().unwrap());
        }
    }
}
