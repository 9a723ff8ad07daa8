//! Steps that wait for a worker or for a time.

use async_trait::async_trait;
use nightshift_engine::store::{QueueStore, StoreError};
use nightshift_protocol::time::TimestampMs;

use crate::catalog::{budget, step, timer};
use crate::store::SqlStore;

#[async_trait]
impl QueueStore for SqlStore {
    async fn ready_routes(&self, limit: u32) -> Result<Vec<String>, StoreError> {
        read!(self, |connection| step::ready_routes(connection, limit))
    }

    async fn fire_timers(&self, at: TimestampMs, limit: u32) -> Result<(u64, Option<TimestampMs>), StoreError> {
        let mut became_ready = 0;
        if self.around.memory.may_reconsider(at) {
            let campaigns = read!(self, |connection| budget::with_room(connection))?;
            let has_candidates = !campaigns.is_empty();
            let mut failed = false;
            for campaign_id in campaigns {
                match transaction!(self, |tx, campaign_id, at| budget::reconsider(tx, *campaign_id, *at)) {
                    Ok(count) => became_ready += count,
                    // The other campaigns and the timers go on.
                    Err(error) => {
                        failed = true;
                        tracing::warn!(campaign_id, error = %error, "blocked steps were not reconsidered");
                    }
                }
            }
            if has_candidates && became_ready == 0 && !failed {
                self.around.memory.reconsidered_without_success(at);
            }
        }
        let next = read!(self, |connection| timer::next(connection))?;
        if next.is_none_or(|next| next > at) {
            return Ok((became_ready, next));
        }
        let (fired, next) = transaction!(self, |tx, at, limit| timer::fire(tx, *at, *limit))?;
        Ok((became_ready + fired, next))
    }
}
