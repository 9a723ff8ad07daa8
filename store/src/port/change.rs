//! Hot changes, which the tasks of the writer commit.

use async_trait::async_trait;
use nightshift_engine::store::{Change, ChangeStore, Changed, StoreError};

use crate::store::SqlStore;

#[async_trait]
impl ChangeStore for SqlStore {
    async fn commit(&self, changes: Vec<Change>) -> Result<Vec<Changed>, StoreError> {
        self.writer.commit(changes).await
    }
}
