//! Steps that wait for a worker or for a time.

use async_trait::async_trait;
use nightshift_engine::store::{QueueStore, StoreError};
use nightshift_protocol::time::TimestampMs;

use crate::catalog::{blocked, budget, step, timer};
use crate::store::SqlStore;

#[async_trait]
impl QueueStore for SqlStore {
    async fn ready_routes(&self, limit: u32) -> Result<Vec<String>, StoreError> {
        read!(self, |connection| step::ready_routes(connection, limit))
    }

    async fn fire_timers(&self, at: TimestampMs, limit: u32) -> Result<(u64, Option<TimestampMs>), StoreError> {
        let (mut became_ready, mut next) = (0, read!(self, |connection| timer::next(connection))?);
        if next.is_some_and(|next| next <= at) {
            (became_ready, next) = transaction!(self, |tx, at, limit| timer::fire(tx, *at, *limit))?;
        }
        let memory = &self.around.memory;
        if !memory.may_reconsider(at) {
            return Ok((became_ready, next));
        }
        let campaigns = read!(self, |connection| blocked::with_room(connection))?;
        for campaign_id in memory.to_reconsider(campaigns, at) {
            let count = transaction!(self, |tx, campaign_id, at| budget::reconsider(tx, *campaign_id, *at));
            if !matches!(count, Ok(1..)) {
                memory.reconsidered_without_success(campaign_id, at);
            }
            match count {
                Ok(count) => became_ready += count,
                // The other campaigns go on.
                Err(error) => tracing::warn!(campaign_id, error = %error, "blocked steps were not reconsidered"),
            }
        }
        Ok((became_ready, next))
    }
}
