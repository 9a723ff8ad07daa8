//! The part of the port for those who watch, one line per method.

use async_trait::async_trait;
use nightshift_engine::store::{RunMark, RunStamp, StoreError, WatchStore};
use nightshift_protocol::id::RunId;

use crate::direct::watch;
use crate::store::SqlStore;

#[async_trait]
impl WatchStore for SqlStore {
    async fn run_marks(&self, runs: &[RunId]) -> Result<Vec<RunMark>, StoreError> {
        read!(self, |connection| watch::marks(connection, runs))
    }

    async fn run_stamps(&self, limit: u32) -> Result<Vec<RunStamp>, StoreError> {
        read!(self, |connection| watch::stamps(connection, limit))
    }
}
